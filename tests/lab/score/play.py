"""A node that plays a scenario faster than time passes: the daemon without its clock, its processes and its threads.

The synthetic source, the sampler and the rule engine are the real ones, and are called in the daemon's order, once a
second: read the channels and what serves the rack, make the snapshot, evaluate what is due, show the engine's own
series in the next snapshot.
What is not here: the worker process and its pipe, the other backends (so no processor, no disk), receivers of alerts;
`expected.py` sets what they would show.
A rack is played as so many nodes like this one, in step; that they tell each other their power is not.

A read that would hang, in the synthetic fault of that name, is not made at all: the worker too is silent about it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend
from agent.backends.protocol import Channel, ChannelError, DeviceError, LaneSample
from agent.backends.rack_equipment import UNNAMED
from agent.backends.synthetic import Scenario, SyntheticSource
from agent.backends.synthetic.rack_service import services_of_scenario
from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnSeries
from agent.daemon.reloading import LastReload
from agent.daemon.sampling import FrameProvider
from agent.daemon.self_report import SelfMetrics
from agent.health.conditions import is_active
from agent.health.examination import ExpectationChoice, ExpectationSeries
from agent.model import Alert, Frame, Framer, Instant, Labels, Lane, Phase, Reading, Snapshot, readings_of
from agent.rack.agreement import Absences
from agent.rack.breakers import Heats
from agent.rack.nvlink_domain import DomainCounter, DomainShare
from agent.rack.power import Sum as RackPowerSum
from agent.rack.rack_options import RackOptions
from agent.rack.series import ConfiguredRack, RackSeries
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from alerts import packs, rulefile
from alerts.engine import Evaluation, RuleEngine, Ruleset
from alerts.exposition import Exposition
from alerts.inhibition import Inhibition, mark
from alerts.rulefile import RuleFile
from tests.lab.score.expected import WALL, Surroundings, silent_at

RULES = Path(__file__).resolve().parents[3] / "alerts" / "rules"
EPOCH = 5_000.0
PERIOD = 1
"""Seconds between two snapshots, and between two rounds of the engine: the daemon's defaults."""
LANES = ((Lane.FAST, 1), (Lane.SLOW, 15), (Lane.COLD, 60))
TOOK = 0.001
NODE_POWER = BY_NAME["coldplate_node_power_watts"]
TARGET = (("instance", "node:19400"), ("job", "coldplate"))


@cache
def load_pack() -> tuple[RuleFile, ...]:
    return tuple(rulefile.load(path, default_step=PERIOD) for path in sorted(RULES.glob("*.yml")))


@dataclass(frozen=True, slots=True)
class Firing:
    alert: str
    labels: Labels
    at: float

    def label(self, name: str) -> str:
        return dict(self.labels).get(name, "")


def begun(evaluations: Iterable[Evaluation]) -> Iterator[Alert]:
    """Yield the alerts that began to fire."""
    for each in evaluations:
        yield from (alert for alert in each.outcome.transitions if alert.phase is Phase.FIRING)


def played(rules: RuleFile, shown: Iterable[Sequence[Reading]], wall: float) -> Iterator[tuple[int, Alert]]:
    """Yield second and alert of each that begins to fire, over what a node shows in each second from `wall` on."""
    framer, engine = Framer(), RuleEngine(Ruleset((rules,)), TARGET, Instant(0.0, wall))
    for second, readings in enumerate(shown):
        now = Instant(float(second), wall + second)
        for alert in begun(engine.round(Snapshot(second, now, (framer.frame(readings),)), now)):
            yield second, alert


