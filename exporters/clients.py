"""The connected clients: each is read, answered and closed in its turn; under pressure one is evicted.

In one turn a client gets one request answered, or one chunk of its response, and the cheapest clients of the last
seconds come first. An error with a client affects only that client. When slots, descriptors or memory run out, the
client goes that costs most and loses least.
"""

import logging
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from http import HTTPStatus

from agent.lib.logs import LogOnce
from exporters.connection import Connection, ConnectionState
from exporters.deferred import Answer, Deferred
from exporters.gate import PASS, HandshakeRefusedError, PortGate
from exporters.http_messages import FAILED, RefusedError, Request, Response

SLOW_SECONDS = 0.5
"""Seconds with one answer after which a client may lose its place to another."""

STALLED_SECONDS = 0.1
"""The same for one that takes nothing of its response at all: a scraper takes some every few milliseconds."""

_IDLE = frozenset({ConnectionState.SHAKING, ConnectionState.READING, ConnectionState.DRAINING})


def victim(connections: Iterable[Connection], now: float) -> Connection | None:
    """Return the client that makes room for a new one; None if every client is about to complete its first answer.

    First the one longest without a complete request; then the one that has been longest with one answer, waiting for it
    or taking it too slowly; then the one that got the most answers and still wants more. Where most have never asked
    for anything, one of these goes: a scraper is idle for many seconds, in which a flood would push it out.
    """
    connections = tuple(connections)
    idle, slow, greedy = [], [], []
    for connection in connections:
        if connection.phase in _IDLE:
            idle.append(connection)
        elif now - connection.since > SLOW_SECONDS or (
            connection.phase is ConnectionState.WRITING and now - connection.moved > STALLED_SECONDS
        ):
            slow.append(connection)
        elif connection.answers > 1:
            greedy.append(connection)
    newcomers = [c for c in idle if not c.answers]
    if len(newcomers) * 2 > len(connections):
        idle = newcomers
    if idle or slow:
        return min(idle or slow, key=lambda c: c.since)
    return max(greedy, key=lambda c: c.answers, default=None)


def clients_over_memory(connections: Iterable[Connection], limit: int) -> list[Connection]:
    """Return the clients to disconnect so that the bodies not sent yet stay within `limit` bytes.

    Clients of one page share its body, which counts once. The newest pages stay, at least one.
    """
    kept_bytes: dict[int, int] = {}
    over_limit = []
    for connection in sorted(connections, key=lambda c: c.answered, reverse=True):
        body = connection.body
        if not body or id(body) in kept_bytes:
            continue
        if kept_bytes and sum(kept_bytes.values()) + len(body) > limit:
            over_limit.append(connection)
        else:
            kept_bytes[id(body)] = len(body)
    return over_limit


logger = logging.getLogger(__name__)

_HELD = 24 * 1024 * 1024
"""Bytes of bodies that slow clients may keep in memory, all together."""

_HALF_LIFE_SECONDS = 1.0
"""Seconds in which half of what a client has cost is forgotten."""

_SHAKING_SHARE = 0.4
"""The part of a turn for handshakes: some two of them."""

_INSTANT_SECONDS = 1e-6
"""The time for handshakes after connected clients have used up the turn: one step."""

_TOO_SLOW = Response(HTTPStatus.REQUEST_TIMEOUT, b"the request did not end in time\n")
_STOPPING = Response(HTTPStatus.SERVICE_UNAVAILABLE, b"the agent stops\n")

Handler = Callable[[Request], Answer]


