"""The rack's series, and the response to the peers' requests: the interface of this package for the daemon.

It may be called from any thread: the sampler's for the series, the server's for the response, the rules' for the
peers' power, and the poller's own, which delivers their responses.
"""

import logging
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import floor

from msgspec.structs import replace

from agent.catalogue.node import NODE_POWER
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.layout_columns import RoundMemo
from agent.lib.logs import LogOnce
from agent.lib.threads import Threads
from agent.model import EMPTY_FRAME, Frame, Instant, Layout, Reading, Snapshot, readings_of
from agent.rack.agreement import NODES, Absences, Turns, differing, most_nodes
from agent.rack.breakers import Heats
from agent.rack.finder import Entry, Finder, PeerTarget
from agent.rack.nvlink_domain import DomainCounter, DomainShare
from agent.rack.peer_messages import MOST_SHARES, VERSION, PeerFault, Report, encode
from agent.rack.peers import WELL_SECONDS, Member, Peers
from agent.rack.poller import Poller
from agent.rack.power import NodeMeter, PowerLedger, Sum
from agent.rack.rack_options import RackOptions
from agent.rack.series import ConfiguredRack, RackSeries

log = logging.getLogger("coldplate.rack")

ESTIMATE = (("source", "estimate"),)
EARLIEST, LATEST = 0.1, 0.25
"""Where in a second polling begins; the others' second must have ended, although clocks differ a little."""
SETTLED_SECONDS = 5.0
"""Seconds after which the rack is summed even if some peer has not been looked up yet."""


