"""Enforce a web configuration: TLS for new clients, and for each request the rate limit and then the login.

Everything behind the port is protected alike, health checks as well, as the exporter-toolkit does it.

Certificates are renewed by programs that know nothing of the agent: so the files are looked at every second, through
all symbolic links, which is how Kubernetes swaps them. A change is taken once it has been still for a second: a
certificate and its key are two files. What cannot be used is said once, and the former terms stay in force.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field, structs

from agent.lib.certificates import first_expiry
from agent.lib.logs import LogOnce
from agent.lib.textfile import stamp_of
from agent.lib.threads import CLOSING_SECONDS, KeptThread, Threads
from exporters.deferred import Answer
from exporters.gate import CERTIFICATE, HANDSHAKE, ClientTransport, PortGate
from exporters.http_messages import Request, Response
from exporters.protection.passwords import DENIED, PasswordChecks
from exporters.protection.web_file import RateLimit, WebFile, WebFileError, read_web_file

if TYPE_CHECKING:
    import ssl

Stamps = tuple[tuple[int, ...] | None, ...]

LOGIN, RATE = "login", "rate"
REFUSALS = (CERTIFICATE, HANDSHAKE, LOGIN, RATE)
"""Why a client is rejected: a missing or denied certificate, a failed handshake, a wrong login, too many requests."""

LIMITED = Response(HTTPStatus.TOO_MANY_REQUESTS, b"too many requests: the web configuration limits their rate\n")
_FIXED = "X-Content-Type-Options"
"""A header that every response has, with the only value that may be configured for it."""


class WebTerms(Struct, frozen=True):
    """The settings in force: a file's content, and its OpenSSL context.

    `stamps` are those of the file and of all that it names, from before they were read.
    """

    file: WebFile = field(default_factory=WebFile)
    context: ssl.SSLContext | None = None
    stamps: Stamps = ()
    expires: float | None = None
    """The Unix second at which the first certificate of the chain expires; None without TLS."""


def load_terms(path: Path) -> WebTerms:
    """Return the terms by a web configuration file. Raises WebFileError."""
    stamps = stamps_of(path)
    file = read_web_file(path)
    if file.tls is None:
        return WebTerms(file, stamps=stamps)
    from exporters.protection.tls import make_context

    stamps += stamps_of(*file.tls.files)
    context, chain = make_context(file.tls, path)
    return WebTerms(file, context, stamps, first_expiry(chain))


def stamps_of(*files: Path | str) -> Stamps:
    """Return what changes with each file, or with what a link leads to; None for one that is not there."""
    return tuple(map(_stamp, files))


def _stamp(file: Path | str) -> tuple[int, ...] | None:
    with suppress(OSError):
        return stamp_of(file)
    return None


class WebGate(PortGate):
    """Enforces the terms that were given last; `enforce` is for any thread. `clock` gives monotonic seconds."""

    def __init__(self, terms: WebTerms, passwords: PasswordChecks, clock: Callable[[], float]) -> None:
        self.refused = dict.fromkeys(REFUSALS, 0)
        """Clients and requests that were refused since the start, by the reason."""
        self.terms = terms
        self._passwords = passwords
        self._clock = clock
        self._limit: RateLimit | None = None
        self._tokens = 0.0
        self._filled = 0.0

    def enforce(self, terms: WebTerms) -> None:
        """Apply other terms; connections under the former ones are not kept."""
        self.terms = terms
        self.edition += 1

    def transport(self, sock: socket.socket) -> ClientTransport:
        terms = self.terms
        if terms.context is None or terms.file.tls is None:
            return ClientTransport(sock)
        from exporters.protection.tls import TlsTransport

        return TlsTransport(sock, terms.context, terms.file.tls.client_allowed_sans, self._count)

    def admit(self, request: Request, peer: str) -> Answer | None:
        file = self.terms.file
        if file.rate.interval and not self._takes(file.rate):
            return LIMITED
        if not file.users:
            return None
        return self._passwords.check(file.users, request.headers.get("authorization", ""), peer)

    def add_headers(self, response: Response) -> Response:
        if response is DENIED:
            self._count(LOGIN)
        elif response is LIMITED:
            self._count(RATE)
        configured = {name: value for name, value in self.terms.file.http.headers.items() if value}
        if not configured:
            return response
        kept = tuple((name, value) for name, value in response.headers if name not in configured)
        added = tuple((name, value) for name, value in configured.items() if name != _FIXED)
        return structs.replace(response, headers=kept + added)

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


log = logging.getLogger("coldplate.web")

PERIOD_SECONDS = 1.0
RETRY_PERIODS = 15
"""Periods after which files that could not be used are tried again although they look the same."""
MOST_SESSIONS = 256
"""Sessions of TLS 1.2 that OpenSSL may keep: clients that want no tickets would have it keep twenty thousand."""


class WebReload(Struct):
    """How the file was last read; `at` is when that last succeeded, and `expires` when the certificate will not do any
    more, in Unix seconds."""

    at: float
    expires: float | None = None
    good: bool = True


class WebWatch:
    """Reads the file at `path` and whatever it names, and has passwords checked by it.

    `clock` gives monotonic seconds, and `wall` Unix seconds. Raises WebFileError if the file cannot be used at first.
    """

    def __init__(self, path: Path, clock: Callable[[], float], wall: Callable[[], float], threads: Threads) -> None:
        self.path = path
        self.changed: Callable[[], None] = lambda: None
        """Called after a change."""
        self.reloaded: Callable[[], None] = lambda: None
        """Called after a change that was seen by looking at the files, in the thread that looks at them."""
        self._wall = wall
        self._threads = threads
        self._passwords = PasswordChecks(clock)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: KeptThread | None = None
        self._once = LogOnce(log)
        self._periods = 0
        terms = load_terms(path)
        self.gate = WebGate(terms, self._passwords, clock)
        self.last = WebReload(wall(), terms.expires)
        self._seen, self._is_taken = terms.stamps, True
        """The stamps when the files were last looked at, and whether what they stand for was taken, or refused."""

    def start(self) -> None:
        """Begin to look at the files, and to check passwords."""
        self._thread = self._threads.begin("web-config", self._run)
        self._passwords.start(self._threads)

    def stop(self) -> None:
        """End both threads."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)
        self._passwords.stop(CLOSING_SECONDS)

    def load(self) -> WebTerms:
        """Return the terms as the files are now, not enforced yet; log and note a failure. Raises WebFileError."""
        try:
            return load_terms(self.path)
        except WebFileError as error:
            self.last.good = False
            text = "web configuration not reloaded, keeping the current one: %s"
            self._once.problem("load", text, error, cause=str(error), level=logging.ERROR)
            raise

    def enforce(self, terms: WebTerms) -> None:
        with self._lock:
            self._once.over("load")
            self._seen, self._is_taken = terms.stamps, True
            self.last = WebReload(self._wall(), terms.expires)
            self.gate.enforce(terms)
        self.changed()

    def check_files(self) -> None:
        """Look at the files once: notice a change, or take one that has been noticed before."""
        tls = self.gate.terms.file.tls
        now = stamps_of(self.path, *(() if tls is None else tls.files))
        if now != self._seen:
            self._seen, self._is_taken = now, False
            return
        self._periods += 1
        retried = not self.last.good and self._periods >= RETRY_PERIODS
        if not self._is_taken or retried:
            self._is_taken, self._periods = True, 0
            self._reload()
        elif self._has_kept_sessions():
            with suppress(WebFileError):  # then once they can be used again
                self.gate.terms = load_terms(self.path)

    def _reload(self) -> None:
        try:
            terms = self.load()
        except WebFileError:
            return
        self.enforce(terms)
        facts = {"tls": "off" if terms.context is None else "on", "users": len(terms.file.users)}
        log.info("web configuration reloaded", extra={"facts": facts})
        self.reloaded()

    def _has_kept_sessions(self) -> bool:
        context = self.gate.terms.context
        return context is not None and context.session_stats()["number"] > MOST_SESSIONS

    def _run(self) -> None:
        while not self._stopping.wait(PERIOD_SECONDS):
            self.check_files()
