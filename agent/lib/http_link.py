"""One persistent HTTP connection that never waits: it does what can be done now, and says what it waits for.

The owner of many waits for all at once; the owner of one waits through `HttpClient`. Redirects are not followed and
proxies of the environment are not used, because each would carry credentials away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import socket
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from agent.lib.certificates import HttpTrust
from agent.lib.http_answers import AnswerBounds, AnswerReader, HttpAnswer, HttpError, HttpFault
from agent.lib.http_target import HttpLogin, masked, secrets_of
from agent.lib.wording import show_address

if TYPE_CHECKING:
    import ssl

_CHUNK = 16 * 1024
"""Bytes that are read at once: as many as a record of TLS holds, so that none is left behind unnoticed."""
_READS = 8
"""Chunks that are read before other connections have their turn."""
_WANTS = {"SSLWantReadError": selectors.EVENT_READ, "SSLWantWriteError": selectors.EVENT_WRITE}
_PATH = re.compile(r"/[!-~]*")

Watch = Callable[[socket.socket, int | None], None]


class Place(NamedTuple):
    """The addresses of a server. They are tried one after the other."""

    host: str
    port: int
    addresses: tuple[str, ...]


Find = Callable[[], Place]


class HttpRequest(Struct, frozen=True):
    """A request; the link adds the host and the login."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def written(self, host: str, login: Mapping[str, str]) -> bytes:
        """Return the request as it is sent. Raises ValueError for a path that would split the request line."""
        if _PATH.fullmatch(self.path) is None:
            raise ValueError("a path is printable ASCII without spaces")
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            f"Host: {host}",
            "User-Agent: coldplate",
            "Accept-Encoding: identity",
            *(f"{name}: {value}" for name, value in (*self.headers, *login.items())),
        ]
        if self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + self.body


class _Stage(Enum):
    IDLE = auto()
    CONNECTING = auto()
    SHAKING = auto()
    SENDING = auto()
    READING = auto()


