"""Enforces a web configuration: TLS for new clients, and for each request the rate limit and then the login.

Everything behind the port is protected alike, health checks as well, as the exporter-toolkit does it.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib.certificates import first_expiry
from exporters.deferred import Answer
from exporters.gate import CERTIFICATE, HANDSHAKE, ClientTransport, PlainTransport
from exporters.http_messages import Request, Response
from exporters.protection.passwords import DENIED, PasswordChecks
from exporters.protection.web_file import RateLimit, WebFile, read_web_file

if TYPE_CHECKING:  # costs 2 MiB, so it is loaded only if the port speaks TLS
    import ssl

Stamps = tuple[tuple[int, ...] | None, ...]

LOGIN, RATE = "login", "rate"
REFUSALS = (CERTIFICATE, HANDSHAKE, LOGIN, RATE)
"""Why a client is rejected: a missing or denied certificate, a failed handshake, a wrong login, too many requests."""

LIMITED = Response(HTTPStatus.TOO_MANY_REQUESTS, b"too many requests: the web configuration limits their rate\n")
_FIXED = "X-Content-Type-Options"
"""A header that every response has, with the only value that may be configured for it."""


@dataclass(frozen=True, slots=True)
class WebTerms:
    """The settings in force: a file's content, and its OpenSSL context.

    `stamps` are those of the file and of all that it names, from before they were read.
    """

    file: WebFile = field(default_factory=WebFile)
    context: ssl.SSLContext | None = field(default=None, compare=False)
    stamps: Stamps = ()
    expires: float | None = None
    """The Unix second at which the first certificate of the chain expires; None without TLS."""


def load_terms(path: Path) -> WebTerms:
    """Return the terms by a web configuration file. Raises WebFileError."""
    stamps = stamps_of(path)
    file = read_web_file(path)
    if file.tls is None:
        return WebTerms(file, stamps=stamps)
    from exporters.protection.tls_context import make_context

    stamps += stamps_of(*file.tls.files)
    context, chain = make_context(file.tls, path)
    return WebTerms(file, context, stamps, first_expiry(chain))


def stamps_of(*files: Path | str) -> Stamps:
    """Return what changes with each file, or with what a link leads to; None for one that is not there."""
    return tuple(map(_stamp, files))


def _stamp(file: Path | str) -> tuple[int, ...] | None:
    try:
        status = Path(file).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


class WebGate:
    """Enforces the terms that were given last; `enforce` is for any thread. `clock` gives monotonic seconds."""

    def __init__(self, terms: WebTerms, passwords: PasswordChecks, clock: Callable[[], float]) -> None:
        self.edition = 0
        self.refused = dict.fromkeys(REFUSALS, 0)
        """Clients and requests that were refused since the start, by the reason."""
        self._terms = terms
        self._passwords = passwords
        self._clock = clock
        self._limit: RateLimit | None = None
        self._tokens = 0.0
        self._filled = 0.0

    @property
    def terms(self) -> WebTerms:
        return self._terms

    def enforce(self, terms: WebTerms) -> None:
        """Apply other terms; connections under the former ones are not kept."""
        self.renew(terms)
        self.edition += 1

    def renew(self, terms: WebTerms) -> None:
        """Replace the terms by equal ones that were read again, for new connections."""
        self._terms = terms

    def transport(self, sock: socket.socket) -> ClientTransport:
        terms = self._terms
        if terms.context is None or terms.file.tls is None:
            return PlainTransport(sock)
        from exporters.protection.tls_transport import TlsTransport

        return TlsTransport(sock, terms.context, terms.file.tls.client_allowed_sans, self._count)

    def admit(self, request: Request, peer: str) -> Answer | None:
        file = self._terms.file
        if file.rate.interval and not self._takes(file.rate):
            return LIMITED
        if not file.users:
            return None
        return self._passwords.check(file.users, request.headers.get("authorization", ""), peer)

    def dress(self, response: Response) -> Response:
        reason = LOGIN if response is DENIED else RATE if response is LIMITED else ""
        if reason:
            self._count(reason)
        given = {name: value for name, value in self._terms.file.http.headers.items() if value}
        if not given:
            return response
        kept = tuple((name, value) for name, value in response.headers if name not in given)
        added = tuple((name, value) for name, value in given.items() if name != _FIXED)
        return dataclasses.replace(response, headers=kept + added)

    def _count(self, reason: str) -> None:
        self.refused[reason] += 1

    def _takes(self, rate: RateLimit) -> bool:
        """Return whether a request fits into the rate; if so, it counts."""
        now = self._clock()
        if self._limit != rate:
            self._limit, self._tokens, self._filled = rate, float(rate.burst), now
        self._tokens = min(self._tokens + (now - self._filled) / rate.interval, float(rate.burst))
        self._filled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
