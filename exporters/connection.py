"""One client's connection: its socket, what it has said, what it is still to be told.

It moves bytes and knows when it has waited too long; what to answer, and whom to cut off, is the
server's business. Memory per client is bounded: one request and one chunk in, and out a few hundred
bytes of head beside a body that all clients share.
"""

from __future__ import annotations

import socket
import struct
from collections import deque
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

from exporters.wire import Request, RequestReader, Response

_CHUNK = 16 * 1024
_DRAIN_TIMEOUT = 1.0
_DRAIN_LIMIT = 1024 * 1024
_RESET = struct.pack("ii", 1, 0)


class Phase(Enum):
    """What a connection waits for."""

    READING = "reading"  # for a request, or the rest of one
    WRITING = "writing"  # for the client to take the response
    DRAINING = "draining"  # for the client to hang up, after our last word


class Timeouts(NamedTuple):
    """All in seconds."""

    idle: float
    request: float
    write: float


class Connection:
    """The state of one connection. `now` is always the server's clock."""

    __slots__ = (
        "_drained",
        "_last",
        "_out",
        "_reader",
        "_timeouts",
        "deadline",
        "moved",
        "peer",
        "phase",
        "since",
        "sock",
    )

    def __init__(self, sock: socket.socket, peer: str, timeouts: Timeouts, now: float) -> None:
        self.sock = sock
        self.peer = peer
        self.phase = Phase.READING
        self.since = now  # of the last complete request, or of the connect
        self.moved = now  # when the client last took a byte of a response
        self.deadline = now + timeouts.idle
        self._timeouts = timeouts
        self._reader = RequestReader()
        self._out: deque[memoryview] = deque()
        self._last = False
        self._drained = 0

    @property
    def half_asked(self) -> bool:
        """Whether the client has begun a request and not ended it."""
        return self.phase is Phase.READING and self._reader.begun

    def receive(self, now: float) -> bool:
        """Take what the client has sent. False when it has hung up. Raises OSError."""
        try:
            data = self.sock.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return True
        if not data:
            return False
        if self.phase is Phase.DRAINING:
            self._drained += len(data)
            return self._drained <= _DRAIN_LIMIT
        if not self._reader.begun:
            self.deadline = now + self._timeouts.request
        self._reader.feed(data)
        return True

    def next_request(self) -> Request | None:
        """The next complete request. Raises RefusedError."""
        return self._reader.next()

    def answer(self, response: Response, now: float, *, keep_alive: bool, with_body: bool) -> None:
        """Queue a response; nothing further is read before it is gone."""
        self.phase = Phase.WRITING
        self.since = self.moved = now
        self.deadline = now + self._timeouts.write
        self._last = not keep_alive
        self._out.append(memoryview(response.head(keep_alive)))
        if with_body and response.body:
            self._out.append(memoryview(response.body))

    def flush(self, now: float) -> bool:
        """Send what the client takes. True when everything is gone. Raises OSError."""
        while self._out:
            try:
                sent = self.sock.sendmsg(self._out)
            except (BlockingIOError, InterruptedError):
                return False
            self.moved = now
            while self._out and sent >= len(self._out[0]):
                sent -= len(self._out.popleft())
            if sent:
                self._out[0] = self._out[0][sent:]
        return True

    def turn(self, now: float) -> None:
        """After a response is gone: wait for the next request, or for the client to hang up.

        Closing at once while the client still sends would make the kernel answer with a reset, which
        can destroy the response on its way.
        """
        if self._last:
            self.phase = Phase.DRAINING
            self.deadline = now + _DRAIN_TIMEOUT
            self.sock.shutdown(socket.SHUT_WR)
            return
        self.phase = Phase.READING
        self.since = now
        self.deadline = now + (self._timeouts.request if self._reader.begun else self._timeouts.idle)

    def yield_turn(self, now: float) -> None:
        """Let the other clients have theirs first: a further request is looked at once the socket can be written."""
        if self.phase is Phase.READING:
            self.phase = Phase.WRITING
            self.moved = now

    def end_by(self, deadline: float) -> None:
        """Make the response that is on its way the last one, and let it be gone by then."""
        self._last = True
        self.deadline = min(self.deadline, deadline)

    def close(self) -> None:
        """Hang up; a response that the client did not take is dropped from the kernel's buffers, too."""
        self._out.clear()
        with suppress(OSError):
            if self.phase is Phase.WRITING:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        with suppress(OSError):
            self.sock.close()
