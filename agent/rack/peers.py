"""Judges the responses of peers: whose seconds count, and who has been failing for which reason.

An agent is identified by the run that it reports, not by the address at which it was asked: so this node recognises
itself among the peers, and a node that is listed twice counts once.
"""

import logging
from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterator
from math import inf

from msgspec import Struct, field

from agent.catalogue.node import NODE_POWER
from agent.lib.logs import LogOnce
from agent.model import Instant, Node, Series
from agent.rack.agreement import LIMIT_SECONDS, PeerClock
from agent.rack.finder import PeerTarget
from agent.rack.peer_messages import GarbageError, PeerFault, Report, decode
from agent.rack.power import PowerLedger

log = logging.getLogger("coldplate.rack")

RESTS = (0, 1, 3, 4)
"""Rounds for which a peer is left alone after one failure, two, three, and more in a row."""
OWN_REST = 30
WELL_SECONDS = 60.0
"""Seconds for which a peer must have answered before a failure of a known kind is logged again."""
_SHOWN = 200


class Member(Struct, frozen=True):
    """The identity of an agent: its rack, its run, and the labels that a scrape gives its series."""

    rack: str
    cluster: str
    run: str
    instance: str
    job: str


class Peer(Struct):
    """The state of one target. `run` is that of its last answer that counted, even if it is silent now."""

    name: str
    tried: bool = False
    up: bool = False
    own: bool = False
    run: str | None = None
    misses: int = 0
    clock: PeerClock = field(default_factory=PeerClock)
    failures: Tally[PeerFault] = field(default_factory=Tally)
    said: set[PeerFault] = field(default_factory=set)
    """Failures that were logged, and will not be logged again before it has been well for long."""
    missed: bool = True
    """Whether its return is worth a log line."""
    well_since: float = 0.0


