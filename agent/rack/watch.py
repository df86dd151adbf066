"""The rack's series, and the answer to the peers' questions: what the daemon sees of this package.

It may be asked from any thread: the sampler's for the series, the server's for the answer, the rules' for what the
peers draw, and the poller's own, which brings their answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import floor

from agent.catalogue.node import NODE_POWER
from agent.model import Instant, Reading, Series, Snapshot
from agent.rack.access import Access
from agent.rack.faults import Fault
from agent.rack.finder import Finder
from agent.rack.ledger import Ledger
from agent.rack.meter import Meter
from agent.rack.peers import Member, Peers
from agent.rack.poller import Poller
from agent.rack.series import RackSeries
from agent.rack.targets import Entry, Target
from agent.rack.wire import VERSION, Report, encode
from agent.threads import Threads

ESTIMATE = (("source", "estimate"),)
EARLIEST, LATEST = 0.1, 0.25
"""Where in the second rounds of polling begin; the others' second must have ended, although clocks differ a little."""
SETTLED = 5.0
"""Seconds after which the rack is added up even though some peer was not looked up yet."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the configuration says of the rack; `name` is empty where there is none, times are in seconds.

    `nodes_expected` is None where the peers are to be counted, `nameplate` in watts. `patience` is for how long a
    node's last sample says anything about the present.
    """

    name: str = ""
    nodes_expected: int | None = None
    nameplate: float | None = None
    entries: tuple[Entry, ...] = ()
    access: Access = field(default_factory=Access)
    patience: float = 3.0

    @property
    def adds_up(self) -> bool:
        """Whether this agent can know the power of the rack."""
        return bool(self.name) and (bool(self.entries) or self.nodes_expected == 1)


