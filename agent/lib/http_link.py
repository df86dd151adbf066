"""One persistent HTTP connection that never waits: it does what can be done now, and says what it waits for.

The owner of many waits for all at once; the owner of one waits through `HttpClient`. Redirects are not followed and
proxies of the environment are not used, because each would carry credentials away.
"""

import contextlib
import errno
import os
import re
import select
import socket
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec import Struct

from agent.lib.certificates import HttpTrust
from agent.lib.http_answers import AnswerBounds, AnswerReader, HttpAnswer, HttpError, HttpFault
from agent.lib.http_target import HttpLogin, masked, secrets_of
from agent.lib.wording import show_address

_T = TypeVar("_T")
_CHUNK = 16 * 1024
"""Bytes that are read at once: as many as a record of TLS holds, so that none is left behind unnoticed."""
_READS = 8
"""Chunks that are read before other connections have their turn."""
_WANTS = {"SSLWantReadError": select.POLLIN, "SSLWantWriteError": select.POLLOUT}
_PATH = re.compile(r"/[!-~]*")
ACCEPT_ENCODING = "Accept-Encoding"


class Place(NamedTuple):
    """The addresses of a server. They are tried one after the other."""

    host: str
    port: int
    addresses: tuple[str, ...]


Find = Callable[[], Place]


