"""Reads a web configuration file: the format in which Prometheus's exporters are configured for TLS and passwords.

The format: github.com/prometheus/exporter-toolkit, docs/web-configuration.md. What `promtool check web-config` refuses
is refused here. Beyond that, nothing is accepted that would have no effect or not the one that it seems to have: it
would be a lock that does not close. No message repeats a hash or a key.

A string may be any scalar as it is written; null counts as absent; a truth value is what YAML 1.1 calls one, unquoted.
Words of TLS are Go's (pkg.go.dev/crypto/tls#CipherSuites, #CurveID and #ClientAuthType); OpenSSL's are in its manual
pages openssl-ciphers(1) and SSL_CTX_set1_groups(3).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
from msgspec.structs import replace

from agent.lib import textfile, yamltree
from agent.lib.typed_yaml import YamlFile
from agent.lib.wording import UserError, shown

VERSIONS = ("TLS10", "TLS11", "TLS12", "TLS13")
POLICIES = ("NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert")
"""Policies for certificates of clients."""
REFUSED_POLICIES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
"""Policies that Python cannot request from OpenSSL, and that protect nothing: the certificates are not verified."""

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


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_SPAN = re.compile(rf"([-+]?)((?:{_PART.pattern})+|0)")


MOST_FILE = 1024 * 1024
MOST_COST = 15
"""The most costly hash that is taken: each step doubles the time, and 15 takes two seconds."""
MOST_USERS = 1000

_HASH = re.compile(r"\$2[abxy]?\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


_WORDS: Mapping[str, Collection[str]] = {
    "client_auth_type": (*POLICIES, *REFUSED_POLICIES),
    "min_version": VERSIONS,
    "max_version": VERSIONS,
    "cipher_suites": CIPHERS,
    "curve_preferences": CURVES,
}
Fail = Callable[[str, str], NoReturn]
"""Refuses the value of a key."""


class WebFileError(UserError):
    """A web configuration file cannot be used; the text names file, key and remedy."""


class ServerTls(msgspec.Struct, frozen=True):
    """The section `tls_server_config`: how the server speaks TLS. Of `cert` and `cert_file` one is empty, and so of the
    others; files are absolute.

    `client_auth_type` is a word of POLICIES. `client_allowed_sans` None: no name is asked for.
    """

    cert: str = ""
    cert_file: str = ""
    key: str = ""
    key_file: str = ""
    client_ca: str = ""
    client_ca_file: str = ""
    client_auth_type: str = "NoClientCert"
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"ServerTls({self.cert_file})"

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names."""
        return tuple(each for each in (self.cert_file, self.key_file, self.client_ca_file) if each)


class HttpSettings(msgspec.Struct, frozen=True):
    """HTTP/2 is allowed, not asked for: this server offers HTTP/1.1, as clients accept."""

    http2: bool = True
    headers: dict[str, str] = {}


class RateLimit(msgspec.Struct, frozen=True):
    """One request in `interval` seconds, and `burst` at once; without an interval there is no limit."""

    interval: Annotated[float, "duration"] = 0.0
    burst: int = 0


class WebFile(msgspec.Struct, frozen=True):
    """The content of a file. Without `tls` the port speaks plain HTTP; without `users` everyone may ask."""

    tls: ServerTls | None = msgspec.field(default=None, name="tls_server_config")
    http: HttpSettings = msgspec.field(default=HttpSettings(), name="http_server_config")
    users: dict[str, str] = msgspec.field(default={}, name="basic_auth_users")
    rate: RateLimit = msgspec.field(default=RateLimit(), name="rate_limit")

    def __repr__(self) -> str:
        """Without what is secret."""
        return f"WebFile({self.tls})"


def read_web_file(path: Path) -> WebFile:
    """Return the file's content; relative paths in it start at its folder. Raises WebFileError."""
    try:
        text = textfile.read_text(path, MOST_FILE)
    except textfile.ReadError as error:
        remedy = "" if ";" in error.problem else "; name another in web.config_file, and let the agent's user read it"
        raise WebFileError(f"{error}{remedy}") from error
    file = YamlFile.parse(text, str(path), WebFileError, yamltree.Bounds(depth=8, scalar=2**18))
    found = file.convert(WebFile, lambda _, value: _seconds(value), loose=True)
    _check_headers(found.http.headers, file.fail)
    _check_users(found.users, file.fail)
    _check_rate(found.rate, file.fail)
    tls = found.tls
    if tls is None:
        return found

    def fail(key: str, problem: str) -> NoReturn:
        file.fail(f"tls_server_config.{key}", problem)

    _check_words(tls, fail)
    _check_certificates(tls, fail)
    _check_versions(tls, fail)
    names = ("cert_file", "key_file", "client_ca_file")
    absolute = {name: str((path.parent / given).absolute()) for name in names if (given := getattr(tls, name))}
    return replace(found, tls=replace(tls, **absolute))


