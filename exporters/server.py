"""A small HTTP/1.1 server that misbehaving clients cannot take down.

One thread and one event loop, because scrapers ask less than once a second, and because a thread for
each connection is exhausted by a few hundred half-sent requests. Every wait has a timeout, every buffer a
limit, and when all slots are taken the client that has been idle longest is evicted, so that
a scraper always finds one.

Handlers run in the loop and must be quick: they return existing bytes, or a response that
comes later. There is no chunked body, no upgrade and no access log.
"""

import logging
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from agent.lib.logs import LogOnce
from agent.lib.threads import KeptThread, Threads
from agent.lib.wakeups import WakePipe
from exporters.clients import Clients, Handler, victim
from exporters.connection import Connection
from exporters.gate import PortGate
from exporters.listeners import Acceptor, BindError, address_of, is_closed_by_peer, open_listeners

__all__ = ["BindError", "HttpServer"]

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 10.0
"""Most seconds between two turns, even if no client sends anything."""

_ROUND_SECONDS = 0.005
"""Seconds of a turn for connected clients, and for those that are to be accepted."""

_BURST = 32
"""Clients that are accepted in one turn: the queue must not grow, but connected clients must not wait long either."""

_RELIEF_SECONDS = 1.0
"""Seconds after which the last turn that left clients in the queue no longer counts."""

_LAST_RESPONSE_SECONDS = 1.0
_STOP_TIMEOUT_SECONDS = 6.0
"""Seconds that the thread has to end: it may have failed and be about to restart."""
_RETRY_SECONDS = 0.02