class Peers:
    """The other nodes of a rack: all like the one that is played, and in step with it.

    The NVLink domain of the others is that in which the node was first seen, whatever becomes of its own GPUs.
    """

    def __init__(self, rack: RackOptions) -> None:
        self._names = ["node:19400", *(f"node-{number}:19400" for number in range(1, rack.nodes_expected or 1))]
        self._nameplate = rack.nameplate
        self._heats, self._absences = Heats(rack.name, rack.breakers), Absences()
        self._census, self._series, self._own = DomainCounter(), RackSeries(rack.name), OwnSeries()
        self._domains: tuple[DomainShare, ...] = ()

    def sum(self, snapshot: Snapshot, silent: int) -> tuple[Reading, ...]:
        """What all but the last `silent` ones drew together in this second; they know it in the next one."""
        node = next((value for series, value in snapshot.readings if series.metric is NODE_POWER), None)
        if node is None:
            return ()
        now, names = snapshot.at, self._names[: len(self._names) - silent]
        total = RackPowerSum(int(now.wall), node * len(names), frozenset(names))
        self._absences.observe(self._names[len(names) :], 0, now.mono)
        made = [
            *self._series.of_sum(total, len(self._names), self._nameplate),
            *self._series.of_silence(self._absences.silent(now.mono)),
            *self._series.of_breakers(self._heats.update(node * len(self._names), now.mono)),
            *self._series.of_domains(self._joined(snapshot, names[1:])),
        ]
        return tuple(_readings(self._own.frame(made)))

    def _joined(self, snapshot: Snapshot, others: Sequence[str]) -> list[tuple[str, tuple[DomainShare, ...]]]:
        """The NVLink domains of all nodes that answer, if they have one."""
        own = self._census.of(snapshot.frames)
        self._domains = self._domains or own
        return [(self._names[0], own), *((name, self._domains) for name in others)]


def _readings(frame: Frame) -> list[Reading]:
    return list(readings_of(frame.layout.series, frame.values))


def _equipment_of(scenario: Scenario, rack: RackOptions | None, mono: Callable[[], float]) -> RackEquipmentBackend:
    """What serves the rack, if the scenario has that; this node is the one that asks."""
    services = services_of_scenario(scenario, lambda: mono() - EPOCH)
    name = UNNAMED if rack is None else rack.name
    return RackEquipmentBackend(name, {**services}, lambda _: True, mono, spawn=lambda job: job())