def _seconds(value: object) -> float:
    """Return seconds of a duration as Go writes it (`1m30s`), or of a number of nanoseconds. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1e-9
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{shown(value)} is not a duration; write a number with a unit, such as 500ms or 1m30s")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(match[2]))
    return -seconds if match[1] == "-" else seconds


def _check_words(tls: ServerTls, fail: Fail) -> None:
    for key, known in _WORDS.items():
        given = getattr(tls, key)
        for word in (given,) if isinstance(given, str) else given:
            if word not in known:
                fail(key, f"{shown(word)} is unknown; use one of {', '.join(known)}")


def _check_certificates(tls: ServerTls, fail: Fail) -> None:
    for name, text, file in (
        ("cert", tls.cert, tls.cert_file),
        ("key", tls.key, tls.key_file),
        ("client_ca", tls.client_ca, tls.client_ca_file),
    ):
        if text and file:
            fail(f"{name}_file", f"{name} is given as well; remove one of them")
        if not (text or file) and name != "client_ca":
            remedy = "TLS needs the server's certificate and its key; remove the section for plain HTTP"
            fail(f"{name}_file", f"is missing: {remedy}")
    if tls.client_auth_type in REFUSED_POLICIES:
        problem = f"{tls.client_auth_type} would take any certificate without looking who issued it"
        fail("client_auth_type", f"{problem}; use RequireAndVerifyClientCert, or VerifyClientCertIfGiven")
    if (tls.client_ca or tls.client_ca_file) and tls.client_auth_type == "NoClientCert":
        fail("client_auth_type", "is missing: client_ca_file has no effect without it; use RequireAndVerifyClientCert")
    if tls.client_allowed_sans is not None and tls.client_auth_type != "RequireAndVerifyClientCert":
        problem = "needs client_auth_type: RequireAndVerifyClientCert, or clients come without a name"
        fail("client_allowed_sans", problem)


def _check_versions(tls: ServerTls, fail: Fail) -> None:
    for key, version in (("min_version", tls.min_version), ("max_version", tls.max_version)):
        if version in ("TLS10", "TLS11"):
            fail(key, f"{version} is not spoken here (RFC 8996 forbids it); use TLS12 or TLS13")
    if tls.min_version > tls.max_version:
        fail("max_version", f"{tls.max_version} is below min_version {tls.min_version}: no client could connect")
    if tls.cipher_suites and tls.max_version == "TLS12" and not any(CIPHERS[each] for each in tls.cipher_suites):
        fail("cipher_suites", "has only suites of TLS 1.3, and max_version is TLS12: no client could connect")


def _check_headers(headers: Mapping[str, str], fail: Fail) -> None:
    for name, value in headers.items():
        key = f"http_server_config.headers.{name}"
        if name not in _HEADERS:
            fail(key, f"this header cannot be set; use one of {', '.join(_HEADERS)}")
        if _HEADERS[name] and value not in _HEADERS[name]:
            fail(key, f"{shown(value)} is not allowed; use {' or '.join(_HEADERS[name])}")
        if not _HEADER_VALUE.fullmatch(value):
            fail(key, "must be one line of ASCII")


def _check_users(users: Mapping[str, str], fail: Fail) -> None:
    if len(users) > MOST_USERS:
        fail("basic_auth_users", f"has {len(users)} users; the limit is {MOST_USERS}")
    for name, hashed in users.items():
        key = f"basic_auth_users.{name}"
        match = _HASH.fullmatch(hashed)
        if match is None:
            fail(key, "is not a bcrypt hash; make one with: htpasswd -nBC 10 ''")
        if not 4 <= int(match[1]) <= MOST_COST:
            fail(key, f"the cost of the hash is {match[1]}; give one from 04 to {MOST_COST}: each takes twice as long")
        if ":" in name:
            fail(key, "a user name with a colon can never log in (RFC 7617); choose another")


def _check_rate(rate: RateLimit, fail: Fail) -> None:
    if rate.interval < 0:
        fail("rate_limit.interval", "is negative; give the time between two requests, such as 1s, or 0s for no limit")
    if rate.interval and rate.burst < 1:
        fail("rate_limit.burst", "is below 1, which would refuse every request; give a number of requests")
