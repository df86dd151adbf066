"""Polls every peer once a second, all at the same time, in one thread that no peer can block.

Rounds start shortly after a whole second of wall-clock time, when every node's last second has just ended; each agent
has its own fraction of a second, so that the agents of a rack do not all poll at once. A round ends `TIMEOUT_SECONDS`
after it started, whatever the peers do: one that hangs, trickles or floods affects only itself.
"""

import logging
import select
from collections.abc import Callable, Sequence
from functools import partial
from math import ceil

from msgspec import Struct

from agent.lib.certificates import HttpTrust
from agent.lib.http_answers import AnswerBounds, HttpAnswer, HttpError, HttpFault
from agent.lib.http_link import HttpLink, HttpRequest, Place
from agent.lib.logs import LogOnce
from agent.lib.threads import KeptThread, Threads
from agent.lib.wakeups import WakePipe
from agent.model import Instant
from agent.rack.finder import PeerTarget
from agent.rack.peer_messages import PATH, Access, PeerFault

log = logging.getLogger("coldplate.rack")

PERIOD_SECONDS = 1.0
TIMEOUT_SECONDS = 0.8
STALL_TIMEOUT_SECONDS = 30.0
"""Seconds without a round after which the thread counts as stuck."""
GATHER_SECONDS = 0.004
"""Seconds for which answers are collected before they are read: one wake-up for many of them."""
QUESTION = HttpRequest("GET", PATH, (("Accept", "application/json"),))
BOUNDS = AnswerBounds(body=64 * 1024, head=8 * 1024)
_OK = 200
_REMEDIES = {
    400: "; if it speaks TLS, set rack.peer.scheme: https",
    401: "; set rack.peer.username and password_file to a user of its web configuration",
}
_FAULTS = {HttpFault.TIMEOUT: PeerFault.TIMEOUT, HttpFault.GARBAGE: PeerFault.INVALID}
_TRUST = "; set rack.peer.ca_file to the issuer's certificate, or rack.peer.verify: false"


class _Polled(Struct, eq=False):
    """A peer with its connection. `sent` is when it was asked; None unless its answer is awaited."""

    target: PeerTarget
    link: HttpLink
    rest: int = 0
    """Rounds for which to leave it alone."""
    sent: Instant | None = None


