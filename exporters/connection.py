"""One client's connection: its transport, what it has sent, and what remains to be sent to it.

It moves bytes and knows when it has waited too long; what to answer, and which client to close, is the
server's business. Memory per client is bounded: one request and one chunk in, and out a few hundred
bytes of head beside a body that all clients share.
"""

import socket
import struct
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum

from exporters.deferred import Deferred
from exporters.gate import CHUNK, ClientTransport, HandshakeRefusedError
from exporters.http_messages import GO_AHEAD, Request, RequestReader, Response

_MAX_SENT_AT_ONCE = 128 * 1024
"""Bytes sent to a client before the others have their turn: some tens of microseconds."""

IDLE_TIMEOUT_SECONDS = 30.0
"""Seconds between two requests, after which a client is disconnected."""
REQUEST_TIMEOUT_SECONDS = 10.0
"""Seconds in which a request, or a handshake, has to be complete."""
WRITE_TIMEOUT_SECONDS = 10.0
"""Seconds in which a response has to be taken."""
_DRAIN_TIMEOUT_SECONDS = 1.0
_DRAIN_LIMIT = 1024 * 1024
_RESET = struct.pack("ii", 1, 0)


class ConnectionState(Enum):
    """The event for which a connection waits."""

    SHAKING = "shaking hands"  # for the client to complete the handshake of TLS
    READING = "reading"  # for a request, or the rest of one
    WAITING = "waiting"  # for an answer that is not ready
    WRITING = "writing"  # for the client to take the response
    DRAINING = "draining"  # for the client to close the connection, after our last response


class Connection:
    """The state of one connection. `now` is always the server's clock."""

    def __init__(self, transport: ClientTransport, peer: str, now: float) -> None:
        self.transport = transport
        self.sock = transport.sock
        self.peer = peer
        self.phase = ConnectionState.SHAKING if transport.shaking else ConnectionState.READING
        self.since = now  # time of the last complete request, or of the connect
        self.deadline = now + (REQUEST_TIMEOUT_SECONDS if transport.shaking else IDLE_TIMEOUT_SECONDS)
        self.answers = 0  # number of answers sent to the client
        self.answered = now  # time of the last answer
        self.moved = now  # time when it last took a part of one
        self.cost = 0.0  # seconds of the server's time that it has taken lately
        self.pending: Deferred | None = None
        self.kept = True  # whether it may have another request after this one
        self._reader = RequestReader()
        self._out: deque[memoryview] = deque()
        self.body = b""  # what is kept in memory until the client has taken it
        self._last = False
        self._with_body = True
        self._drained = 0

    @property
    def has_partial_request(self) -> bool:
        """Whether the client has begun a request but not completed it."""
        return self.phase is ConnectionState.READING and self._reader.begun

    @property
    def through(self) -> bool:
        """Whether all of the response has been sent."""
        return not self._out and not self.transport.blocked

    def shake(self, now: float) -> None:
        """Go on with the handshake; then wait for a request, or for a client that was refused to go. Raises OSError."""
        try:
            self.transport.shake()
        except HandshakeRefusedError:
            self._last = True
            self._leave(now)
            raise
        if not self.transport.shaking:
            self.phase = ConnectionState.READING
            self.deadline = now + IDLE_TIMEOUT_SECONDS

    def receive(self, now: float) -> bool:
        """Read what the client has sent. False if it has closed the connection. Raises OSError."""
        data = self.transport.receive()
        if data is None:
            return True
        if not data:
            return False
        if self.phase is ConnectionState.DRAINING:
            self._drained += len(data)
            return self._drained <= _DRAIN_LIMIT
        if self.phase is ConnectionState.READING and not self._reader.begun:
            self.deadline = now + REQUEST_TIMEOUT_SECONDS
        self._reader.feed(data)
        return True

    @property
    def is_input_full(self) -> bool:
        """Whether the client has already sent as much as is buffered while it waits for an answer."""
        return self._reader.held >= CHUNK

    def next_request(self) -> Request | None:
        """Return the next complete request. Raises RefusedError, and OSError."""
        request = self._reader.next()
        if request is None and self._reader.takes_go_ahead():
            self.transport.send([memoryview(GO_AHEAD)])
        return request

    def ask(self, request: Request, now: float) -> None:
        self.since = now
        self._last = not (request.keep_alive and self.kept)
        self._with_body = request.method != "HEAD"

    def wait(self, answer: Deferred, now: float) -> None:
        self.phase = ConnectionState.WAITING
        self.pending = answer
        self.deadline = now + answer.timeout

    def answer(self, response: Response, now: float, *, last: bool = False) -> None:
        """Queue the response to the request; no further request is read until it has been sent, or at all if `last`."""
        if last:
            self.since = now
            self._last = self._with_body = True
        self._abandon()
        self.phase = ConnectionState.WRITING
        self.deadline = now + WRITE_TIMEOUT_SECONDS
        self.answered = self.moved = now
        self.answers += 1
        self._out.append(memoryview(response.head(not self._last)))
        if self._with_body and response.body:
            self.body = response.body
            self._out.append(memoryview(response.body))

    def flush(self, now: float) -> bool:
        """Send what the client takes, up to one chunk. True if everything has been sent. Raises OSError."""
        room = _MAX_SENT_AT_ONCE
        while self._out and room > 0:
            sent = self.transport.send([piece[:room] for piece in self._out])
            if not sent:
                return False
            room -= sent
            self.moved = now
            while self._out and sent >= len(self._out[0]):
                sent -= len(self._out.popleft())
            if sent:
                self._out[0] = self._out[0][sent:]
        if not self._out and self.transport.blocked:
            self.transport.send(())
        if not self.through:
            return False
        self.body = b""
        return True

    def turn(self, now: float) -> None:
        """Wait, after a response has been sent, for the next request, or for the client to close the connection.

        Closing at once while the client still sends would make the kernel answer with a reset, which
        can destroy the response on its way.
        """
        if self._last:
            self._leave(now)
            return
        self.since = now
        if self._reader.begun:
            # Let the other clients have their turn first: what has arrived is read once the socket can be written.
            self.deadline = now + REQUEST_TIMEOUT_SECONDS
        else:
            self.phase = ConnectionState.READING
            self.deadline = now + IDLE_TIMEOUT_SECONDS

    def _leave(self, now: float) -> None:
        self.phase = ConnectionState.DRAINING
        self.deadline = now + _DRAIN_TIMEOUT_SECONDS
        self.transport.end()

    def read_on(self) -> None:
        """Read what the client has sent in the meantime."""
        self.phase = ConnectionState.READING

    def end_after_response(self) -> None:
        """Make the response to the current request, or to the one that has begun, the last one."""
        self._last, self.kept = True, False

    def end_by(self, deadline: float) -> None:
        """Make the current response the last one, to be sent by then."""
        self._last = True
        self.deadline = min(self.deadline, deadline)

    def close(self, hang_up: Callable[[socket.socket], None]) -> None:
        """Have the socket closed; a response that the client did not take is dropped from the kernel's buffers, too."""
        self._abandon()
        unsent, self.body = not self.through, b""
        self._out.clear()
        with suppress(OSError):
            if unsent:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with suppress(OSError):
            hang_up(self.sock)

    def _abandon(self) -> None:
        if self.pending is not None:
            self.pending.abandon()
            self.pending = None