class Play:
    """A scenario on a synthetic node; every group of the rules evaluated at its own interval."""

    def __init__(
        self,
        scenario: Scenario,
        rules: Sequence[RuleFile],
        rack: RackOptions | None = None,
        providers: Sequence[FrameProvider] = (),
        begins: int = 0,
    ) -> None:
        """`begins` is the first second of the scenario that is played: the agent is started then."""
        self._scenario = scenario
        self._second = begins
        self._providers = providers
        self._source = SyntheticSource(scenario, EPOCH)
        self._surroundings = Surroundings(scenario.faults)
        self._equipment = _equipment_of(scenario, rack, lambda: self.now.mono)
        self._sampler = Sampler(Settings(), Inventory(None), self._source.name)
        self._self_metrics = SelfMetrics(self._scenario.name, LastReload(WALL))
        self._enlist()
        self._hangs = [fault for fault in scenario.faults if fault.kind == "hang"]
        self._peers = Peers(rack) if rack is not None else None
        self._rack = ConfiguredRack(rack or RackOptions())
        self._latest: Snapshot | None = None
        self._expectations = ExpectationSeries(lambda: self._latest, ExpectationChoice())
        self._rack_power: tuple[Reading, ...] = ()
        self._rack_framer = Framer()
        self._exposition = Exposition(TARGET)
        self._advice = {
            rule.name
            for file in rules
            if Path(file.path).stem == packs.ADVICE
            for group in file.groups
            for rule in group.rules
        }
        self.engine = RuleEngine(Ruleset(tuple(rules)), TARGET, self.now)
        self._inhibition = Inhibition()
        self._external = (("rack", rack.name),) if rack is not None else ()
        self.sent: dict[Labels, Firing] = {}
        """The first firing of each alert that the agent sends: neither advice nor inhibited when it began."""
        self.firings: list[Firing] = []
        """Every beginning of an alert, in the order of time."""
        self.failures: list[str] = []
        """Rules that failed, each time that they did."""

    def snapshots(self, second: int) -> Iterator[Snapshot]:
        """Plays on to this second, which is the first one not played; each snapshot, once it is judged."""
        while self._second < second:
            snapshot = self.sample()
            self.judge(snapshot)
            yield snapshot

    def until(self, second: int) -> Play:
        """Plays on to this second, which is the first one not played."""
        for _ in self.snapshots(second):
            pass
        return self

    def reopen(self) -> None:
        """Opens the devices again, as another worker does."""
        self._source.close()
        self._source = SyntheticSource(self._scenario, EPOCH)
        self._enlist()

    def reload(self, rules: Ruleset) -> None:
        """Other rules from now on; the groups that are gone are not counted any more, as the daemon does it."""
        self.engine.reload(rules, self.now)
        self._exposition.announce(group.name for group in rules.groups)

    def _enlist(self) -> None:
        self._framers: defaultdict[tuple[str, Lane], Framer] = defaultdict(Framer)
        self._channels = list(self._source.open(self.now))
        self._sampler.enlist([(each.key, each.identity) for each in self._channels], (), self.now.mono)

    def close(self) -> None:
        self._source.close()

    def firing(self) -> list[Alert]:
        return [alert for _, group in self.engine.groups() for alert in group.firing()]

    def conditions(self) -> list[Alert]:
        """What is pending or fires, effects marked, as the daemon publishes it."""
        reports = (mark(report, self._inhibition.causes) for report in self.engine.reports())
        return [alert for report in reports for rule in report.rules for alert in rule.alerts if is_active(alert)]

    @property
    def now(self) -> Instant:
        return Instant(EPOCH + self._second, WALL + self._second)

    def sample(self) -> Snapshot:
        """Reads what is due, and makes the snapshot of this second."""
        now = self.now
        lanes = [lane for lane, period in LANES if self._second % period == 0]
        for channel in self._channels:
            if not self._hangs or not self._is_hanging(channel):
                for lane in lanes:
                    self._read(channel, lane, now)
        for event in self._source.events(0.0):
            self._sampler.xids.add_xid(event)
        rules = self._exposition.frame(self.engine.reports(), self.engine.windows, ())
        equipment = self._equipment.read(Lane.FAST, now).readings
        rack = self._rack_framer.frame((*_readings(self._rack.frame(now)), *self._rack_power, *equipment))
        told = [self._self_metrics.frame(now), rack, self._expectations.frame(now), rules]
        told += [teller.frame(now) for teller in self._providers]
        made = self._sampler.snapshot(now, LoopFacts(ticks=self._second + 1, worker_up=True), told)
        snapshot = self._latest = self._surroundings.around(made, self._second)
        if self._peers is not None:
            self._rack_power = self._peers.sum(snapshot, silent_at(self._scenario.faults, self._second))
        return snapshot

    def _read(self, channel: Channel, lane: Lane, now: Instant) -> None:
        try:
            sample = channel.read(lane, now)
        except DeviceError as error:
            self._sampler.take_error(ChannelError(channel.key, lane, now.mono, error.reason, error.detail))
            return
        frame, gaps = self._framers[channel.key, lane].frame(sample.readings), tuple(sample.gaps)
        taken = LaneSample(channel.key, lane, now.mono, TOOK, sample.calls, frame, gaps)
        self._sampler.take_lane(taken)

    def _is_hanging(self, channel: Channel) -> bool:
        if channel.identity is None:
            return False
        number = int(channel.identity.gpu.index)
        return any(number in fault.gpus and fault.window.holds(self._second) for fault in self._hangs)

    def judge(self, snapshot: Snapshot, foreign: Sequence[Reading] = ()) -> list[Evaluation]:
        """Evaluates what is due in this second, and goes on to the next; what became of it."""
        done = self.engine.round(snapshot, self.now, foreign)
        for each in done:
            failures = each.outcome.failures
            self._exposition.count(each.group.name, len(each.group.rules.rules), len(failures), 0.0)
            self.failures.extend(f"{self._second} s: {failure.rule}: {failure.error}" for failure in failures)
        self.firings.extend(Firing(alert.rule, alert.labels, self._second) for alert in begun(done))
        self._send()
        self._second += PERIOD
        return done

    def _send(self) -> None:
        """Note what the daemon's dispatcher would send now."""
        records = [
            record
            for _, _, record in self.engine.remembered()
            if record.alert.phase is Phase.FIRING and record.alert.rule not in self._advice
        ]
        self._inhibition.update(records, self.now.mono, self._external)
        for alert in (record.alert for record in records):
            if alert.labels not in self._inhibition.causes:
                self.sent.setdefault(alert.labels, Firing(alert.rule, alert.labels, self._second))