class RackMonitor:
    """Watches the rack. `member` says who this agent is; its rack's name may change with the options.

    `chance` gives a number from 0 to 1. `keep` is handed what should outlive the process. `equipment` names the
    services of the rack that this agent could ask.
    """

    def __init__(
        self,
        member: Member,
        options: RackOptions,
        clock: Callable[[], Instant],
        chance: Callable[[], float],
        *,
        threads: Threads | None = None,
        keep: Callable[[bytes], None] | None = None,
        equipment: Iterable[str] = (),
    ) -> None:
        self._threads = threads or Threads()
        self._keep = keep
        self._member = replace(member, rack=options.name)
        self._options = options
        self._clock = clock
        self._chance = chance
        self._phase = EARLIEST + (LATEST - EARLIEST) * chance()
        self._lock = threading.Lock()
        self._meter = NodeMeter()
        self._power_places = RoundMemo(_power_places)
        self._domain_counter = DomainCounter()
        self._equipment = tuple(equipment)
        self._turns = Turns(member.instance)
        self._domains: tuple[DomainShare, ...] = ()
        self._running = False
        self._once = LogOnce(log)
        self._excess, self._excess_at = 0, -WELL_SECONDS
        self._changes = 0
        self._own = OwnSeries()
        self._made: tuple[tuple[int, int], Frame] = ((0, -1), EMPTY_FRAME)
        self._begin()
        self._apply_options(options)
        self._look_for(options.entries)

    def start(self) -> None:
        self._running = True
        self._start_polling()

    def stop(self) -> None:
        self._running = False
        self._stop_polling()
        with self._lock:
            if self._keep is not None and self._options.breakers:
                self._keep(self._heats.saved(self._clock().wall))

    def restore(self, body: bytes) -> bool:
        """Take over what an earlier run saved, before anything else; returns whether it could be used."""
        with self._lock:
            return self._heats.restore(body, self._clock())

    def reconfigure(self, options: RackOptions) -> None:
        """Use these options from now on; what is known of peers that stay is kept."""
        before = self._options
        if (options.name, options.entries, options.access) == (before.name, before.entries, before.access):
            with self._lock:
                self._apply_options(options)
            return
        self._stop_polling()
        with self._lock:
            if options.name != before.name:
                self._member = replace(self._member, rack=options.name)
                self._options = options
                self._begin()
            self._apply_options(options)
            self._look_for(options.entries)
        if self._running:
            self._start_polling()

    def observe(self, snapshot: Snapshot) -> None:
        """Note what this node draws, and which NVLink domains its GPUs are in. For the sampling thread."""
        if not self._options.name:
            return
        power = self._find_power(snapshot.frames)
        domains = self._domain_counter.of(snapshot.frames)[:MOST_SHARES]
        with self._lock:
            self._domains = domains
            if power is None:
                self._meter.record(snapshot.at.wall, None)
            else:
                self._meter.record(snapshot.at.wall, power.value, dict(power.labels).get("source", ""))

    def report(self) -> bytes | None:
        """Return the answer to peers; None if there is no rack."""
        now = self._clock()
        with self._lock:
            if not self._member.rack:
                return None
            last, watts = self._meter.power_in_last_seconds(now.wall)
            source = self._meter.source
            limits = self._reported_limits(now)
            domains = self._domains
        member = self._member
        return encode(
            Report(
                VERSION, member.rack, member.cluster, member.run, member.instance, member.job,
                round(max(now.wall, float(last)), 3), last, watts, source or None, limits, domains,
                self._equipment,
            )
        )  # fmt: skip

    def frame(self, now: Instant) -> Frame:
        """Return the rack's own series. They change with each second and each answer, and are not made more often."""
        with self._lock:
            if not self._options.adds_up:
                return self._configured.frame(now)
            key = (floor(now.wall), self._changes)
            if self._made[0] != key:
                self._made = (key, self._own.frame((*self._configured.readings, *self._make_readings(now))))
            return self._made[1]

    def foreign(self, now: Instant) -> tuple[Reading, ...]:
        """Return what each other node reports, under the labels of a scrape of that node: its power and its limits."""
        with self._lock:
            latest = self._ledger.latest(now.wall)
            power = [Reading(series, latest[run]) for run, series in self._peers.power_series.items() if run in latest]
            limits = self._foreign_limits.frame(self._series.of_limits(self._peers.reports()))
            return (*power, *readings_of(limits.layout.series, limits.values))

    def is_my_turn(self, service: str) -> bool:
        """Return whether this agent is the one to ask a service of the rack. For any thread, about once a second."""
        now = self._clock()
        with self._lock:
            if not self._is_settled(now):
                return False
            instances = [report.instance for report in self._peers.reports() if service in report.equipment]
            return self._turns.is_mine(service, instances, now.mono)

    # Called by the poller.

    def answered(self, target: PeerTarget, body: bytes, sent: Instant, received: Instant) -> int:
        with self._lock:
            self._changes += 1
            self._meet()
            return self._peers.answered(target, body, sent, received)

    def failed(self, target: PeerTarget, fault: PeerFault, detail: str) -> int:
        with self._lock:
            self._changes += 1
            self._meet()
            return self._peers.failed(target, fault, detail)

    def _make_readings(self, now: Instant) -> list[OwnReading]:
        options, series = self._options, self._series
        self._meet()
        last, watts = self._meter.power_in_last_seconds(now.wall)
        self._note_excess(last, watts[-1], options.cap)
        readings = list(series.of_peers(self._peers.others()))
        if self._excess:  # under its own name, as the peers count it
            reason = PeerFault.OVER_NAMEPLATE.value
            readings.append(
                series.reading("peer_failures_total", self._excess, peer=self._member.instance, reason=reason)
            )
        domains = [(report.instance, report.domains) for report in self._peers.reports()]
        readings += series.of_domains([(self._member.instance, self._domains), *domains])
        if not self._is_settled(now):
            return readings
        limits = [report.limits for report in self._peers.reports() if report.limits is not None]
        if (lead := self._peers.own_lead()) is not None:
            readings.append(series.reading("clock_offset_seconds", round(lead, 3) + 0.0))
        if limits:
            settings = differing(self._reported_limits(now), limits)
            readings += (
                series.reading("config_mismatch", int(setting), setting=name) for name, setting in settings.items()
            )
        if not self._knows_its_size():
            return readings
        own_seconds = enumerate(watts, last - len(watts) + 1)
        own = ((second, min(own_watts, options.cap)) for second, own_watts in own_seconds if own_watts is not None)
        self._ledger.store_seconds(self._member.run, own)  # bounded like the others', so that all compute one sum
        counted = options.nodes_expected or self._peers.nodes
        expected = most_nodes(counted, limits)
        total = self._ledger.add_up(now.wall)
        readings += series.of_sum(total, expected, options.nameplate)
        readings += series.of_sources(self._sources(total))
        readings += series.of_silence(self._silent(total, expected, now))
        if options.nodes_expected is None:
            readings.append(series.reading("nodes_expected", expected))
        return readings + self._breakers(total, counted, now)

    def _breakers(self, total: Sum | None, expected: int, now: Instant) -> list[OwnReading]:
        """Return the breakers' state; missing nodes are assumed to draw as much as those that report.

        `expected` comes from our own configuration or count: a number that only a peer reports must not heat a breaker.
        """
        watts = None if total is None else total.watts * max(expected, len(total.nodes)) / len(total.nodes)
        readings = list(self._series.of_breakers(self._heats.update(watts, now.mono)))
        if self._keep is not None and (kept := self._heats.worth_keeping(now.wall)) is not None:
            self._keep(kept)
        if self._options.failover is not None:
            readings.append(self._series.reading("failover_limit_watts", self._options.failover))
        return readings

    def _note_excess(self, second: int, watts: float | None, cap: float) -> None:
        """Count the seconds in which this node draws more than is counted; log it once until it is well for long."""
        if watts is None or watts <= cap or second <= self._excess_at:
            return
        if second - self._excess_at > WELL_SECONDS:
            facts = {"watts": f"{watts:.0f}", "counted": f"{cap:.0f}"}
            text = "this node draws more than the limit per node: check rack.node_nameplate or rack.power_budget"
            log.warning(text, extra={"facts": facts})
        self._excess_at = second
        self._excess += 1

    def _knows_its_size(self) -> bool:
        """Return whether the number of the rack's nodes is known: one without known peers is not a rack of one."""
        is_known = self._options.nodes_expected is not None or any(self._peers.others())
        if is_known:
            self._once.over("size", "rack power summed: peers known")
        else:
            text = "rack power not summed: no peer known; check rack.peers, or set rack.nodes_expected"
            self._once.problem("size", text)
        return is_known

    def _sources(self, total: Sum | None) -> Mapping[str, int]:
        """Return, by source, how many nodes of a sum have their power from it."""
        runs = frozenset[str]() if total is None else total.nodes
        named = (self._meter.source if run == self._member.run else self._peers.source(run) for run in runs)
        return Tally(name for name in named if name)

    def _silent(self, total: Sum | None, expected: int, now: Instant) -> int | None:
        """Return how many of the expected nodes have been missing from the sum for long."""
        present = frozenset[str]() if total is None else total.nodes
        missing = self._peers.missing(present)
        if self._member.run not in present:
            missing.append("")
        self._absences.observe(missing, expected - len(present) - len(missing), now.mono)
        silent = self._absences.silent(now.mono)
        return None if silent is None else max(min(silent, expected - len(present)), 0)

    def _reported_limits(self, now: Instant) -> dict[str, float]:
        """Return our limits, with the number of nodes as soon as it is known."""
        limits = self._options.limits
        if self._options.adds_up and NODES not in limits and self._is_settled(now) and self._peers.nodes > 1:
            limits[NODES] = float(self._peers.nodes)
        return limits

    def _apply_options(self, options: RackOptions) -> None:
        """Use these options for the present rack."""
        self._options = options
        self._configured = ConfiguredRack(options)
        self._changes += 1
        self._meter.stale_after = options.stale_after
        self._peers.cap = options.cap
        self._heats.configure(options.breakers)

    def _begin(self) -> None:
        """Start with a rack of which nothing is known yet."""
        self._ledger = PowerLedger()
        self._peers = Peers(self._member, self._ledger, self._chance)
        self._series = RackSeries(self._options.name)
        self._foreign_limits = OwnSeries()
        self._absences = Absences()
        self._heats = Heats(self._options.name)

    def _look_for(self, entries: Sequence[Entry]) -> None:
        self._finder = Finder(entries, lambda: self._clock().mono, threads=self._threads)
        self._poller: Poller | None = None
        self._settled_by: float | None = None

    def _meet(self) -> None:
        """Pass the targets on. Until all have been looked up, missing ones may only be late."""
        self._peers.set_targets(self._finder.targets, forget=self._finder.looked)

    def _start_polling(self) -> None:
        options = self._options
        if not options.entries:
            return
        self._settled_by = self._clock().mono + SETTLED_SECONDS
        self._finder.start()
        finder = self._finder
        self._poller = Poller(
            lambda: finder.targets, options.access, self.answered, self.failed, self._clock, phase=self._phase,
            threads=self._threads,
        )  # fmt: skip
        self._poller.start()

    def _stop_polling(self) -> None:
        self._finder.stop()
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.stop()

    def _is_settled(self, now: Instant) -> bool:
        """Return whether all peers were asked once: before, a silent peer looks like one that was never asked."""
        if not self._options.entries:
            return True
        if self._settled_by is None:
            return False
        return (self._finder.looked and self._peers.tried) or now.mono > self._settled_by

    def _find_power(self, frames: Sequence[Frame]) -> Reading | None:
        """Return the node's power, measured rather than estimated."""
        power = None
        places_of = self._power_places.of([frame.layout for frame in frames])
        for (layout, values), places in zip(frames, places_of, strict=True):
            for place in places:
                reading = Reading(layout.series[place], values[place])
                if power is None or reading.labels != ESTIMATE:
                    power = reading
        return power


def _power_places(layout: Layout) -> tuple[int, ...]:
    return tuple(place for place, series in enumerate(layout.series) if series.metric is NODE_POWER)
