"""Polls every peer once a second, all at the same time, in one thread that no peer can block.

Rounds start shortly after a whole second of wall-clock time, when every node's last second has just ended; each agent
has its own fraction of a second, so that the agents of a rack do not all poll at once. A round ends `TIMEOUT_SECONDS`
after it started, whatever the peers do: one that hangs, trickles or floods affects only itself.
"""

from __future__ import annotations

import logging
import select
import selectors
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from agent.lib.threads import KeptThread, Threads
from agent.model import Instant
from agent.rack.access import Access, PeerTrust
from agent.rack.http import HttpAnswer
from agent.rack.peer_errors import PeerError, PeerFault
from agent.rack.peer_link import PeerLink
from agent.rack.targets import PeerTarget

log = logging.getLogger("coldplate.rack")

PERIOD_SECONDS = 1.0
TIMEOUT_SECONDS = 0.8
PATIENCE_SECONDS = 30.0
"""Seconds without a round after which the thread counts as standing still."""
GATHER_SECONDS = 0.004
"""Seconds in which answers gather before they are read: one wake-up for many of them."""
_OK = 200


class Judge(Protocol):
    """Judges how asking a peer ended; each gives the number of rounds in which the peer is left alone."""

    def answered(self, target: PeerTarget, body: bytes, sent: Instant, received: Instant) -> int: ...

    def failed(self, target: PeerTarget, fault: PeerFault, detail: str) -> int: ...


class Poller:
    """`targets` gives whom to ask now. `phase` is where in the second rounds begin, from 0 to 1."""

    def __init__(
        self,
        targets: Callable[[], Sequence[PeerTarget]],
        access: Access,
        judge: Judge,
        clock: Callable[[], Instant],
        phase: float,
        threads: Threads | None = None,
    ) -> None:
        self._targets = targets
        self._access = access
        self._trust = PeerTrust(access)
        self._judge = judge
        self._clock = clock
        self._phase = phase
        self._links: dict[str, PeerLink] = {}
        self._rests: dict[str, int] = {}
        self._pending: dict[PeerLink, Instant] = {}
        self._selector = selectors.DefaultSelector()
        self._waker, self._wake = socket.socketpair()
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._stopping = False
        self._broken = ""
        self._threads = threads or Threads()
        self._thread: KeptThread | None = None

    def start(self) -> None:
        self._thread = self._threads.begin("rack", self._run, patience=PATIENCE_SECONDS)

    def stop(self, patience: float = 2.0) -> None:
        """End the thread."""
        self._stopping = True
        self._wake.send(b".")
        if self._thread is not None:
            self._thread.join(patience)

    def _run(self) -> None:
        due = self._clock().mono
        while not self._stopping:
            try:
                self._tend_until(due)
                if self._thread is not None:
                    self._thread.beat()
                if not self._stopping:
                    self._round()
                    self._broken = ""
            except Exception as error:
                self._survive(error)
            due = self._next(self._clock())
        for link in self._links.values():
            link.close()
        self._selector.close()
        self._waker.close()
        self._wake.close()

    def _next(self, now: Instant) -> float:
        """When the next round begins; the monotonic clock will tell, since the other one may be set meanwhile."""
        left = PERIOD_SECONDS - (now.wall - self._phase) % PERIOD_SECONDS
        return now.mono + (left if left > PERIOD_SECONDS / 10 else left + PERIOD_SECONDS)

    def _tend_until(self, due: float) -> None:
        """Wait for the next round; peers may hang up meanwhile."""
        while not self._stopping:
            left = due - self._clock().mono
            if left <= 0:
                return
            self._wait(left)

    def _round(self) -> None:
        self._meet()
        for name, link in self._links.items():
            rest = self._rests.get(name, 0)
            if rest > 0:
                self._rests[name] = rest - 1
            else:
                self._ask(link)
        until = self._clock().mono + TIMEOUT_SECONDS
        while self._pending and not self._stopping:
            select.select((), (), (), GATHER_SECONDS)
            left = until - self._clock().mono
            if left <= 0:
                break
            self._wait(left)
        for link in list(self._pending):
            self._fail(link, PeerError(PeerFault.TIMEOUT, f"no complete response within {TIMEOUT_SECONDS:g} s"))

    def _meet(self) -> None:
        """Take up new targets, and hang up on those that are no more."""
        targets = {target.name: target for target in self._targets()}
        for name in [name for name in self._links if name not in targets]:
            self._links.pop(name).close()
            self._rests.pop(name, None)
        for name, target in targets.items():
            if name in self._links:
                self._links[name].target = target  # its addresses may have changed: for the next connection
            else:
                self._links[name] = PeerLink(target, self._access, self._trust, self._watcher(name))

    def _watcher(self, name: str) -> Callable[[socket.socket, int | None], None]:
        def watch(held: socket.socket, events: int | None) -> None:
            if events is None:
                with suppress(KeyError, ValueError):  # it was never watched, or TLS has closed it already
                    self._selector.unregister(held)
            elif held in self._selector.get_map():
                self._selector.modify(held, events, name)
            else:
                self._selector.register(held, events, name)

        return watch

    def _ask(self, link: PeerLink) -> None:
        self._pending[link] = self._clock()
        self._go_on(link, link.begin)

    def _wait(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.data is None:
                self._waker.recv(64)
                continue
            link = self._links.get(key.data)
            if link is not None:
                self._go_on(link, link.advance)

    def _go_on(self, link: PeerLink, step: Callable[[], HttpAnswer | None]) -> None:
        try:
            answer = step()
        except PeerError as error:
            self._fail(link, error)
            return
        sent = self._pending.pop(link, None) if answer is not None else None
        if answer is None or sent is None:
            return
        if answer.status != _OK:
            self._pending[link] = sent
            self._fail(link, PeerError(PeerFault.HTTP, f"HTTP status {answer.status}"))
            return
        self._rests[link.target.name] = self._judge.answered(link.target, answer.body, sent, self._clock())

    def _fail(self, link: PeerLink, error: PeerError) -> None:
        """A peer that hangs up between two rounds has not failed: it is asked again over a new connection."""
        link.close()
        if self._pending.pop(link, None) is not None:
            self._rests[link.target.name] = self._judge.failed(link.target, error.fault, str(error))

    def _survive(self, error: Exception) -> None:
        """A defect of ours must not end the polling for good; all begins anew with the next round."""
        text = f"{type(error).__name__}: {error}"
        if text != self._broken:
            log.error("polling the peers failed; continuing with the next round", exc_info=error)
        self._broken = text
        self._pending.clear()
        for link in self._links.values():
            link.close()
