"""A small HTTP/1.1 server that rude clients cannot take down.

One thread and one event loop, because a scraper asks less than once a second, and because a thread for
each connection is what a few hundred half-sent requests use up. Every wait has an end, every buffer a
bound, and when all places are taken the client that has been quiet longest gives up its place, so that
the scraper always finds one. Handlers run in the loop and must be quick: they hand out bytes that are
already there.

It refuses what it does not need: TLS, chunked bodies, upgrades, an access log.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from http import HTTPStatus

from exporters.connection import Connection, Phase, Timeouts
from exporters.listen import BindError, address_of, open_listeners
from exporters.wire import RefusedError, Request, Response

__all__ = ["BindError", "HttpServer"]

logger = logging.getLogger(__name__)

_PIPELINE = 8
"""Requests of one client that are answered before the others have their turn."""

_STALLED = 0.5
"""Seconds without progress after which a client that takes its response too slowly may lose its place."""

_PAUSE = 0.1
_GRACE = 1.0
_LOG_EVERY = 60.0

Handler = Callable[[Request], Response]


class HttpServer:
    """Serves `handler` on every address of `listen`; the empty host means all interfaces, IPv6 and IPv4."""

    def __init__(
        self,
        listen: Sequence[tuple[str, int]],
        handler: Handler,
        *,
        clock: Callable[[], float],
        max_connections: int = 64,
        idle_timeout: float = 30.0,
        request_timeout: float = 10.0,
        write_timeout: float = 10.0,
    ) -> None:
        self._listen = tuple(listen)
        self._handler = handler
        self._clock = clock
        self._limit = max(1, max_connections)
        self._timeouts = Timeouts(idle_timeout, request_timeout, write_timeout)
        self._listeners: list[socket.socket] = []
        self._connections: set[Connection] = set()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._paused_until: float | None = None
        self._complained = float("-inf")

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listener, in the order of `listen`; empty while the server is not running."""
        return [address_of(listener) for listener in self._listeners]

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    def start(self) -> None:
        """Open the listeners and serve them in a thread. Raises BindError."""
        if self._thread is not None:
            raise RuntimeError("the server runs already")
        self._listeners = open_listeners(self._listen)
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._resume()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take no further request, let responses that are on their way finish, within a second, and close."""
        thread = self._thread
        if thread is None:
            return
        self._stopping = True
        self._wake.send(b"\0")
        thread.join()
        self._thread = None
        self._selector.close()
        self._waker.close()
        self._wake.close()

    # Everything below runs in the server's thread.

    def _run(self) -> None:
        while not self._stopping:
            self._step()
        now = self._clock()
        self._pause(now)
        self._paused_until = None
        for listener in self._listeners:
            listener.close()
        self._listeners = []
        for connection in tuple(self._connections):
            if connection.phase is Phase.WRITING:
                connection.end_by(now + _GRACE)
            else:
                self._close(connection, "the server stops")
        while any(connection.phase is Phase.WRITING for connection in self._connections):
            self._step()
        for connection in tuple(self._connections):
            self._close(connection, "the server stops")

    def _step(self) -> None:
        for key, _ in self._selector.select(self._patience(self._clock())):
            if isinstance(key.data, Connection):
                if key.data in self._connections:  # it may have lost its place a moment ago
                    self._serve(key.data)
            elif key.fileobj is self._waker:
                with suppress(BlockingIOError):
                    self._waker.recv(64)
            elif isinstance(key.fileobj, socket.socket) and not self._stopping:
                self._accept(key.fileobj)
        self._expire(self._clock())

    def _patience(self, now: float) -> float | None:
        """Seconds until something is due."""
        due = [connection.deadline for connection in self._connections]
        if self._paused_until is not None:
            due.append(self._paused_until)
        return max(0.0, min(due) - now) if due else None

    def _expire(self, now: float) -> None:
        for connection in [each for each in self._connections if each.deadline <= now]:
            if connection.half_asked:
                self._refuse(connection, Response(HTTPStatus.REQUEST_TIMEOUT, b"the request did not end in time\n"))
            else:
                self._close(connection, f"it was {connection.phase.value} for too long")
        if self._paused_until is not None and now >= self._paused_until:
            self._resume()

    def _accept(self, listener: socket.socket) -> None:
        """Take one client, at another's cost if need be."""
        now = self._clock()
        if len(self._connections) >= self._limit and not self._evict(now):
            self._pause(now)
            return
        try:
            sock, address = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError as error:  # no file descriptors left, above all: the client stays in the kernel's queue
            if now - self._complained >= _LOG_EVERY:
                self._complained = now
                logger.warning("cannot accept connections: %s", error)
            self._pause(now)
            return
        sock.setblocking(False)
        with suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(sock, str(address[0]), self._timeouts, now)
        self._connections.add(connection)
        self._selector.register(sock, selectors.EVENT_READ, connection)
        self._serve(connection)  # the request is usually there already

    def _evict(self, now: float) -> bool:
        """Free the place of the client that has been longest without a complete request."""
        waiting = [each for each in self._connections if each.phase is not Phase.WRITING]
        stalled = [each for each in self._connections if each.phase is Phase.WRITING and now - each.moved > _STALLED]
        if waiting:
            victim = min(waiting, key=lambda each: each.since)
        elif stalled:
            victim = min(stalled, key=lambda each: each.moved)
        else:
            return False
        self._close(victim, "another client needs its place")
        return True

    def _pause(self, now: float) -> None:
        """Leave new clients in the kernel's queue for a moment, rather than spin on what cannot be helped."""
        if self._paused_until is None:
            for listener in self._listeners:
                self._selector.unregister(listener)
        self._paused_until = now + _PAUSE

    def _resume(self) -> None:
        self._paused_until = None
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ)

    def _serve(self, connection: Connection) -> None:
        """Go on with a connection that can be read or written."""
        try:
            if connection.phase is Phase.WRITING:
                self._advance(connection)
            elif not connection.receive(self._clock()):
                self._close(connection, "the client hung up")
            elif connection.phase is Phase.READING:
                self._converse(connection)
        except OSError as error:
            self._close(connection, str(error))
        except Exception:
            logger.exception("serving %s failed", connection.peer)
            self._close(connection, "of an error in the server")

    def _advance(self, connection: Connection) -> None:
        now = self._clock()
        if connection.flush(now):
            connection.turn(now)
            self._converse(connection)

    def _converse(self, connection: Connection) -> None:
        """Answer the requests that are there, one after the other, until the client has to do something."""
        for _ in range(_PIPELINE):
            if connection.phase is not Phase.READING or self._stopping:
                break
            try:
                request = connection.next_request()
            except RefusedError as refused:
                logger.debug("refusing a request of %s: %s", connection.peer, refused)
                self._refuse(connection, refused.response)
                return
            if request is None:
                break
            response = self._handle(request)
            now = self._clock()
            connection.answer(response, now, keep_alive=request.keep_alive, with_body=request.method != "HEAD")
            if not connection.flush(now):
                break
            connection.turn(now)
        else:
            connection.yield_turn(self._clock())
        self._watch(connection)

    def _refuse(self, connection: Connection, response: Response) -> None:
        now = self._clock()
        try:
            connection.answer(response, now, keep_alive=False, with_body=True)
            if connection.flush(now):
                connection.turn(now)
            self._watch(connection)
        except OSError as error:
            self._close(connection, str(error))

    def _handle(self, request: Request) -> Response:
        try:
            response = self._handler(request)
        except Exception:
            logger.exception("answering %s %s failed", request.method, request.path)
            response = Response(HTTPStatus.INTERNAL_SERVER_ERROR, b"internal error; coldplate's log says more\n")
        logger.debug("%s %s %d", request.method, request.path, response.status)
        return response

    def _watch(self, connection: Connection) -> None:
        writing = connection.phase is Phase.WRITING
        wanted = selectors.EVENT_WRITE if writing else selectors.EVENT_READ
        if self._selector.get_key(connection.sock).events != wanted:
            self._selector.modify(connection.sock, wanted, connection)

    def _close(self, connection: Connection, why: str) -> None:
        logger.debug("closing %s because %s", connection.peer, why)
        self._connections.discard(connection)
        with suppress(KeyError, ValueError):
            self._selector.unregister(connection.sock)
        connection.close()
