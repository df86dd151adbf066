"""Reads a web configuration file: the format in which Prometheus's exporters are configured for TLS and passwords.

The format: github.com/prometheus/exporter-toolkit, docs/web-configuration.md. Everything that `promtool check
web-config` rejects is rejected here, and so is a setting that would have no effect, or another than it seems to have:
an operator would take the port for protected. No message repeats a hash or a key.

A string may be any scalar as it is written; null counts as absent; a boolean is an unquoted one of YAML 1.1. TLS names
are Go's (pkg.go.dev/crypto/tls#CipherSuites, #CurveID and #ClientAuthType), with those of OpenSSL from its manual pages
openssl-ciphers(1) and SSL_CTX_set1_groups(3).
"""

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
"""Accepted values of client_auth_type."""
REJECTED_POLICIES = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
"""Values that Python cannot request from OpenSSL, and that protect nothing: certificates are not verified."""

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
"""Go's names to OpenSSL's; "" for the suites of TLS 1.3, which are always offered, by Go as well."""

CURVES: Mapping[str, str] = {
    "CurveP256": "prime256v1",
    "CurveP384": "secp384r1",
    "CurveP521": "secp521r1",
    "X25519": "X25519",
}
"""Go's names to OpenSSL's."""


_UNIT_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_DURATION = re.compile(rf"([-+]?)((?:{_DURATION_PART.pattern})+|0)")


MAX_FILE_BYTES = 1024 * 1024
MAX_COST = 15
"""Maximum cost of a bcrypt hash: each step doubles the time of a login, and 15 takes two seconds."""
MAX_USERS = 1000

_HASH = re.compile(r"\$2[abxy]?\$([0-9]{2})\$[./A-Za-z0-9]{53}")
_HEADERS: Mapping[str, tuple[str, ...]] = {
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
    "Content-Security-Policy": (),
}
"""Headers that may be set, with their allowed values; () allows any value."""
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")


Fail = Callable[[str, str], NoReturn]
"""Raises WebFileError for a key and its problem."""


class WebFileError(UserError):
    """The web configuration file cannot be used; the text names file, key and remedy."""


