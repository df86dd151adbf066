"""One kept HTTP connection to a receiver, over which every exchange ends by a set time.

Only POST is ever sent, to the configured host alone: redirects are not followed and proxies of the environment are
not used, because each would carry credentials away. The socket's own timeout begins anew with every byte, so a server
that trickles could hold an exchange for ever; here the time that is left is set before each operation.
"""

from __future__ import annotations

import contextlib
import io
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, cast

from agent.lib.credentials import certificates, masked, secrets_of
from agent.lib.textfile import ReadError
from alerts.notify.target import ReceiverTarget

if TYPE_CHECKING:  # these cost memory, so they are loaded only where there is something to send
    import http.client

MAX_BODY = 64 * 1024
"""Bytes of an answer that are read at most."""
DENIED = (401, 403)


class UnreachableError(Exception):
    """There was no answer, or none that can be used. The text says why."""


class ReceiverAnswer(NamedTuple):
    """A status, the text that came with it or the place that it points to, and the server's date if it told one."""

    status: int
    text: str
    date: str = ""


class ReceiverLink:
    """The way to a target's path. `clock` tells monotonic seconds. For one thread, but for `abort`."""

    def __init__(self, target: ReceiverTarget, path: str, clock: Callable[[], float]) -> None:
        self._target = target
        self._path = path
        self._clock = clock
        self._connection: http.client.HTTPConnection | None = None
        self._stream: _Timed | None = None
        self._headers: dict[str, str] = {}

    def post(self, body: bytes, until: float) -> ReceiverAnswer:
        """Send JSON and read the answer, by a time on the monotonic clock. Raises UnreachableError."""
        import http.client

        kept = self._connection is not None
        try:
            answer = self._exchange(body, until)
        except TimeoutError as error:
            self.close()
            raise UnreachableError(f"no answer within {self._target.timeout:g} s") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.close()
            if kept and isinstance(error, OSError):  # the server may close what was idle: once more, on a new one
                return self.post(body, until)
            raise UnreachableError(_describe(error)) from error
        if answer.status in DENIED:
            self.close()
            if kept:  # the token or password may have been changed since
                return self.post(body, until)
        return answer

    def close(self) -> None:
        connection, self._connection, self._stream = self._connection, None, None
        if connection is not None:
            connection.close()

    def masked(self, text: str) -> str:
        """What came back, without what it repeats of the path and the login."""
        return masked(text, secrets_of(self._target.path, self._headers))

    def abort(self) -> None:
        """End an exchange under way, from another thread."""
        stream = self._stream
        if stream is not None:
            stream.abort()

    def _exchange(self, body: bytes, until: float) -> ReceiverAnswer:
        if self._connection is None or self._stream is None:
            self._connection = self._connect(until)
        connection, stream = self._connection, self._stream
        assert stream is not None, "a connection has a stream"
        stream.until = until
        connection.request("POST", self._path, body=body, headers=self._headers)
        with connection.getresponse() as response:
            text = self._read(response)
            if response.will_close or len(text) > MAX_BODY:
                self.close()  # what is left unread would be taken for the next answer
            if 300 <= response.status < 400:
                return ReceiverAnswer(response.status, response.headers.get("Location", ""))
            date = response.headers.get("Date", "")
        return ReceiverAnswer(response.status, text[:MAX_BODY].decode("utf-8", "replace"), date)

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        """The body, or nothing where it does not come: the status has already told what matters."""
        import http.client

        try:
            return response.read(MAX_BODY + 1)
        except (OSError, http.client.HTTPException):
            self.close()
            return b""

    def _connect(self, until: float) -> http.client.HTTPConnection:
        import http.client

        target = self._target
        left = _left(until, self._clock)
        self._headers = {"Content-Type": "application/json", "User-Agent": "coldplate", **target.authorization()}
        raw = socket.create_connection((target.host, target.port), timeout=left)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.settimeout(_left(until, self._clock))
            wrapped = self._wrap(raw) if target.tls else raw
        except BaseException:
            raw.close()
            raise
        self._stream = _Timed(wrapped, until, self._clock)
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.default_port = 443 if target.tls else 80
        connection.auto_open = 0  # it would open a connection without TLS
        connection.sock = cast("socket.socket", self._stream)
        return connection

    def _wrap(self, raw: socket.socket) -> socket.socket:
        """TLS; the context is made anew for each connection, so that a renewed ca_file is taken up."""
        import ssl

        try:
            trusted = certificates(self._target.ca_file) if self._target.ca_file else None
            context = ssl.create_default_context(cadata=trusted)
        except ReadError as error:
            raise UnreachableError(f"ca_file {error}") from error
        except OSError as error:  # also what ssl raises
            raise UnreachableError(f"ca_file {self._target.ca_file}: {error.strerror or error}") from error
        if not self._target.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            return context.wrap_socket(raw, server_hostname=self._target.host)
        except ssl.SSLCertVerificationError as error:
            remedy = "set ca_file to the issuer's certificate, or verify: false"
            raise UnreachableError(f"certificate not trusted: {error.verify_message}; {remedy}") from error


def _left(until: float, clock: Callable[[], float]) -> float:
    left = until - clock()
    if left <= 0:
        raise TimeoutError("out of time")
    return left


def _describe(error: Exception) -> str:
    tells_its_file = isinstance(error, ReadError) or (isinstance(error, OSError) and error.filename)
    return str(error) if tells_its_file else f"{type(error).__name__}: {error}"


class _Timed:
    """A connected socket, as far as `http.client` needs one, whose operations all end by `until`."""

    def __init__(self, sock: socket.socket, until: float, clock: Callable[[], float]) -> None:
        self.until = until
        self._sock = sock
        self._clock = clock

    def arm(self) -> None:
        """Allow the next operation the time that is left. Raises TimeoutError if there is none."""
        self._sock.settimeout(_left(self.until, self._clock))

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            self.arm()
            view = view[self._sock.send(view) :]

    def makefile(self, mode: str) -> io.BufferedReader:
        del mode  # it is read from, only
        return io.BufferedReader(_TimedReader(self, self._sock.makefile("rb", buffering=0)))

    def close(self) -> None:
        self._sock.close()

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


class _TimedReader(io.RawIOBase):
    def __init__(self, owner: _Timed, raw: io.RawIOBase) -> None:
        self._owner = owner
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int | None:
        self._owner.arm()
        return self._raw.readinto(buffer)  # type: ignore[arg-type]  # a buffer, which 3.10 has no name for

    def close(self) -> None:
        self._raw.close()
        super().close()