class HttpServer:
    """Serves `handler` on every address of `listen`; an empty host means all interfaces, IPv6 and IPv4.

    `press` is called when clients arrive faster than they are accepted, and when that is over: every system call
    passes the interpreter to a computing thread, and the queue grows while that keeps it. `clock` is in seconds.
    `gate` says whether clients have to speak TLS or to log in; without one everyone may ask.
    """

    def __init__(
        self,
        listen: Sequence[tuple[str, int]],
        handler: Handler,
        *,
        clock: Callable[[], float],
        press: Callable[[bool], None] = lambda _: None,
        threads: Threads | None = None,
        gate: PortGate | None = None,
        max_connections: int = 64,
    ) -> None:
        self._listen = tuple(listen)
        self._clock = clock
        self._press = press
        self._threads = threads or Threads(clock)
        self._limit = max(1, max_connections)
        self._once = LogOnce(logger)
        self._clients = Clients(
            handler, clock, self._once, nudge=self.nudge, hang_up=self._close, gate=gate or PortGate()
        )
        self._acceptor = Acceptor((), self._clients.evict, self._once)
        self._thread: KeptThread | None = None
        self._ident: int | None = None
        self._stopping = threading.Event()
        self._now = 0.0
        self._pressed = False
        self._pressed_until = 0.0

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each listener, in the order of `listen`; empty while the server is not running."""
        return [address_of(listener) for listener in self._acceptor.listeners]

    @property
    def connections(self) -> int:
        """Connections that are open now."""
        return len(self._clients.connections)

    def start(self) -> None:
        """Open the listeners and serve them in a thread. Raises BindError."""
        if self._thread is not None:
            raise RuntimeError("the server is already running")
        self._acceptor = Acceptor(open_listeners(self._listen), self._clients.evict, self._once)
        self._stopping.clear()
        self._wake_pipe = WakePipe()
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._thread = self._threads.begin("http", self._run, stall_timeout=3 * HEARTBEAT_SECONDS, vital=True)

    def stop(self) -> None:
        """Accept no more requests, let current responses finish within a second, and close."""
        thread = self._thread
        if thread is None:
            return
        self._stopping.set()
        self.nudge()
        ended = thread.join(_STOP_TIMEOUT_SECONDS)
        self._thread = None
        if not ended:
            logger.error("HTTP server thread does not stop")
            return
        self._hang_up()  # again, in case the thread could not be started
        self._selector.close()
        self._wake_pipe.close()

    def nudge(self) -> None:
        """Wake the loop up now, whatever it waits for. For any thread."""
        if self._thread is not None and self._ident != threading.get_ident():
            self._wake_pipe.wake()

    # Everything below runs in the server's thread.

    def _run(self) -> None:
        """Serve until `stop`. All state is kept in the object, because this is restarted if it fails."""
        self._ident = threading.get_ident()
        sound = False
        while not self._stopping.is_set():
            sound = self._try(self._turn if sound else self._renew_selector)
            if not sound:
                self._stopping.wait(_RETRY_SECONDS)
        self._try(self._dismiss)
        while self._clients.busy and self._try(self._turn):
            pass
        self._hang_up()

    def _try(self, step: Callable[[], None]) -> bool:
        """Run a step; a defect, ours or the kernel's, costs a turn, not the port."""
        try:
            step()
        except Exception as error:
            self._once.defect(self._now, error, "the HTTP server failed in one iteration; continuing")
            return False
        return True

    def _renew_selector(self) -> None:
        """Put everything into a new selector: whatever was wrong with the old one is gone."""
        with suppress(OSError):
            self._selector.close()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_pipe, selectors.EVENT_READ)
        self._clients.attach(self._selector)
        self._acceptor.attach(self._selector)

    def _turn(self) -> None:
        if self._thread is not None:
            self._thread.beat()
        ready = [key for key, _ in self._selector.select(self._nap())]
        self._now = self._clock()
        self._once.ease(self._now)
        self._clients.deliver()
        self._clients.serve([key.data for key in ready if isinstance(key.data, Connection)], _ROUND_SECONDS)
        for key in ready:
            if key.fileobj is self._wake_pipe:
                self._wake_pipe.drain()
            elif isinstance(key.fileobj, socket.socket) and not isinstance(key.data, Connection):
                self._accept(key.fileobj)
        self._report_pressure(self._clock())
        self._clients.expire(self._clock())
        self._acceptor.resume(self._clock())
        self._clients.deliver()

    def _nap(self) -> float:
        """Return seconds until something is due."""
        due = self._clients.due
        if self._acceptor.paused_until is not None:
            due = min(due, self._acceptor.paused_until)
        if self._pressed:
            due = min(due, self._pressed_until)
        return min(max(0.0, due - self._clock()), HEARTBEAT_SECONDS)

    def _accept(self, listener: socket.socket) -> None:
        """Accept the waiting clients, at the expense of others if necessary."""
        until = self._clock() + _ROUND_SECONDS
        spared: Connection | None = None
        for _ in range(_BURST):
            now = self._clock()
            if now >= until or self._stopping.is_set():
                break
            full = self.connections >= self._limit
            if full and spared is None:
                spared = victim(self._clients.connections, now)
                if spared is None:
                    if self._acceptor.has_pending_client(listener):
                        self._acceptor.pause(now)
                    return
            accepted = self._acceptor.accept(listener, now)
            if accepted is None:
                return
            if is_closed_by_peer(accepted[0]):  # in a flood most have: no other client is evicted for them
                self._close(accepted[0])
                continue
            if full and spared is not None:
                self._clients.spare(spared)
                spared = None
            self._clients.admit(*accepted, now)
        self._pressed_until = self._clock() + _RELIEF_SECONDS

    def _report_pressure(self, now: float) -> None:
        pressed = now < self._pressed_until
        if pressed is not self._pressed:
            self._pressed = pressed
            self._press(pressed)

    def _close(self, sock: socket.socket) -> None:
        self._acceptor.hang_up(sock)

    def _dismiss(self) -> None:
        self._acceptor.close()
        self._clients.dismiss(self._clock() + _LAST_RESPONSE_SECONDS)

    def _hang_up(self) -> None:
        self._clients.hang_up()
        self._acceptor.close()
