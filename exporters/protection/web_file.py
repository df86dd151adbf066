"""Reads a web configuration file: the format in which all of Prometheus's exporters are told about TLS and passwords.

The format: github.com/prometheus/exporter-toolkit, docs/web-configuration.md. What `promtool check web-config` refuses
is refused here. Beyond that, nothing is taken that would have no effect or not the one that it seems to have: it
would be a lock that does not close. No message repeats a hash or a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from agent.lib import textfile, yamltree
from agent.lib.user_error import UserError
from agent.lib.wording import one_line, shown
from exporters.protection.section_reader import SectionReader
from exporters.protection.tls_words import CIPHERS, CURVES, POLICIES, REFUSED_POLICIES, VERSIONS

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


class WebFileError(UserError):
    """A web configuration file cannot be used; the text names file, key and remedy."""


@dataclass(frozen=True, slots=True)
class ServerTls:
    """How the server speaks TLS. Of `cert` and `cert_file` one is empty, and so of the others; files are absolute.

    `policy` is a word of POLICIES. `allowed_sans` None: no name is asked for.
    """

    cert: str = field(default="", repr=False)
    cert_file: str = ""
    key: str = field(default="", repr=False)
    key_file: str = ""
    client_ca: str = field(default="", repr=False)
    client_ca_file: str = ""
    policy: str = "NoClientCert"
    allowed_sans: tuple[str, ...] | None = None
    least: str = "TLS12"
    most: str = "TLS13"
    ciphers: tuple[str, ...] = ()
    server_chooses: bool = True
    curves: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it names."""
        return tuple(each for each in (self.cert_file, self.key_file, self.client_ca_file) if each)


class RateLimit(NamedTuple):
    """One request in `interval` seconds, and `burst` at once."""

    interval: float
    burst: int


@dataclass(frozen=True, slots=True)
class WebFile:
    """What a file says. Without `tls` the port speaks plain HTTP; without `users` everyone may ask."""

    tls: ServerTls | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    rate: RateLimit | None = None


def read_web_file(path: Path) -> WebFile:
    """The file's content; relative paths in it start at its folder. Raises WebFileError."""
    try:
        text = textfile.read_text(path, MOST_FILE)
    except textfile.ReadError as error:
        remedy = "" if ";" in error.problem else "; name another in web.config_file, and let the agent's user read it"
        raise WebFileError(f"{error}{remedy}") from error
    return parse_web_file(text, path)


def parse_web_file(text: str, path: Path) -> WebFile:
    """The content of a text that stands in a file. Raises WebFileError."""

    def fail(key: str, problem: str, line: int = 0) -> NoReturn:
        place = f"{path}:{line}" if line else f"{path}"
        raise WebFileError(": ".join(part for part in (place, one_line(key, 200), one_line(problem)) if part))

    try:
        root = yamltree.compose(text, yamltree.Bounds(depth=8, scalar=2**18)).root
    except yamltree.YamlError as error:
        fail("", error.problem, error.line)
    whole = SectionReader("", root, fail)
    tls, http = whole.section("tls_server_config"), whole.section("http_server_config")
    users, rate = whole.section("basic_auth_users"), whole.section("rate_limit")
    whole.done()
    return WebFile(_tls(tls, path.parent), _headers(http), _users(users), _rate(rate))


def _tls(section: SectionReader, folder: Path) -> ServerTls | None:
    if section.is_empty:
        return None
    made = ServerTls(
        cert=section.text("cert"),
        cert_file=_file(section, "cert_file", folder),
        key=section.text("key"),
        key_file=_file(section, "key_file", folder),
        client_ca=section.text("client_ca"),
        client_ca_file=_file(section, "client_ca_file", folder),
        policy=section.word("client_auth_type", (*POLICIES, *REFUSED_POLICIES)) or "NoClientCert",
        allowed_sans=section.texts("client_allowed_sans"),
        least=section.word("min_version", VERSIONS) or "TLS12",
        most=section.word("max_version", VERSIONS) or "TLS13",
        ciphers=section.words("cipher_suites", CIPHERS),
        server_chooses=section.truth("prefer_server_cipher_suites", True),
        curves=section.words("curve_preferences", CURVES),
    )
    section.done()
    _check_certificates(made, section.fail)
    _check_versions(made, section.fail)
    return made


