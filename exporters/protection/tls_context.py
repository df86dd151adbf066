"""Makes of a web configuration file's settings what OpenSSL needs to serve TLS. Imported only where TLS is served."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from agent.lib import textfile
from agent.lib.certificates import KeyPairError, load_key_pair
from exporters.protection.web_file import CIPHERS, CURVES, ServerTls, WebFileError

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_KINDS = frozenset({"DNS", "email", "IP Address", "URI"})
"""Alternative names of a certificate that are compared, as OpenSSL calls them."""


def make_context(tls: ServerTls, path: Path) -> tuple[ssl.SSLContext, bytes]:
    """Return a server's context by these settings of the file at `path`, and the chain that it shows.

    Raises WebFileError.
    """

    def fail(key: str, problem: str) -> NoReturn:
        raise WebFileError(f"{path}: tls_server_config.{key}: {problem}")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    least = tls.min_version
    context.options |= ssl.OP_NO_RENEGOTIATION
    if not tls.prefer_server_cipher_suites:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if tls.cipher_suites:
        older = [CIPHERS[each] for each in tls.cipher_suites if CIPHERS[each]]
        if older:
            context.set_ciphers(":".join(older))
        else:
            least = "TLS13"
    context.minimum_version, context.maximum_version = _VERSIONS[least], _VERSIONS[tls.max_version]
    _set_curves(context, tls.curve_preferences, fail)
    context.num_tickets = (
        0  # scrapers keep their connections: nothing is to be resumed, and nothing need be kept for it
    )
    context.set_alpn_protocols(["http/1.1"])
    certificate, key = _pem("cert", tls.cert, tls.cert_file, fail), _pem("key", tls.key, tls.key_file, fail)
    try:
        load_key_pair(context, certificate, key)
    except KeyPairError as error:
        fail("cert_file" if tls.cert_file else "cert", str(error))
    _ask_clients(context, tls, fail)
    return context, certificate


def _set_curves(context: ssl.SSLContext, curves: Sequence[str], fail: Callable[[str, str], NoReturn]) -> None:
    if not curves:
        return
    names = [CURVES[each] for each in curves]
    if len(names) == 1:
        try:
            context.set_ecdh_curve(names[0])
        except (ValueError, ssl.SSLError):  # X25519 before OpenSSL 3
            fail("curve_preferences", f"{ssl.OPENSSL_VERSION} does not support {curves[0]} here; remove the key")
    elif hasattr(context, "set_groups"):  # from Python 3.15 on
        context.set_groups(":".join(names))
    else:
        fail(
            "curve_preferences",
            "this Python's TLS takes one curve only; give one, or remove the key for OpenSSL's order",
        )


def _ask_clients(context: ssl.SSLContext, tls: ServerTls, fail: Callable[[str, str], NoReturn]) -> None:
    """Ask clients for certificates, and trust the issuers that are named, or else the system's."""
    context.verify_mode = _VERIFY[tls.client_auth_type]
    if context.verify_mode is ssl.CERT_NONE:
        return
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust an issuer in the file, even an intermediate one
    if not (tls.client_ca or tls.client_ca_file):
        context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        return
    name = "client_ca_file" if tls.client_ca_file else "client_ca"
    issuers = _pem("client_ca", tls.client_ca, tls.client_ca_file, fail)
    try:
        context.load_verify_locations(cadata=issuers.decode("ascii", "replace").encode("ascii", "replace").decode())
    except ssl.SSLError:
        fail(name, "holds no certificate in PEM; give that of the issuer of the clients' certificates")


def _pem(key: str, text: str, file: str, fail: Callable[[str, str], NoReturn]) -> bytes:
    if not file:
        return text.encode()
    try:
        return textfile.read_bytes(file, textfile.CERTIFICATES)
    except textfile.ReadError as error:
        remedy = "" if ";" in error.problem else "; the agent's user must be able to read it"
        fail(f"{key}_file", f"{error}{remedy}")


def names_of(certificate: Mapping[str, Any] | None) -> set[str]:
    """Return the alternative names of a client's certificate, as `ssl` decodes it; addresses in their shortest form."""
    given = (certificate or {}).get("subjectAltName", ())
    return {_shortest(value) if kind == "IP Address" else value for kind, value in given if kind in _KINDS}


def _shortest(address: str) -> str:
    try:
        return str(ipaddress.ip_address(address.strip()))
    except ValueError:
        return address
