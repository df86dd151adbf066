"""Reads a web configuration file: the format in which Prometheus's exporters are configured for TLS and passwords.

The format: github.com/prometheus/exporter-toolkit, docs/web-configuration.md. What `promtool check web-config` refuses
is refused here. Beyond that, nothing is accepted that would have no effect or not the one that it seems to have: it
would be a lock that does not close. No message repeats a hash or a key.

A string may be any scalar as it is written; null counts as absent; a truth value is what YAML 1.1 calls one, unquoted.
Words of TLS are Go's (pkg.go.dev/crypto/tls#CipherSuites, #CurveID and #ClientAuthType); OpenSSL's are in its manual
pages openssl-ciphers(1) and SSL_CTX_set1_groups(3).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from agent.lib import textfile, yamltree
from agent.lib.wording import UserError, one_line, shown
from agent.lib.yamltree import Node, YamlList, YamlMapping, YamlScalar
from agent.lib.yamlvalues import resolve

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


class Fail(Protocol):
    """Refuses the value of a key."""

    def __call__(self, key: str, problem: str, line: int = 0) -> NoReturn: ...


class SectionReader:
    """The keys of a mapping, which may be missing. A key that was not read when `done` is called is unknown."""

    def __init__(self, name: str, node: Node | None, fail: Fail) -> None:
        self._name = name
        self._fail = fail
        self._nodes: dict[str, tuple[int, Node]] = {}
        self._asked: list[str] = []
        if node is None or yamltree.is_null(node):
            return
        if not isinstance(node, YamlMapping):
            fail(name, "must be a mapping of keys and values", node.line)
        for key, value in yamltree.pairs_of(node, lambda problem, line: fail(name, problem, line)):
            self._nodes[key.text] = key.line, value

    @property
    def is_empty(self) -> bool:
        return not self._nodes

    def fail(self, key: str, problem: str) -> NoReturn:
        """Refuse the value of a key; the key may have a part that names something below it."""
        line = self._nodes.get(key.partition(".")[0], (0, None))[0]
        self._fail(".".join(each for each in (self._name, key) if each), problem, line)

    def done(self) -> None:
        """Reject the keys that were not read."""
        for key in self._nodes:
            if key not in self._asked:
                near = difflib.get_close_matches(key[:100], self._asked, 1, 0.5)
                hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(self._asked)}"
                self.fail(one_line(key, 80), f"unknown key; {hint}")

    def section(self, key: str) -> SectionReader:
        """Return the mapping below a key."""
        return SectionReader(f"{self._name}.{key}".lstrip("."), self._node(key), self._fail)

    def text(self, key: str) -> str:
        """Return a string; empty without the key."""
        node = self._node(key)
        return "" if node is None else self._scalar(key, node)

    def texts(self, key: str) -> tuple[str, ...] | None:
        """Return a list of strings; None without the key."""
        node = self._node(key)
        if node is None or yamltree.is_null(node):
            return None
        if not isinstance(node, YamlList):
            self.fail(key, "must be a list, such as [one, another]")
        return tuple(self._scalar(key, each) for each in node.items)

    def word(self, key: str, known: Collection[str]) -> str:
        """Return one of these words; empty without the key."""
        node = self._node(key)
        if node is None or yamltree.is_null(node):
            return ""
        return self._known(key, self._scalar(key, node), known)

    def words(self, key: str, known: Collection[str]) -> tuple[str, ...]:
        """Return a list of such words."""
        return tuple(self._known(key, each, known) for each in self.texts(key) or ())

    def truth(self, key: str, default: bool) -> bool:
        """Return true or false."""
        value = self._plain(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fail(key, f"{shown(value)} is neither true nor false")
        return value

    def whole(self, key: str) -> int:
        """Return a whole number; 0 without the key."""
        value = self._plain(key)
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(key, f"{shown(value)} is not a whole number")
        return value

    def duration(self, key: str) -> float:
        """Return seconds of a duration as Go writes it (`1m30s`), or of a number of nanoseconds; 0 without the key."""
        value = self._plain(key)
        if value is None:
            return 0.0
        if isinstance(value, int) and not isinstance(value, bool):
            return value * 1e-9
        match = _SPAN.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            self.fail(key, f"{shown(value)} is not a duration; write a number with a unit, such as 500ms or 1m30s")
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(match[2]))
        return -seconds if match[1] == "-" else seconds

    def pairs(self, key: str) -> dict[str, str]:
        """Return a mapping of strings."""
        return self.section(key).all_pairs()

    def all_pairs(self) -> dict[str, str]:
        """Return the whole section as a mapping of strings."""
        return {key: self._scalar(key, node) for key, (_, node) in self._nodes.items()}

    def _node(self, key: str) -> Node | None:
        self._asked.append(key)
        found = self._nodes.get(key)
        return None if found is None else found[1]

    def _plain(self, key: str) -> str | int | float | bool | None:
        node = self._node(key)
        if node is None:
            return None
        text = self._scalar(key, node)
        assert isinstance(node, YamlScalar), "anything else has been refused"
        try:
            return text if node.tag == yamltree.TEXT else resolve(text, node.tag)
        except ValueError as error:
            self.fail(key, str(error))

    def _scalar(self, key: str, node: Node) -> str:
        if not isinstance(node, YamlScalar):
            self.fail(one_line(key, 80), "must be a single value, not a list or a mapping")
        return "" if yamltree.is_null(node) else node.text

    def _known(self, key: str, word: str, known: Collection[str]) -> str:
        if word not in known:
            self.fail(key, f"{shown(word)} is unknown; use one of {', '.join(known)}")
        return word


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
    """The content of a file. Without `tls` the port speaks plain HTTP; without `users` everyone may ask."""

    tls: ServerTls | None = None
    headers: tuple[tuple[str, str], ...] = ()
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    rate: RateLimit | None = None


def read_web_file(path: Path) -> WebFile:
    """Return the file's content; relative paths in it start at its folder. Raises WebFileError."""
    try:
        text = textfile.read_text(path, MOST_FILE)
    except textfile.ReadError as error:
        remedy = "" if ";" in error.problem else "; name another in web.config_file, and let the agent's user read it"
        raise WebFileError(f"{error}{remedy}") from error
    return parse_web_file(text, path)


def parse_web_file(text: str, path: Path) -> WebFile:
    """Return the content of a text that stands in a file. Raises WebFileError."""

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