class HttpRequest(Struct, frozen=True):
    """A request; the link adds the host and the login. Unless `headers` say otherwise, it accepts no compression."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def written(self, host: str, login: Mapping[str, str]) -> bytes:
        """Return the request as it is sent. Raises ValueError for a path that would split the request line."""
        if _PATH.fullmatch(self.path) is None:
            raise ValueError("a path is printable ASCII without spaces")
        headers = {"Host": host, "User-Agent": "coldplate", ACCEPT_ENCODING: "identity", **dict(self.headers), **login}
        lines = [f"{self.method} {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if self.body:
            lines.append(f"Content-Length: {len(self.body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii") + self.body


_Steps = Generator["HttpAnswer | None", None, _T]
"""Steps of an exchange: each ends where something has to be waited for, with None, or with the answer."""


class HttpLink:
    """A connection to one server. For one thread, except `abort`. Without `trust` there is no TLS.

    `find` gives the place of the server; it is called for each connection, and may raise HttpError. After an error the
    connection is closed, and the next request opens a new one.
    """

    def __init__(self, find: Find, login: HttpLogin, trust: HttpTrust | None, bounds: AnswerBounds) -> None:
        self._find = find
        self._login = login
        self._trust = trust
        self._bounds = bounds
        self._socket: socket.socket | None = None
        self._reader = AnswerReader(bounds)
        self._steps: Iterator[HttpAnswer | None] = iter(())
        self.events = select.POLLIN
        """What an open connection waits for, as `select.poll` takes it."""
        self._kept = False
        self._aborted = False
        self._turn = 0
        self.is_connecting = False
        self.untried = 0
        """The number of the server's addresses that are left to try."""
        self._place = Place("", 0, ())
        self._authorization: Mapping[str, str] = {}

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        """Return the descriptor of the connection, which is open."""
        return self._held.fileno()

    @property
    def head(self) -> HttpAnswer | None:
        """Status and headers of an answer that is not complete yet."""
        return self._reader.head

    def begin(self, request: HttpRequest) -> HttpAnswer | None:
        """Send a request, over the kept connection if there is one; see `advance`. Raises HttpError."""
        self._aborted = False
        self._steps = self._exchange(request)
        return self.advance()

    def advance(self) -> HttpAnswer | None:
        """Do what the socket is ready for; returns the answer once it is complete. Raises HttpError."""
        return self._go_on(self._steps.__next__)

    def skip(self) -> None:
        """Give up this address and try the next. Raises HttpError."""
        assert isinstance(self._steps, Generator)
        self._go_on(partial(self._steps.throw, TimeoutError()))

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        self._drop()
        self._steps = iter(())
        self._reader = AnswerReader(self._bounds)
        self.is_connecting = False

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
        try:
            return step()
        except (HttpError, OSError, ValueError) as error:
            text = getattr(error, "strerror", None) or str(error) or type(error).__name__
            failure = error if isinstance(error, HttpError) else HttpError(HttpFault.UNREACHABLE, text)
            failure.head, failure.kept = self._reader.head, self._kept
            self.close()
            raise failure from error.__cause__ if failure is error else error

    def _exchange(self, request: HttpRequest) -> _Steps[None]:
        """Ask over the kept connection; over a new one without it, or where it turns out to be dead."""
        answer = None
        self._kept = self._socket is not None
        if self._kept:
            written = self._written(request)
            try:
                answer = yield from self._ask(written)
            except OSError:
                if self._reader.begun or self._aborted:
                    raise
        if answer is None:
            self._kept = False
            yield from self._connect()
            answer = yield from self._ask(self._written(request))
        yield answer
        if (yield from self._receive()):  # nothing may come now but the end of the connection
            raise HttpError(HttpFault.GARBAGE, "an unsolicited response")
        raise _broken_off()

    def _written(self, request: HttpRequest) -> bytes:
        host, port = self._place.host, self._place.port
        usual = port == (80 if self._trust is None else 443)
        return request.written(show_address(host, None if usual else port), self._authorization)

    def _connect(self) -> _Steps[None]:
        """Open a connection to the first of the server's addresses that accepts one."""
        try:
            self._authorization = self._login.authorization()
        except ValueError as error:
            raise HttpError(HttpFault.UNREADABLE, f"cannot read the credentials: {error}") from error
        self._place = self._find()
        addresses = self._place.addresses
        if not addresses:
            raise HttpError(HttpFault.UNREACHABLE, f"{self._place.host}: unknown host")
        self.is_connecting = True
        for self.untried in reversed(range(len(addresses))):
            self._turn += 1  # the next attempt, if there is one, uses the next address
            try:
                yield from self._open(addresses[(self._turn - 1) % len(addresses)])
                break
            except OSError:
                if not self.untried:
                    raise
        self._turn -= 1  # this address is the good one
        self.is_connecting = False
        if self._trust is not None:
            yield from self._secure(self._trust)

    def _open(self, address: str) -> _Steps[None]:
        self._drop()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = self._socket.connect_ex((address, self._place.port))
        if code in (0, errno.EINPROGRESS):
            self.events = select.POLLOUT
            yield None
            code = self._held.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))

    def _secure(self, trust: HttpTrust) -> _Steps[None]:
        import ssl

        held, context = self._held, trust.context()
        name = self._login.server_name or self._place.host
        secured = context.wrap_socket(held, server_hostname=name, do_handshake_on_connect=False)
        self._socket = secured
        try:
            yield from self._call(secured.do_handshake)
        except ssl.SSLCertVerificationError as error:
            text = f"certificate not trusted: {error.verify_message}"
            raise HttpError(HttpFault.UNTRUSTED, text) from error

    def _ask(self, written: bytes) -> _Steps[HttpAnswer]:
        """Send a request, and return its answer."""
        unsent = memoryview(written)
        while unsent:
            unsent = unsent[(yield from self._call(partial(self._held.send, unsent), select.POLLOUT)) :]
        self.events = select.POLLIN
        while True:
            for _ in range(_READS):
                data = yield from self._receive()
                answer = self._reader.feed(data) if data else self._reader.hang_up()
                if answer is not None:
                    if answer.closes or not data:
                        self.close()
                    return answer
                if not data:
                    raise _broken_off()
            yield None

    def _receive(self) -> _Steps[bytes]:
        return self._call(partial(self._held.recv, _CHUNK), select.POLLIN)

    def _call(self, call: Callable[[], _T], blocked: int = 0) -> _Steps[_T]:
        """Return what a call of the socket gives, as soon as it need not wait; `blocked` is what it waits for."""
        while True:
            try:
                return call()
            except OSError as error:
                self.events = _events_for(error, blocked)
            yield None

    def _drop(self) -> None:
        held, self._socket = self._socket, None
        if held is not None:
            held.close()

    @property
    def _held(self) -> socket.socket:
        assert self._socket is not None, "a link that is not idle has a socket"
        return self._socket


def _broken_off() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "the server closed the connection")


def _events_for(error: OSError, blocked: int = 0) -> int:
    """Return what to wait for before going on; TLS may have to send or read first. Raises any other error again."""
    if blocked and isinstance(error, (BlockingIOError, InterruptedError)):
        return blocked
    try:
        return _WANTS[type(error).__name__]
    except KeyError:
        raise error from None