class Watch:
    """Watches the rack. `member` says who this agent is; its rack's name may change with the options.

    `chance` gives a number from 0 to 1.
    """

    def __init__(
        self,
        member: Member,
        options: Options,
        clock: Callable[[], Instant],
        chance: Callable[[], float],
        threads: Threads | None = None,
    ) -> None:
        self._threads = threads or Threads()
        self._member = replace(member, rack=options.name)
        self._options = options
        self._clock = clock
        self._chance = chance
        self._phase = EARLIEST + (LATEST - EARLIEST) * chance()
        self._lock = threading.Lock()
        self._meter = Meter(options.patience)
        self._found: tuple[int, Series | None] = (0, None)
        self._running = False
        self._changes = 0
        self._made: tuple[tuple[int, int], tuple[Reading, ...]] = ((0, -1), ())
        self._begin()
        self._look_for(options.entries)

    def start(self) -> None:
        """Begin to ask the peers, if there are any."""
        self._running = True
        self._start_polling()

    def stop(self) -> None:
        """Ask nobody any more."""
        self._running = False
        self._stop_polling()

    def reconfigure(self, options: Options) -> None:
        """Watch as these say from now on; what is known stays where the peers do."""
        before = self._options
        if (options.name, options.entries, options.access) == (before.name, before.entries, before.access):
            with self._lock:
                self._options = options
                self._changes += 1
                self._meter.patience = options.patience
            return
        self._stop_polling()
        with self._lock:
            self._options = options
            self._changes += 1
            self._meter.patience = options.patience
            if options.name != before.name:
                self._member = replace(self._member, rack=options.name)
                self._begin()
            self._look_for(options.entries)
        if self._running:
            self._start_polling()

    def observe(self, snapshot: Snapshot) -> None:
        """Note what this node draws. For the sampling thread."""
        if not self._options.name:
            return
        found = self._find_power(snapshot.readings)
        with self._lock:
            if found is None:
                self._meter.note(snapshot.at.wall, None)
            else:
                self._meter.note(snapshot.at.wall, found.value, dict(found.labels).get("source", ""))

    def report(self) -> bytes | None:
        """What peers are told; None where there is no rack."""
        now = self._clock()
        with self._lock:
            if not self._member.rack:
                return None
            last, watts = self._meter.told(now.wall)
            source = self._meter.source
        member = self._member
        return encode(
            Report(
                VERSION, member.rack, member.cluster, member.run, member.instance, member.job,
                round(max(now.wall, float(last)), 3), last, watts, source or None,
            )
        )  # fmt: skip

    def readings(self, now: Instant) -> tuple[Reading, ...]:
        """The rack's own series. They change with each second and each answer, and are made no more often."""
        if not self._options.adds_up:
            return ()
        with self._lock:
            key = (floor(now.wall), self._changes)
            if self._made[0] != key:
                self._made = (key, tuple(self._make_readings(now)))
            return self._made[1]

    def foreign(self, now: Instant) -> tuple[Reading, ...]:
        """The power of each other node that tells it, under the labels that a scrape gives that node's series."""
        with self._lock:
            latest = self._ledger.latest(now.wall)
            return tuple(Reading(series, latest[run]) for run, series in self._peers.power_series() if run in latest)

    # What the poller brings.

    def answered(self, target: Target, body: bytes, sent: Instant, received: Instant) -> int:
        with self._lock:
            self._changes += 1
            self._meet()
            return self._peers.answered(target, body, sent, received)

    def failed(self, target: Target, fault: Fault, detail: str) -> int:
        with self._lock:
            self._changes += 1
            self._meet()
            return self._peers.failed(target, fault, detail)

    def _make_readings(self, now: Instant) -> list[Reading]:
        options = self._options
        self._meet()
        made = self._series.of_peers(self._peers.others())
        if not self._is_settled(now):
            return made
        last, watts = self._meter.told(now.wall)
        known = enumerate(watts, last - len(watts) + 1)
        self._ledger.put(self._member.run, ((second, each) for second, each in known if each is not None))
        expected = options.nodes_expected or self._peers.nodes
        made += self._series.of_sum(self._ledger.add_up(now.wall), expected, options.nameplate)
        if options.nodes_expected is None:
            made.append(self._series.of_count(expected))
        return made

    def _begin(self) -> None:
        """A rack of which nothing is known yet."""
        self._ledger = Ledger()
        self._peers = Peers(self._member, self._ledger, self._chance)
        self._series = RackSeries(self._options.name)

    def _look_for(self, entries: Sequence[Entry]) -> None:
        self._finder = Finder(entries, lambda: self._clock().mono, threads=self._threads)
        self._poller: Poller | None = None
        self._settled_by: float | None = None

    def _meet(self) -> None:
        """Know the targets. Before all were looked up, those that are missing may only be late."""
        self._peers.keep(self._finder.targets, forget=self._finder.looked)

    def _start_polling(self) -> None:
        options = self._options
        if not options.entries:
            return
        self._settled_by = self._clock().mono + SETTLED
        self._finder.start()
        finder = self._finder
        self._poller = Poller(lambda: finder.targets, options.access, self, self._clock, self._phase, self._threads)
        self._poller.start()

    def _stop_polling(self) -> None:
        self._finder.stop()
        poller, self._poller = self._poller, None
        if poller is not None:
            poller.stop()

    def _is_settled(self, now: Instant) -> bool:
        """Whether all peers were asked once: before, a silent peer and one that was never asked look the same."""
        if not self._options.entries:
            return True
        if self._settled_by is None:
            return False
        return (self._finder.looked and self._peers.tried) or now.mono > self._settled_by

    def _find_power(self, readings: Sequence[Reading]) -> Reading | None:
        """What the node draws, measured rather than estimated; it is mostly where it was in the last snapshot."""
        place, series = self._found
        if place < len(readings) and readings[place].series is series:
            return readings[place]
        found = None
        for place, reading in enumerate(readings):
            if reading[0].metric is NODE_POWER and (found is None or reading.labels != ESTIMATE):
                found, self._found = reading, (place, reading.series)
        return found