def _seconds(value: object) -> float:
    """Return seconds of a duration as Go writes it (`1m30s`), or of a number of nanoseconds. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value * 1e-9
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{shown(value)} is not a duration; write a number with a unit, such as 500ms or 1m30s")
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(match[2]))
    return -seconds if match[1] == "-" else seconds


def _among(allowed: Collection[str]) -> Callable[[object], object]:
    """Return what refuses a text, or a list with one, that is not among these."""

    def checked(value: object) -> object:
        for text in value if isinstance(value, list) else (value,):
            if isinstance(text, str) and text not in allowed:
                raise ValueError(f"{shown(text)} is unknown; use one of {', '.join(allowed)}")
        return value

    return checked


class ServerTls(msgspec.Struct, frozen=True):
    """The section `tls_server_config`. At least one of `cert` and `cert_file` is empty, and so on; paths are absolute.

    `client_auth_type` is one of POLICIES. Without `client_allowed_sans` any verified client may connect.
    """

    cert: str = ""
    cert_file: str = ""
    key: str = ""
    key_file: str = ""
    client_ca: str = ""
    client_ca_file: str = ""
    client_auth_type: Annotated[str, _among((*POLICIES, *REJECTED_POLICIES))] = "NoClientCert"
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: Annotated[str, _among(VERSIONS)] = "TLS12"
    max_version: Annotated[str, _among(VERSIONS)] = "TLS13"
    cipher_suites: Annotated[tuple[str, ...], _among(CIPHERS)] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: Annotated[tuple[str, ...], _among(CURVES)] = ()

    def __repr__(self) -> str:
        """Leave out secrets."""
        return f"ServerTls({self.cert_file})"

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of all files that the section names."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path)


class HttpSettings(msgspec.Struct, frozen=True):
    """The section `http_server_config`. `http2` is accepted and has no effect: this server speaks HTTP/1.1."""

    http2: bool = True
    headers: dict[str, str] = {}


class RateLimit(msgspec.Struct, frozen=True):
    """One request per `interval` seconds, and `burst` at once; an interval of 0 means no limit."""

    interval: Annotated[float, _seconds] = 0.0
    burst: int = 0


class WebFile(msgspec.Struct, frozen=True):
    """The content of a file. Without `tls` the port speaks plain HTTP; without `users` it needs no password."""

    tls: ServerTls | None = msgspec.field(default=None, name="tls_server_config")
    http: HttpSettings = msgspec.field(default=HttpSettings(), name="http_server_config")
    users: dict[str, str] = msgspec.field(default={}, name="basic_auth_users")
    rate: RateLimit = msgspec.field(default=RateLimit(), name="rate_limit")

    def __repr__(self) -> str:
        """Leave out secrets."""
        return f"WebFile({self.tls})"


def read_web_file(path: Path) -> WebFile:
    """Return the file's content, with paths made absolute from the file's directory. Raises WebFileError."""
    try:
        text = textfile.read_text(path, MAX_FILE_BYTES)
    except textfile.ReadError as error:
        remedy = "" if ";" in error.problem else "; name another in web.config_file, and let the agent's user read it"
        raise WebFileError(f"{error}{remedy}") from error
    file = YamlFile.parse(text, str(path), WebFileError, yamltree.Bounds(depth=8, scalar=2**18))
    content = file.convert(WebFile, lambda check, value: check(value), loose=True)
    _check_headers(content.http.headers, file.fail)
    _check_users(content.users, file.fail)
    _check_rate(content.rate, file.fail)
    tls = content.tls
    if tls is None:
        return content

    def fail(key: str, problem: str) -> NoReturn:
        file.fail(f"tls_server_config.{key}", problem)

    _check_certificates(tls, fail)
    _check_versions(tls, fail)
    names = ("cert_file", "key_file", "client_ca_file")
    absolute = {name: str((path.parent / file_name).absolute()) for name in names if (file_name := getattr(tls, name))}
    return replace(content, tls=replace(tls, **absolute))


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
    if tls.client_auth_type in REJECTED_POLICIES:
        problem = f"{tls.client_auth_type} would accept a certificate of any issuer"
        fail("client_auth_type", f"{problem}; use RequireAndVerifyClientCert, or VerifyClientCertIfGiven")
    if (tls.client_ca or tls.client_ca_file) and tls.client_auth_type == "NoClientCert":
        fail("client_auth_type", "is missing: client_ca_file has no effect without it; use RequireAndVerifyClientCert")
    if tls.client_allowed_sans is not None and tls.client_auth_type != "RequireAndVerifyClientCert":
        problem = "needs client_auth_type: RequireAndVerifyClientCert: without a certificate, a client has no name"
        fail("client_allowed_sans", problem)


def _check_versions(tls: ServerTls, fail: Fail) -> None:
    for key, version in (("min_version", tls.min_version), ("max_version", tls.max_version)):
        if version in ("TLS10", "TLS11"):
            fail(key, f"{version} is not supported (RFC 8996 forbids it); use TLS12 or TLS13")
    if tls.min_version > tls.max_version:
        fail("max_version", f"{tls.max_version} is below min_version {tls.min_version}: no client could connect")
    if tls.cipher_suites and tls.max_version == "TLS12" and not any(CIPHERS[suite] for suite in tls.cipher_suites):
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
    if len(users) > MAX_USERS:
        fail("basic_auth_users", f"has {len(users)} users; the limit is {MAX_USERS}")
    for name, hashed in users.items():
        key = f"basic_auth_users.{name}"
        match = _HASH.fullmatch(hashed)
        if match is None:
            fail(key, "is not a bcrypt hash; make one with: htpasswd -nBC 10 ''")
        if not 4 <= int(match[1]) <= MAX_COST:
            fail(key, f"the cost of the hash is {match[1]}; use one from 04 to {MAX_COST}: each step doubles its time")
        if ":" in name:
            fail(key, "a user name with a colon can never log in (RFC 7617); choose another")


def _check_rate(rate: RateLimit, fail: Fail) -> None:
    if rate.interval < 0:
        fail("rate_limit.interval", "is negative; give the time between two requests, such as 1s, or 0s for no limit")
    if rate.interval and rate.burst < 1:
        fail("rate_limit.burst", "is below 1, which would refuse every request; give a number of requests")