class Peers:
    """The state of all targets. `chance` gives a number from 0 to 1. Belongs to one thread at a time."""

    def __init__(self, member: Member, ledger: PowerLedger, chance: Callable[[], float]) -> None:
        self._member = member
        self._ledger = ledger
        self._chance = chance
        self._peers: dict[str, Peer] = {}
        self._reports: dict[str, Report] = {}
        self.power_series: dict[str, Series] = {}
        """The series of node power of each agent that answered, by its run."""
        self._once = LogOnce(log)
        self.cap = inf
        """The most watts that a node is believed to draw: what it reports beyond them is not counted."""

    def set_targets(self, targets: Collection[PeerTarget], forget: bool = True) -> None:
        """Keep these targets, in this order, and forget all others, or without `forget` leave those where they are."""
        before = self._peers
        names = [target.name for target in targets]
        if not forget:
            names += [name for name in before if name not in names]
        if list(before) != names:
            self._peers = {name: before.get(name) or Peer(name) for name in names}
            for peer in before.values():
                if peer.name not in self._peers:
                    self._leave(peer)

    def answered(self, target: PeerTarget, body: bytes, sent: Instant, received: Instant) -> int:
        """Take in an answer; returns for how many rounds to leave the peer alone."""
        peer = self._peers.get(target.name)
        if peer is None:
            return 0
        try:
            report = decode(body)
        except GarbageError as error:
            return self._fail(peer, PeerFault.INVALID, str(error))
        if report.run == self._member.run:
            self._leave(peer)
            peer.tried, peer.own, peer.misses, peer.run = True, True, 0, None
            return OWN_REST
        if (report.rack, report.cluster) != (self._member.rack, self._member.cluster):
            theirs = f"rack {report.rack!r}" + (f" of cluster {report.cluster!r}" if report.cluster else "")
            remedy = "give each node the peers and name of its own rack"
            return self._fail(peer, PeerFault.OTHER_RACK, f"it belongs to {theirs}; {remedy}")
        off = report.now - (sent.wall + (received.mono - sent.mono) / 2)
        if not peer.clock.add_offset(off):
            return self._fail(peer, PeerFault.CLOCK, f"its clock is {off:+.1f} s off this node's and drifts")
        self._store_report(peer, report, received.mono)
        return 0

    def failed(self, target: PeerTarget, fault: PeerFault, detail: str) -> int:
        """Record that there was no answer; returns for how many rounds to leave the peer alone."""
        peer = self._peers.get(target.name)
        return 0 if peer is None else self._fail(peer, fault, detail)

    @property
    def tried(self) -> bool:
        """Whether every peer was asked at least once."""
        return all(peer.tried for peer in self._peers.values())

    @property
    def nodes(self) -> int:
        """How many nodes the targets are, including this one. One that was never asked does not count yet."""
        peers = [peer for peer in self._peers.values() if peer.tried and not peer.own]
        unknown = sum(1 for peer in peers if peer.run is None)
        return 1 + unknown + len({peer.run for peer in peers if peer.run is not None})

    def others(self) -> Iterator[Peer]:
        """Return all peers but this node itself."""
        return (peer for peer in self._peers.values() if not peer.own)

    def missing(self, present: Collection[str]) -> list[str]:
        """Return the other nodes whose run is not among these, each once and under the name of its target."""
        reasons: dict[str, str] = {}
        for peer in self.others():
            if peer.run is None or peer.run not in present:
                reasons.setdefault(peer.run or f"target {peer.name}", peer.name)
        return list(reasons.values())

    def reports(self) -> list[Report]:
        """Return the last report of each agent that answers."""
        runs = {peer.run for peer in self.others() if peer.up}
        return [report for run, report in self._reports.items() if run in runs]

    def source(self, run: str) -> str | None:
        """Return what measures the power of a run's node, by its last answer."""
        report = self._reports.get(run)
        return None if report is None else report.source

    def own_lead(self) -> float | None:
        """Return seconds that our clock is ahead of those of the peers that answer, by the median; None if none does.

        Of two in the middle, the one closer to this node's clock counts: of three clocks the two that agree are right.
        """
        heard = {peer.run: peer.clock.offset for peer in self.others() if peer.up}
        offsets = sorted(offset for offset in heard.values() if offset is not None)
        return -min(offsets[(len(offsets) - 1) // 2], offsets[len(offsets) // 2], key=abs) if offsets else None

    def _store_report(self, peer: Peer, report: Report, now: float) -> None:
        if peer.run != report.run:
            self._leave(peer)
            peer.run = report.run
        self._compare_clocks(peer)
        self._reports[report.run] = report
        shift, cap, seconds = peer.clock.shift, self.cap, report.seconds()
        if seconds and seconds[-1][1] > cap:
            self._note_excess(peer, seconds[-1][1])
        self._ledger.store_seconds(report.run, ((second - shift, min(watts, cap)) for second, watts in seconds))
        if report.source is None:
            self.power_series.pop(report.run, None)
        else:
            self._show(report)
        if peer.missed:
            log.info("peer answers", extra={"facts": {"peer": peer.name, "node": report.instance}})
        if not peer.up:
            peer.well_since = now
        elif now - peer.well_since > WELL_SECONDS:
            peer.said.clear()
        peer.tried, peer.up, peer.own, peer.missed, peer.misses = True, True, False, False, 0

    def _note_excess(self, peer: Peer, watts: float) -> None:
        """Count a report of more power than a node is believed to draw, and log it once."""
        peer.failures[PeerFault.OVER_NAMEPLATE] += 1
        if PeerFault.OVER_NAMEPLATE not in peer.said:
            peer.said.add(PeerFault.OVER_NAMEPLATE)
            facts = {"peer": peer.name, "watts": f"{watts:.0f}", "counted": f"{self.cap:.0f}"}
            remedy = "check rack.node_nameplate or rack.power_budget, and what answers at this address"
            log.warning("a peer reports more power than a node can draw: %s", remedy, extra={"facts": facts})

    def _compare_clocks(self, peer: Peer) -> None:
        """Log once that a clock is off, and once that it is right again."""
        name, off = f"clock of {peer.name}", peer.clock.offset or 0.0
        facts = {"peer": peer.name, "ahead": f"{off:+.1f}s"}
        if peer.clock.shift:
            self._once.problem(name, "peer clock differs: synchronise both clocks", facts=facts)
        elif abs(off) < LIMIT_SECONDS / 2:
            self._once.over(name, "peer clock agrees again", facts=facts)

    def _show(self, report: Report) -> None:
        labels = (("source", report.source or ""), ("instance", report.instance), ("job", report.job))
        power_series = self.power_series.get(report.run)
        if power_series is not None and power_series.labels == labels:
            return
        self.power_series[report.run] = Series(NODE_POWER, Node(), labels)
        names = [self._member.instance, *(dict(series.labels)["instance"] for series in self.power_series.values())]
        if names.count(report.instance) > 1:
            text = "two nodes of the rack have the same name; give each its own node.name"
            self._once.problem(report.instance, text, facts={"instance": report.instance})

    def _fail(self, peer: Peer, fault: PeerFault, detail: str) -> int:
        peer.tried, peer.up = True, False
        peer.misses += 1
        peer.failures[fault] += 1
        if fault is not PeerFault.TIMEOUT:
            self._leave(peer)  # a peer that hangs is given a moment, one that is gone or wrong is not
        if fault not in peer.said:
            peer.said.add(fault)
            peer.missed = True
            printable = "".join(letter if letter.isprintable() else "?" for letter in detail[:_SHOWN])
            facts = {"peer": peer.name, "reason": fault.value, "detail": printable}
            log.warning("a peer of the rack is left out of the sum", extra={"facts": facts})
        rest = RESTS[min(peer.misses, len(RESTS)) - 1]
        return rest + int(peer.misses >= len(RESTS) and self._chance() < 0.5)

    def _leave(self, peer: Peer) -> None:
        """Forget the power of the run that was at this address, unless it answers at another one."""
        peer.up = False
        if peer.run is not None and not any(p.up and p.run == peer.run for p in self._peers.values()):
            self._ledger.forget(peer.run)
            self.power_series.pop(peer.run, None)
            self._reports.pop(peer.run, None)
