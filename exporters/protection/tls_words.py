"""The words of a web configuration file about TLS, which are Go's, and what they are called by OpenSSL.

Go's: pkg.go.dev/crypto/tls#CipherSuites, #CurveID and #ClientAuthType; OpenSSL's: its manual pages openssl-ciphers(1)
and SSL_CTX_set1_groups(3).
"""

from __future__ import annotations

from collections.abc import Mapping

VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
POLICIES = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
"""What is asked of clients."""
REFUSED_POLICIES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
"""What OpenSSL cannot ask from Python, and what would protect nothing: certificates that nobody verifies."""

CIPHERS: Mapping[str, str] = {
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
}
"""Empty: a suite of TLS 1.3, all of which are always offered, by Go as well."""

CURVES: Mapping[str, str] = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
