"""Simulate a node and its rack: synthetic devices and the agent's own sampler, without processes, threads and clock.

A node is sampled when it is scraped, at the beginning of the second: the result equals that of an agent that samples
each second, because every synthetic reading is computed for its time. Between two scrapes it is sampled once in
`stride` seconds: rolling statistics and busy time are those of these samples.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import fsum

from agent.backends.protocol import Channel, ChannelError, DeviceError, LaneSample, Roster, SourceError
from agent.backends.synthetic import SyntheticSource
from agent.backends.synthetic.gpu_history import Track
from agent.backends.synthetic.non_gpu_channel import NodePowerModel
from agent.catalogue import BY_NAME
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.commands.simulate.simulated_site import Outage, SiteNode, SiteRack
from agent.daemon.hub import Hub
from agent.daemon.reloading import LastReload
from agent.daemon.self_report import SelfMetrics
from agent.health.examination import ExpectationChoice, ExpectationSeries
from agent.model import Frame, Framer, Instant, Lane, Rack, Reading, Reason, Series, Snapshot
from agent.rack.agreement import GRACE_SECONDS
from agent.rack.power import Sum
from agent.rack.rack_options import RackOptions
from agent.rack.series import ConfiguredRack, RackSeries
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from exporters.encoder import Encoder, Format
from exporters.pages import age_of
from exporters.selection import SeriesSelection

PEER_UP = BY_NAME["coldplate_rack_peer_up"]
FAMILY = "synthetic"


class SimulatedRack:
    """One rack. Seconds are those of the simulation, which began at `began`, in whole seconds since the epoch."""

    def __init__(self, plan: SiteRack, outages: Sequence[Outage], began: int) -> None:
        self._plan = plan
        self._began = began
        self._outages = {name: [outage for outage in outages if name in outage.nodes] for name in plan.nodes}
        self.meters: dict[str, NodePowerModel] = {}
        """What gives the power of each node."""
        self._configured = ConfiguredRack(
            RackOptions(plan.name, nodes_expected=len(plan.nodes), budget=plan.budget)
        ).readings
        self._series = RackSeries(plan.name)
        self._own = OwnSeries()
        self._frame: tuple[int, Frame] | None = None
        self._peers = {name: Series(PEER_UP, Rack(plan.name), (("peer", name),)) for name in plan.nodes}

    def down(self, name: str, t: float) -> float | None:
        """Return since which second the node has not answered at `t`; None if it does."""
        starts = [outage.window.begun(t) for outage in self._outages[name]]
        return min((start for start in starts if start is not None), default=None)

    def times_down(self, name: str, t: float) -> int:
        """Return how often the node has gone down by `t`."""
        return sum(outage.window.started(t) for outage in self._outages[name])

    def frame(self, t: int) -> Frame:
        """Return what every node of the rack shows of it at this second."""
        if self._frame is None or self._frame[0] != t:
            self._frame = (t, self._own.frame(self._readings(t)))
        return self._frame[1]

    def peers(self, name: str, t: int) -> list[Reading]:
        """Return what a node reports of the others."""
        return [
            Reading(series, 1.0 if self.down(other, t) is None else 0.0)
            for other, series in self._peers.items()
            if other != name
        ]

    def _readings(self, t: int) -> list[OwnReading]:
        since = {name: self.down(name, t) for name in self.meters}
        power = {name: meter.watts(t) for name, meter in self.meters.items() if since[name] is None}
        total = Sum(self._began + t, fsum(power.values()), frozenset(power)) if power else None
        silent = sum(1 for begun in since.values() if begun is not None and t - begun >= GRACE_SECONDS)
        sources: Mapping[str, int] = {FAMILY: len(power)} if power else {}
        return [
            *self._configured,
            *self._series.of_sum(total, len(self._plan.nodes), None),
            *self._series.of_sources(sources),
            *self._series.of_silence(None if t < GRACE_SECONDS else silent),
        ]


WINDOW_SECONDS = 60
"""Seconds of rolling statistics: what was before them need not be sampled any more."""
SLOW_SECONDS, COLD_SECONDS = 15.0, 60.0
EARLY = 0.8
"""The share of a lane's period after which it is read: scrapes come a little early or late."""
TOOK_SECONDS = 0.001
"""Seconds that a read is said to take."""