class Poller:
    """`targets` gives the peers to ask now. `phase` is where in a second rounds begin, from 0 to 1.

    `answered` and `failed` judge the outcome of asking a peer, and return for how many rounds to leave it alone.
    """

    def __init__(
        self,
        targets: Callable[[], Sequence[PeerTarget]],
        access: Access,
        answered: Callable[[PeerTarget, bytes, Instant, Instant], int],
        failed: Callable[[PeerTarget, PeerFault, str], int],
        clock: Callable[[], Instant],
        *,
        phase: float,
        threads: Threads | None = None,
    ) -> None:
        self._targets = targets
        self._access = access
        self._trust = HttpTrust(access) if access.tls else None
        self._answered, self._failed = answered, failed
        self._clock = clock
        self._phase = phase
        self._peers: dict[str, _Polled] = {}
        self._wake_pipe = WakePipe()
        self._stopping = False
        self._once = LogOnce(log)
        self._threads = threads or Threads()
        self._thread: KeptThread | None = None

    def start(self) -> None:
        self._thread = self._threads.begin("rack", self._run, stall_timeout=STALL_TIMEOUT_SECONDS)

    def stop(self, timeout: float = 2.0) -> None:
        self._stopping = True
        self._wake_pipe.wake()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        due = self._clock().mono
        while not self._stopping:
            try:
                while not self._stopping and (remaining := due - self._clock().mono) > 0:
                    self._wait(remaining)  # peers may hang up meanwhile
                if self._thread is not None:
                    self._thread.beat()
                if not self._stopping:
                    self._round()
                    self._once.over("round")
            except Exception as error:
                self._start_again(error)
            due = self._next(self._clock())
        for peer in self._peers.values():
            peer.link.close()
        self._wake_pipe.close()

    def _next(self, now: Instant) -> float:
        """Return when the next round begins, on the monotonic clock, since the other one may be set meanwhile."""
        remaining = PERIOD_SECONDS - (now.wall - self._phase) % PERIOD_SECONDS
        return now.mono + (remaining if remaining > PERIOD_SECONDS / 10 else remaining + PERIOD_SECONDS)

    def _round(self) -> None:
        self._meet()
        for peer in self._peers.values():
            if peer.rest > 0:
                peer.rest -= 1
            else:
                peer.sent = self._clock()
                self._go_on(peer, lambda link: link.begin(QUESTION))
        until = self._clock().mono + TIMEOUT_SECONDS
        while any(peer.sent for peer in self._peers.values()) and not self._stopping:
            select.select((), (), (), GATHER_SECONDS)
            remaining = until - self._clock().mono
            if remaining <= 0:
                break
            self._wait(remaining)
        for peer in self._peers.values():
            if peer.sent is not None:
                self._fail(peer, PeerFault.TIMEOUT, f"no complete response within {TIMEOUT_SECONDS:g} s")

    def _meet(self) -> None:
        """Take in new targets, and close the connections of those that are gone."""
        targets = self._targets()
        before, self._peers = self._peers, {}
        for target in targets:
            name = target.name
            if name in before:
                self._peers[name] = before.pop(name)
                self._peers[name].target = target
            else:
                link = HttpLink(partial(self._find, name), self._access, self._trust, BOUNDS)
                self._peers[name] = _Polled(target, link)
        for peer in before.values():
            peer.link.close()

    def _find(self, name: str) -> Place:
        target = self._peers[name].target
        return Place(target.host, target.port, target.addresses)

    def _wait(self, seconds: float) -> None:
        poll = select.poll()
        poll.register(self._wake_pipe, select.POLLIN)
        peers: dict[int, _Polled] = {}
        for peer in self._peers.values():
            if peer.link.is_open:
                poll.register(peer.link, peer.link.events)
                peers[peer.link.fileno()] = peer
        for ready, _ in poll.poll(ceil(seconds * 1000)):
            if ready in peers:
                self._go_on(peers[ready], HttpLink.advance)
            else:
                self._wake_pipe.drain()

    def _go_on(self, peer: _Polled, step: Callable[[HttpLink], HttpAnswer | None]) -> None:
        try:
            answer = step(peer.link)
        except HttpError as error:
            remedy = _TRUST if error.fault is HttpFault.UNTRUSTED else ""
            self._fail(peer, _FAULTS.get(error.fault, PeerFault.CONNECT), f"{error}{remedy}")
            return
        if answer is None or peer.sent is None:
            return
        if answer.status != _OK:
            self._fail(peer, PeerFault.HTTP, f"HTTP status {answer.status}{_REMEDIES.get(answer.status, '')}")
            return
        if answer.cut:
            self._fail(peer, PeerFault.INVALID, f"a response of more than {BOUNDS.body} bytes")
            return
        sent, peer.sent = peer.sent, None
        peer.rest = self._answered(peer.target, answer.body, sent, self._clock())

    def _fail(self, peer: _Polled, fault: PeerFault, detail: str) -> None:
        """Report a failure, unless a peer only closed its connection between two rounds: the next opens a new one."""
        peer.link.close()
        if peer.sent is not None:
            peer.sent = None
            peer.rest = self._failed(peer.target, fault, detail)

    def _start_again(self, error: Exception) -> None:
        """Start from scratch with the next round: a defect in this code must not end polling."""
        text = "polling the peers failed; continuing with the next round"
        self._once.problem("round", text, cause=repr(error), level=logging.ERROR, error=error)
        for peer in self._peers.values():
            peer.link.close()
            peer.sent = None