class Clients:
    """For the server's thread only; `nudge` makes that thread call `deliver`, and may be called by any thread.

    `hang_up` closes a socket. `gate` decides who may ask.
    """

    def __init__(
        self,
        handler: Handler,
        clock: Callable[[], float],
        once: LogOnce,
        *,
        nudge: Callable[[], None],
        hang_up: Callable[[socket.socket], None],
        gate: PortGate,
    ) -> None:
        self.connections: set[Connection] = set()
        self._handler = handler
        self._clock = clock
        self._once = once
        self._nudge = nudge
        self._hang_up = hang_up
        self._gate = gate
        self._edition = self._gate.edition
        self._ready: deque[tuple[Connection, Deferred, Request]] = deque()
        self._halved = 0.0
        self._attended: Connection | None = None

    @property
    def due(self) -> float:
        """The moment at which the first of them has waited too long; minus infinity if there is something to do."""
        if self._ready:
            return float("-inf")
        return min((connection.deadline for connection in self.connections), default=float("inf"))

    @property
    def busy(self) -> bool:
        """Whether any client has not been sent all of a response."""
        return any(connection.phase is ConnectionState.WRITING for connection in self.connections)

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Use this selector to wait for clients from now on.

        A client that was being served when the thread failed is disconnected: its request may be lost, and no answer
        would come.
        """
        self._selector = selector
        if self._attended is not None:
            self._close(self._attended, "of an error in the server")
            self._attended = None
        for connection in tuple(self.connections):
            self._attend(connection, self._watch)

    def admit(self, sock: socket.socket, peer: str, now: float) -> None:
        """Add a new client; usually its request has already arrived.

        A handshake costs a hundred times what a request does, and most of a flood lose their places before their turn:
        it is left to that.
        """
        sock.setblocking(False)
        connection = Connection(self._gate.transport(sock), peer, now)
        self.connections.add(connection)
        self._attend(connection, self._watch if connection.transport.shaking else self._serve)

    def serve(self, ready: list[Connection], seconds: float) -> None:
        """Serve those that can be read or written, for `seconds` seconds; the rest wait for the next turn.

        Connected clients come before new ones: a handshake costs as much as several scrapes, and any client can start
        one. So all handshakes share a small part of the turn, which no scraper notices, but never less than one step.
        """
        until = self._clock() + seconds
        connected = [c for c in ready if c.phase is not ConnectionState.SHAKING]
        shaking = [c for c in ready if c.phase is ConnectionState.SHAKING]
        self._serve_until(until, sorted(connected, key=lambda c: c.cost))
        until = max(min(until, self._clock() + seconds * _SHAKING_SHARE), self._clock() + _INSTANT_SECONDS)
        self._serve_until(until, sorted(shaking, key=_by_promise))

    def _serve_until(self, until: float, ready: list[Connection]) -> None:
        for connection in ready:
            began = self._clock()
            if began >= until:
                break
            self._attend(connection, self._serve)
            connection.cost += self._clock() - began

    def deliver(self) -> None:
        while self._ready:
            connection, answer, request = self._ready.popleft()
            if connection.pending is not answer or answer.response is None:
                continue
            if answer.response is PASS:
                self._attend(connection, partial(self._reply, request=request, ask=self._handler))
            else:
                self._attend(connection, partial(self._respond, response=answer.response))
        if self._edition != self._gate.edition:
            self._edition = self._gate.edition
            self._end_connections()

    def expire(self, now: float) -> None:
        """Disconnect those that take too long."""
        for connection in [c for c in self.connections if c.deadline <= now]:
            self._attend(connection, self._end_wait)
        if now - self._halved >= _HALF_LIFE_SECONDS:
            self._halved = now
            for connection in self.connections:
                connection.cost /= 2

    def spare(self, connection: Connection) -> None:
        """Disconnect a client that can be spared, unless that is done already."""
        if connection in self.connections:
            self._close(connection, "another client needs its slot")

    def evict(self, now: float) -> bool:
        """Disconnect the client that can be spared; returns whether there was one."""
        spared = victim(self.connections, now)
        if spared is not None:
            self.spare(spared)
        return spared is not None

    def dismiss(self, until: float) -> None:
        """Accept no more requests; clients that are being answered have until then to take the answer."""
        for connection in tuple(self.connections):
            connection.end_by(until)
            if connection.phase is ConnectionState.WAITING:
                self._attend(connection, partial(self._respond, response=_STOPPING))
                connection.end_by(until)
            if connection.phase is not ConnectionState.WRITING or connection.through:
                self._close(connection, "the server is stopping")

    def hang_up(self) -> None:
        for connection in tuple(self.connections):
            self._close(connection, "the server is stopping")

    def _end_connections(self) -> None:
        """Keep no connection from before: those that ask for something have this last answer."""
        for connection in tuple(self.connections):
            idle = connection.phase is ConnectionState.READING and not connection.has_partial_request
            if idle or connection.phase is ConnectionState.SHAKING:
                self._close(connection, "the web configuration has changed")
            else:
                connection.end_after_response()

    def _answered(self, connection: Connection, answer: Deferred, request: Request) -> None:
        """Note that a deferred answer is ready. For any thread."""
        self._ready.append((connection, answer, request))
        self._nudge()

    def _attend(self, connection: Connection, action: Callable[[Connection], None]) -> None:
        """Do something for a client, unless it has just lost its place."""
        if connection not in self.connections:
            return
        self._attended = connection
        try:
            action(connection)
        except OSError as error:
            self._close(connection, str(error))
        except Exception as error:
            self._close(connection, "of an error in the server")
            self._once.defect(self._clock(), error, "serving %s failed", connection.peer)
        self._attended = None

    def _serve(self, connection: Connection) -> None:
        if connection.phase is ConnectionState.SHAKING and not self._shake(connection):
            self._watch(connection)
            return
        if connection.phase is ConnectionState.WRITING:
            self._advance(connection)
        elif not connection.receive(self._clock()):
            if connection.phase is ConnectionState.WAITING:  # it has sent all that it will, and may want its answer
                self._selector.unregister(connection.sock)
            else:
                self._close(connection, "the client disconnected")
        elif connection.phase is ConnectionState.READING:
            self._converse(connection)
        elif connection.phase is ConnectionState.WAITING and connection.is_input_full:
            self._selector.unregister(connection.sock)

    def _shake(self, connection: Connection) -> bool:
        """Go on with the handshake; returns whether it is over: a request may have come with its end."""
        try:
            connection.shake(self._clock())
        except HandshakeRefusedError as refused:
            logger.debug("refusing %s: %s", connection.peer, refused)
        return connection.phase is ConnectionState.READING

    def _advance(self, connection: Connection) -> None:
        if connection.through:  # with its last response; since then the others had their turn
            connection.read_on()
            self._converse(connection)
        elif connection.flush(self._clock()):
            connection.turn(self._clock())
            self._watch(connection)

    def _converse(self, connection: Connection) -> None:
        """Answer the next request, if there is one."""
        try:
            request = connection.next_request()
        except RefusedError as refused:
            logger.debug("refusing a request of %s: %s", connection.peer, refused)
            self._respond(connection, refused.response, last=True)
            return
        if request is None:
            self._watch(connection)
            return
        connection.ask(request, self._clock())
        self._reply(connection, request, lambda r: self._gate.admit(r, connection.peer) or self._handler(r))

    def _reply(self, connection: Connection, request: Request, ask: Handler) -> None:
        answer = self._handle(request, ask)
        if isinstance(answer, Response):
            self._respond(connection, answer)
        else:
            connection.wait(answer, self._clock())
            self._watch(connection)
            answer.listen(partial(self._answered, connection, answer, request))

    def _handle(self, request: Request, ask: Handler) -> Answer:
        try:
            answer = ask(request)
        except Exception as error:
            self._once.defect(self._clock(), error, "answering %s %s failed", request.method, request.path)
            answer = FAILED
        logger.debug("%s %s %s", request.method, request.path, getattr(answer, "status", "later"))
        return answer

    def _end_wait(self, connection: Connection) -> None:
        if connection.has_partial_request:
            self._respond(connection, _TOO_SLOW, last=True)
        elif connection.pending is not None:
            self._respond(connection, connection.pending.late)
        else:
            self._close(connection, f"it was {connection.phase.value} for too long")

    def _respond(self, connection: Connection, response: Response, *, last: bool = False) -> None:
        connection.answer(self._gate.add_headers(response), self._clock(), last=last)
        if connection.flush(self._clock()):
            connection.turn(self._clock())
        else:
            for reader in clients_over_memory(self.connections, _HELD):
                self._close(reader, "slow readers hold too many pages in memory")
        if connection in self.connections:
            self._watch(connection)

    def _watch(self, connection: Connection) -> None:
        writes = connection.phase is ConnectionState.WRITING or connection.transport.blocked
        events = selectors.EVENT_WRITE if writes else selectors.EVENT_READ
        key = self._selector.get_map().get(connection.sock)
        if key is not None and key.data is not connection:  # left by an earlier connection with the same descriptor
            self._selector.unregister(connection.sock)
            key = None
        if key is None:
            self._selector.register(connection.sock, events, connection)
        elif key.events != events:
            self._selector.modify(connection.sock, events, connection)

    def _close(self, connection: Connection, reason: str) -> None:
        logger.debug("closing %s because %s", connection.peer, reason)
        self.connections.discard(connection)
        with suppress(Exception):  # even if the selector fails, the socket must be closed
            self._selector.unregister(connection.sock)
        connection.close(self._hang_up)


def _by_promise(connection: Connection) -> tuple[bool, float]:
    """Return the order of handshakes: those under way, whose first half would be lost; then the newest.

    In a flood the oldest lose their places: to serve them first would be to work for those who leave, while a scraper
    that has just come waits for all of them.
    """
    return connection.cost == 0.0, -connection.since