class SimulatedAgent:
    """The agent of a node from its start on: a node that was down gets another one."""

    def __init__(self, plan: SiteNode, rack: SimulatedRack, stride: int, began: int, since: int = 0) -> None:
        """`since` is the second in which the agent starts: earlier XID errors are not reported."""
        self._plan, self._rack, self._stride, self._began, self._since = plan, rack, stride, began, since
        settings = Settings(fast=float(stride), slow=SLOW_SECONDS, cold=COLD_SECONDS)
        self._sampler = Sampler(settings, Inventory(None), FAMILY)
        self._source: SyntheticSource | None = None
        self._roster: Roster | None = None
        self._framers: defaultdict[tuple[str, Lane], Framer] = defaultdict(Framer)
        self.encoder = Encoder()
        """Lays out its pages; what it remembers of them goes with the agent."""
        self._peers = Framer()
        self._own: SelfMetrics | None = None
        self._hub = hub = Hub()  # and not this object: in a cycle it would outlive its node's return
        self._expectations = ExpectationSeries(lambda: hub.latest, ExpectationChoice(), FAMILY)
        self._read: dict[Lane, int] = {}
        self._ticks = 0

    @property
    def latest(self) -> Snapshot | None:
        return self._hub.latest

    def sample(self, t: int) -> None:
        """Sample the node at second `t`, and before that whatever has been left out since the last time."""
        for moment in self._moments(t):
            self._tick(moment)
        if self.latest is None or self.latest.at.mono != t:
            self._hub.publish(self._snapshot(t))

    def _moments(self, t: int) -> Iterator[int]:
        last = self._read.get(Lane.FAST)
        if last is None:
            yield t
            return
        skipped = max(0, (t - WINDOW_SECONDS - last) // self._stride)
        yield from range(last + (1 + skipped) * self._stride, t, self._stride)
        if t > last:
            yield t

    def _tick(self, t: int) -> None:
        now = self._instant(t)
        self._ticks += 1
        due = [lane for lane, period in _PERIODS if t - self._read.get(lane, -COLD_SECONDS) >= EARLY * period]
        try:
            source, roster = self._enlist_devices(now)
            for channel in roster.channels:
                if not source.is_hanging(channel, now):
                    for lane in due:
                        self._read_lane(channel, lane, now)
            self._sampler.take_xids(source.events(0.0))
        except SourceError as error:
            self._source = self._roster = None
            self._sampler.refused(Reason.LOST, str(error))
        self._read.update(dict.fromkeys(due, t))

    def _enlist_devices(self, now: Instant) -> tuple[SyntheticSource, Roster]:
        """Return the source, opened if it is not, and its devices. Raises SourceError."""
        source = self._source
        if source is None:
            source = SyntheticSource(self._plan.scenario, 0.0)
            source.open(now if self._read else self._instant(self._since))
            self._source = source
        roster = source.roster(now)
        if roster != self._roster:
            self._roster = roster
            channels = [(channel.key, channel.identity) for channel in roster.channels]
            self._sampler.enlist(channels, roster.unidentified, now.mono)
        return source, roster

    def _read_lane(self, channel: Channel, lane: Lane, now: Instant) -> None:
        try:
            sample = channel.read(lane, now)
        except DeviceError as error:
            self._sampler.take_error(ChannelError(channel.key, lane, now.mono, error.reason, error.detail))
            return
        frame = self._framers[channel.key, lane].frame(sample.readings)
        lane_sample = LaneSample(channel.key, lane, now.mono, TOOK_SECONDS, sample.calls, frame, tuple(sample.gaps))
        self._sampler.take_lane(lane_sample)

    def _snapshot(self, t: int) -> Snapshot:
        now = self._instant(t)
        if self._own is None:
            self._own = SelfMetrics(self._plan.scenario.name, LastReload(now.wall))
        own = (
            self._own.frame(now),
            self._rack.frame(t),
            self._peers.frame(self._rack.peers(self._plan.name, t)),
            self._expectations.frame(now),
        )
        return self._sampler.snapshot(now, LoopFacts(ticks=self._ticks, worker_up=True), own)

    def _instant(self, t: int) -> Instant:
        return Instant(float(t), float(self._began + t))


_PERIODS: Sequence[tuple[Lane, float]] = ((Lane.FAST, 0.0), (Lane.SLOW, SLOW_SECONDS), (Lane.COLD, COLD_SECONDS))


class SimulatedNode:
    """A node of the site, whose agent comes and goes. For one thread."""

    def __init__(self, plan: SiteNode, rack: SimulatedRack, stride: int, began: int, profile: str) -> None:
        """`stride` in seconds; `began` is when the simulation did, in whole seconds since the epoch.

        `profile` says which series its page has.
        """
        self.plan = plan
        self._rack, self._stride, self._began = rack, stride, began
        self._selection = SeriesSelection(profile)
        self.agent = SimulatedAgent(plan, rack, stride, began)
        self.agents = 1
        """How many agents the node has had."""
        tracks = [Track(plan.scenario, number) for number in range(plan.scenario.topology.gpus)]
        rack.meters[plan.name] = NodePowerModel(plan.scenario, tracks)

    def render(self, fmt: Format, now: float) -> bytes:
        """Return its page at second `now` of the simulation."""
        agent = self.agent
        agent.sample(int(now))
        snapshot = agent.latest
        assert snapshot is not None
        return agent.encoder.render(self._selection.apply(snapshot), fmt, age_of(snapshot, now))

    def is_down(self, t: float) -> bool:
        """Return whether the node answers at `t`.

        Once it has come back, it has another agent, which knows of nothing.
        """
        if self._rack.down(self.plan.name, t) is not None:
            return True
        agents = 1 + self._rack.times_down(self.plan.name, t)
        if agents != self.agents:
            self.agents = agents
            self.agent = SimulatedAgent(self.plan, self._rack, self._stride, self._began, int(t))
        return False