class HttpLink:
    """A connection to one server. For one thread, except `abort`. Without `trust` there is no TLS.

    `find` gives the place of the server; it is called for each connection, and may raise HttpError. `watch` is called
    with the socket and what it waits for, and with None when the socket is about to be closed. After an error the
    connection is closed, and the next request opens a new one.
    """

    def __init__(
        self, find: Find, login: HttpLogin, trust: HttpTrust | None, bounds: AnswerBounds, watch: Watch
    ) -> None:
        self._find = find
        self._login = login
        self._trust = trust
        self._bounds = bounds
        self._watch = watch
        self._socket: socket.socket | None = None
        self._reader = AnswerReader(bounds)
        self._stage = _Stage.IDLE
        self._wanted: int | None = None
        self._kept = False
        self._aborted = False
        self._turn = 0
        self.untried = 0
        """The number of the server's addresses that are left to try."""
        self._place = Place("", 0, ())
        self._request = HttpRequest("GET", "/")
        self._authorization: Mapping[str, str] = {}
        self._unsent = memoryview(b"")

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    @property
    def is_connecting(self) -> bool:
        return self._stage is _Stage.CONNECTING

    @property
    def head(self) -> HttpAnswer | None:
        """Status and headers of an answer that is not complete yet."""
        return self._reader.head

    def begin(self, request: HttpRequest) -> HttpAnswer | None:
        """Send a request, over the kept connection if there is one; see `advance`. Raises HttpError."""
        self._request, self._aborted = request, False
        self._kept = self._socket is not None
        return self._go_on(self._begin)

    def advance(self) -> HttpAnswer | None:
        """Do what the socket is ready for; returns the answer once it is complete. Raises HttpError."""
        return self._go_on(self._advance)

    def skip(self) -> None:
        """Give up this address and try the next. Raises HttpError."""
        self._go_on(self._connect)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._drop()
        self._stage = _Stage.IDLE
        self._reader = AnswerReader(self._bounds)

    def abort(self) -> None:
        """Break the connection off, from another thread: a thread that waits for it gets an error."""
        self._aborted = True
        held = self._socket
        if held is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(held, socket.SHUT_RDWR)  # TLS's own method must not be called in another thread

    def masked(self, text: str, path: str) -> str:
        """Return text from the server, without what it repeats of a secret path and of the login."""
        return masked(text, secrets_of(path, self._authorization))

    def _go_on(self, step: Callable[[], HttpAnswer | None]) -> HttpAnswer | None:
        """Make a step; if a kept connection turns out to be dead before any answer, start again on a new one."""
        try:
            return self._try(step)
        except HttpError as error:
            error.head, error.kept = self._reader.head, self._kept
            outdated = self._is_outdated() and error.fault is HttpFault.UNREACHABLE
            self.close()
            if not outdated:
                raise
        self._kept = False
        return self._go_on(self._begin)

    def _try(self, step: Callable[[], HttpAnswer | None]) -> HttpAnswer | None:
        while True:
            try:
                return step()
            except ValueError as error:  # TLS: no certificate can name the host; or a path that cannot be sent
                raise HttpError(HttpFault.UNREACHABLE, str(error)) from error
            except OSError as error:
                if self._stage is not _Stage.CONNECTING or not self.untried:
                    text = error.strerror or str(error) or type(error).__name__
                    raise HttpError(HttpFault.UNREACHABLE, text) from error
            step = self._connect

    def _is_outdated(self) -> bool:
        """Return whether the server may have closed the kept connection without having seen the request."""
        unanswered = not self._reader.begun and self._stage in (_Stage.SENDING, _Stage.READING)
        return self._kept and unanswered and not self._aborted

    def _begin(self) -> HttpAnswer | None:
        if self._socket is not None:
            self._write()
            return self._advance()
        try:
            self._authorization = self._login.authorization()
        except ValueError as error:
            raise HttpError(HttpFault.UNREADABLE, f"cannot read the credentials: {error}") from error
        self._place = self._find()
        self._write()
        self.untried = len(self._place.addresses)
        if not self.untried:
            raise HttpError(HttpFault.UNREACHABLE, f"{self._place.host}: unknown host")
        self._connect()
        return None

    def _write(self) -> None:
        host, port = self._place.host, self._place.port
        usual = port == (80 if self._trust is None else 443)
        written = self._request.written(show_address(host, None if usual else port), self._authorization)
        self._unsent = memoryview(written)
        self._stage = _Stage.SENDING

    def _connect(self) -> None:
        self._drop()
        addresses = self._place.addresses
        address = addresses[self._turn % len(addresses)]
        self._turn += 1  # the next attempt, if there is one, uses the next address
        self.untried -= 1
        self._stage = _Stage.CONNECTING
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex((address, self._place.port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, os.strerror(code))
        self._want(selectors.EVENT_WRITE)

    def _drop(self) -> None:
        held, self._socket = self._socket, None
        if held is not None:
            self._forget(held)
            held.close()

    def _advance(self) -> HttpAnswer | None:
        if self._stage is _Stage.CONNECTING:
            self._connected()
        if self._stage is _Stage.SHAKING:
            self._shake()
        if self._stage is _Stage.SENDING:
            self._send()
        return self._read() if self._stage in (_Stage.READING, _Stage.IDLE) else None

    def _connected(self) -> None:
        held = self._held
        code = held.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        self._turn -= 1  # this address is the good one
        if self._trust is None:
            self._stage = _Stage.SENDING
            return
        context = self._trust.context()
        self._stage = _Stage.SHAKING
        self._forget(held)
        name = self._login.server_name or self._place.host
        self._socket = context.wrap_socket(held, server_hostname=name, do_handshake_on_connect=False)

    def _shake(self) -> None:
        import ssl

        secured: ssl.SSLSocket = self._held  # type: ignore[assignment]  # wrapped a moment ago
        try:
            secured.do_handshake()
        except ssl.SSLCertVerificationError as error:
            text = f"certificate not trusted: {error.verify_message}"
            raise HttpError(HttpFault.UNTRUSTED, text) from error
        except OSError as error:
            self._want(_wanted(error))
        else:
            self._stage = _Stage.SENDING

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[self._held.send(self._unsent) :]
        except OSError as error:
            self._want(_wanted(error, selectors.EVENT_WRITE))
            return
        if self._unsent:
            self._want(selectors.EVENT_WRITE)
        else:
            self._stage = _Stage.READING
            self._want(selectors.EVENT_READ)

    def _read(self) -> HttpAnswer | None:
        for _ in range(_READS):
            try:
                data = self._held.recv(_CHUNK)
            except OSError as error:
                self._want(_wanted(error, selectors.EVENT_READ))
                return None
            if data and self._stage is _Stage.IDLE:
                raise HttpError(HttpFault.GARBAGE, "an unsolicited response")
            answer = self._reader.feed(data) if data else self._reader.hang_up()
            if answer is not None:
                self._stage = _Stage.IDLE
                if answer.closes or not data:
                    self.close()
                return answer
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        return None

    @property
    def _held(self) -> socket.socket:
        assert self._socket is not None, "a link that is not idle has a socket"
        return self._socket

    def _want(self, events: int) -> None:
        if events != self._wanted:
            self._wanted = events
            self._watch(self._held, events)

    def _forget(self, held: socket.socket) -> None:
        self._wanted = None
        self._watch(held, None)


def _wanted(error: OSError, blocked: int = 0) -> int:
    """Return what to wait for before going on; TLS may have to send or read first. Raises any other error again."""
    if blocked and isinstance(error, (BlockingIOError, InterruptedError)):
        return blocked
    try:
        return _WANTS[type(error).__name__]
    except KeyError:
        raise error from None