def _file(section: SectionReader, key: str, folder: Path) -> str:
    name = section.text(key)
    return str((folder / name).absolute()) if name else ""


def _check_certificates(tls: ServerTls, fail: Callable[[str, str], NoReturn]) -> None:
    for name, text, file in (
        ("cert", tls.cert, tls.cert_file),
        ("key", tls.key, tls.key_file),
        ("client_ca", tls.client_ca, tls.client_ca_file),
    ):
        if text and file:
            fail(f"{name}_file", f"{name} is given as well; remove one of them")
        if not (text or file) and name != "client_ca":
            fail(
                f"{name}_file",
                "is missing: TLS needs the server's certificate and its key; remove the section for plain HTTP",
            )
    if tls.policy in REFUSED_POLICIES:
        remedy = "use RequireAndVerifyClientCert, or VerifyClientCertIfGiven"
        fail("client_auth_type", f"{tls.policy} would take any certificate without looking who issued it; {remedy}")
    if (tls.client_ca or tls.client_ca_file) and tls.policy == "NoClientCert":
        fail("client_auth_type", "is missing: client_ca_file has no effect without it; use RequireAndVerifyClientCert")
    if tls.allowed_sans is not None and tls.policy != "RequireAndVerifyClientCert":
        fail(
            "client_allowed_sans", "needs client_auth_type: RequireAndVerifyClientCert, or clients come without a name"
        )


def _check_versions(tls: ServerTls, fail: Callable[[str, str], NoReturn]) -> None:
    for key, version in (("min_version", tls.least), ("max_version", tls.most)):
        if version in ("TLS10", "TLS11"):
            fail(key, f"{version} is not spoken here (RFC 8996 forbids it); use TLS12 or TLS13")
    if tls.least > tls.most:
        fail("max_version", f"{tls.most} is below min_version {tls.least}: no client could connect")
    if tls.ciphers and tls.most == "TLS12" and not any(CIPHERS[each] for each in tls.ciphers):
        fail("cipher_suites", "has only suites of TLS 1.3, and max_version is TLS12: no client could connect")


def _headers(section: SectionReader) -> tuple[tuple[str, str], ...]:
    section.truth("http2", True)  # HTTP/2 is allowed, not asked for: this server offers HTTP/1.1, as clients accept
    given = section.pairs("headers")
    section.done()
    for name, value in given.items():
        if name not in _HEADERS:
            section.fail(f"headers.{name}", f"this header cannot be set; use one of {', '.join(_HEADERS)}")
        if _HEADERS[name] and value not in _HEADERS[name]:
            section.fail(f"headers.{name}", f"{shown(value)} is not allowed; use {' or '.join(_HEADERS[name])}")
        if not _HEADER_VALUE.fullmatch(value):
            section.fail(f"headers.{name}", "must be one line of ASCII")
    return tuple((name, value) for name, value in given.items() if value)


def _users(section: SectionReader) -> dict[str, str]:
    users = section.all_pairs()
    if len(users) > MOST_USERS:
        section.fail("", f"has {len(users)} users; the limit is {MOST_USERS}")
    for name, hashed in users.items():
        match = _HASH.fullmatch(hashed)
        if match is None:
            section.fail(name, "is not a bcrypt hash; make one with: htpasswd -nBC 10 ''")
        if not 4 <= int(match[1]) <= MOST_COST:
            section.fail(
                name, f"the cost of the hash is {match[1]}; give one from 04 to {MOST_COST}: each takes twice as long"
            )
        if ":" in name:
            section.fail(name, "a user name with a colon can never log in (RFC 7617); choose another")
    return users


def _rate(section: SectionReader) -> RateLimit | None:
    interval, burst = section.duration("interval"), section.whole("burst")
    section.done()
    if interval < 0:
        section.fail("interval", "is negative; give the time between two requests, such as 1s, or 0s for no limit")
    if interval and burst < 1:
        section.fail("burst", "is below 1, which would refuse every request; give a number of requests")
    return RateLimit(interval, burst) if interval else None
