"""Make a view of a node from a snapshot: its GPUs, ports, power, rack and alerts, and the last minutes of each GPU.

What is seen of a GPU is what the page at `/` shows of it. What has no value is absent from the mappings here, and None
in the fields. A sample without a value leaves a hole in a sparkline, not a line at zero.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from agent.catalogue import BY_NAME
from agent.commands.top.screen.node_samples import GPU_ERRORS, PORT, PORT_ERRORS, ProcessRow, Traffic
from agent.health.conditions import DeviceConditions, condition_text
from agent.health.device_facts import PortFacts, port_facts
from agent.health.ledger_states import STATE_SECONDS
from agent.health.seen_node import CLOCKS, SeenGpu, SeenNode
from agent.model import Alert, Gpu, Labels, Node, PastMoment, Rack, Snapshot
from exporters import landing
from exporters.headlines import Headline, unread_lines
from exporters.landing_parts import JobFacts, gpu_tone, job_facts, port_tone
from exporters.markup import Tone

_SYNTHETIC, _REPLAY, _NODE_POWER = "coldplate_synthetic_info", "coldplate_replay_info", "coldplate_node_power_watts"
_RACK_POWER, _RACK_BUDGET = "coldplate_rack_power_watts", "coldplate_rack_power_budget_watts"
_OF_GPU = [name for name, row in BY_NAME.items() if row.entity is Gpu and not row.labels]
_OF_RACK = (_RACK_POWER, _RACK_BUDGET, "coldplate_rack_nodes_expected", "coldplate_rack_nodes_reporting")


class GpuView(Struct):
    """One GPU. `rates` in bytes per second by metric name; `memory_clocks` in hertz, now and at most, as far as known.

    `growth` is what error counters grew in the last minute, by what they are called. The histories are ratios of 0 to 1
    and watts, the newest last, None where a sample had no value.
    """

    node: str
    row: SeenGpu
    memory_clocks: tuple[float | None, float | None] = (None, None)
    rates: dict[str, float] = field(default_factory=dict)
    growth: dict[str, float] = field(default_factory=dict)
    state_seconds: dict[str, float] = field(default_factory=dict)
    busy_history: Sequence[float | None] = ()
    power_history: Sequence[float | None] = ()

    @property
    def key(self) -> tuple[str, str]:
        """Who it is among the GPUs of many nodes: one that never identified itself has no uuid."""
        return self.node, self.row.gpu.uuid or self.row.gpu.index

    @property
    def index(self) -> str:
        return self.row.gpu.index

    @property
    def tone(self) -> Tone:
        return gpu_tone(self.row)

    @property
    def doing(self) -> str:
        """What it did for most of the last minute, or since the first sample, by the ledger; empty if not known."""
        return max(self.state_seconds, key=self.state_seconds.__getitem__) if any(self.state_seconds.values()) else ""

    @property
    def word(self) -> str:
        return self.row.word

    @property
    def reasons(self) -> str:
        """The conditions that name it, and why it is not read, in one line."""
        return "; ".join(filter(None, [*map(condition_text, self.row.conditions), self.row.silence_text]))

    @property
    def job(self) -> Mapping[str, str] | None:
        """The one job that holds it; None if no job or several do."""
        return self.row.jobs[0] if len(self.row.jobs) == 1 else None

    def value(self, name: str) -> float | None:
        """Return a reading in base units by its metric's name without `coldplate_gpu_`; of clocks the SM's."""
        return self.row.values.get(f"coldplate_gpu_{name}")

    def rate(self, *names: str) -> float | None:
        """Return the sum of the rates of these counters, None unless all are known."""
        rates = [self.rates[name] for name in names if name in self.rates]
        return sum(rates) if len(rates) == len(names) else None


class PortView(Struct):
    """One InfiniBand or RoCE port; rates in bytes per second, `growth` as for a GPU; `conditions` of all devices."""

    state: PortFacts
    received: float | None = None
    sent: float | None = None
    growth: Mapping[str, float] = field(default_factory=dict)
    conditions: DeviceConditions = field(default_factory=DeviceConditions)

    @property
    def name(self) -> str:
        return f"{self.state.port.device}/{self.state.port.port}"

    @property
    def tone(self) -> Tone:
        return port_tone(self.state, self.conditions)


class NodeView(Struct):
    """One node. `problem` says why the node has no readings; empty if it has.

    `alerts`: None if no rules are evaluated. `unjudged` says why their absence proves nothing; empty if the rules are
    up to date. `power` in watts with its source. The rack's, in watts: None without a configured rack, and while its
    sum is not known.
    """

    name: str
    origin: str
    wall: float | None = None
    age: float | None = None
    problem: str = ""
    scenario: str | None = None
    replayed: str = ""
    """The node whose recording is played; empty if nothing is."""
    gpus: list[GpuView] = field(default_factory=list)
    ports: list[PortView] = field(default_factory=list)
    expected: int | None = None
    """How many GPUs the agent expects."""
    power: float | None = None
    power_source: str = ""
    host_load: tuple[float, float] | None = None
    """Its load of the last minute, and its CPUs; None where they are not read."""
    host_memory: tuple[float, float] | None = None
    """Bytes of its memory in use, and of all; None where they are not read."""
    rack: str = ""
    rack_power: float | None = None
    rack_budget: float | None = None
    jobs: dict[tuple[str, str], JobFacts] = field(default_factory=dict)
    alerts: Sequence[Alert] | None = None
    unjudged: str = ""
    states: Mapping[Gpu, str] | None = None
    """The states that its agent gives, as on its page; None where the command reads the devices."""
    unread: Sequence[Headline] = ()
    """What could not be read."""
    processes: Mapping[Gpu, Sequence[ProcessRow]] | None = None
    """Those of the GPUs whose driver lists them; None where an agent, which does not give them, is asked."""

    @property
    def drivers(self) -> list[str]:
        return sorted({gpu.row.facts.get("driver_version", "") for gpu in self.gpus} - {""})

    @property
    def models(self) -> list[str]:
        return sorted({gpu.row.facts.get("model", "") for gpu in self.gpus} - {""})


def view_of(name: str, origin: str, snapshot: Snapshot, traffic: Traffic) -> NodeView:
    """Return the node as the snapshot shows it; histories and conditions are added by others."""
    readings = SeenNode((*landing.METRICS, *_OF_GPU, _SYNTHETIC, _REPLAY, *_OF_RACK))
    readings.add_snapshot(snapshot)
    view = NodeView(name, origin, snapshot.at.wall, expected=readings.expected_gpus)
    view.scenario = next((reading.labels.get("scenario", "") for reading in readings.all(_SYNTHETIC)), None)
    view.replayed = next((reading.labels.get("node", "") for reading in readings.all(_REPLAY)), "")
    for meter in readings.all(_NODE_POWER)[:1]:  # it has a series for each meter: the first is the one that counts
        view.power, view.power_source = meter.value, meter.labels.get("source", "")
    load, cpus, available, total = (readings.by_entity(metric).get(Node()) for metric in landing.HOST)
    if load is not None and cpus is not None:
        view.host_load = (load, cpus)
    if available is not None and total is not None:
        view.host_memory = (total - available, total)
    racks = (reading.entity for metric in _OF_RACK for reading in readings.all(metric))
    view.rack = next((rack.name for rack in racks if isinstance(rack, Rack)), "")
    view.rack_power, view.rack_budget = (
        next((reading.value for reading in readings.all(metric)), None) for metric in (_RACK_POWER, _RACK_BUDGET)
    )
    clock, limit = (
        {reading.entity: reading.value for reading in readings.all(metric) if reading.labels.get("domain") == "memory"}
        for metric in CLOCKS
    )
    gpus = {gpu: GpuView(name, row, (clock.get(gpu), limit.get(gpu))) for gpu, row in readings.by_gpu.items()}
    for (metric, entity), rate in traffic.rates.items():
        if (gpu := gpus.get(entity)) is not None:
            gpu.rates[metric] = rate
    for (metric, entity, labels), grown in traffic.growth.items():
        gpu = gpus.get(entity)
        if gpu is not None and metric == STATE_SECONDS:
            gpu.state_seconds[dict(labels)["state"]] = grown
        elif gpu is not None and metric in GPU_ERRORS:
            gpu.growth[_counter_name(metric, labels)] = grown
    view.jobs = job_facts(readings)
    view.gpus = list(gpus.values())
    view.ports = list(_ports(readings, traffic))
    view.unread = list(unread_lines(readings, snapshot.reports))
    return view


def _ports(readings: SeenNode, traffic: Traffic) -> Iterator[PortView]:
    for state in port_facts(readings):
        growth = {
            _counter_name(name, labels): grown
            for (name, at, labels), grown in traffic.growth.items()
            if at == state.port and name in PORT_ERRORS and grown > 0
        }
        received, sent = (traffic.rates.get((name, state.port)) for name in PORT)
        yield PortView(state, received, sent, growth)


def _counter_name(metric: str, labels: Labels) -> str:
    """Return what people call a counter of errors; of a type or reason, with it."""
    word = PORT_ERRORS.get(metric) or GPU_ERRORS[metric]
    qualifier = next((value for name, value in labels if name in ("type", "reason")), "")
    return f"{word} ({qualifier})" if qualifier else word


MOST = 600
"""Samples that are kept of a GPU."""
BUSY, POWER = "coldplate_gpu_utilization_ratio", "coldplate_gpu_power_watts"
_EARLY = 0.9
"""Share of the interval after which a remembered sample may follow another: their times are not quite even."""

_Line = deque[float | None]


class NodeHistory:
    """Remembers busy share and power of a node's GPUs, one sample for each new moment of the node.

    What its agent remembers of the time before is put in front, once, as far apart as `interval` seconds.
    """

    def __init__(self, interval: float) -> None:
        self._interval = interval
        self._lines: dict[tuple[str, tuple[str, str]], _Line] = {}
        self._begun: float | None = None
        self._wall: float | None = None
        self._is_prefixed = False

    def add_sample(self, node: NodeView, past: Sequence[PastMoment]) -> None:
        """Note what the GPUs do, and give each of them its history."""
        assert node.wall is not None
        is_fresh, self._wall = node.wall != self._wall, node.wall
        self._begun = node.wall if self._begun is None else self._begun
        moments: list[Mapping[tuple[str, object], float]] = []
        if past and not self._is_prefixed:
            self._is_prefixed = True
            moments = [_values(moment) for moment in self._before(past, self._begun)]
        for gpu in node.gpus:
            for name, value in ((BUSY, gpu.row.busy), (POWER, gpu.value("power_watts"))):
                line = self._lines.setdefault((name, gpu.key), deque(maxlen=MOST))
                if is_fresh:
                    line.append(value)
                line.extendleft(moment.get((name, gpu.row.gpu)) for moment in moments[: MOST - len(line)])
            gpu.busy_history = tuple(self._lines[BUSY, gpu.key])
            gpu.power_history = tuple(self._lines[POWER, gpu.key])

    def _before(self, past: Sequence[PastMoment], wall: float) -> Iterator[PastMoment]:
        """Yield the moments before this one, the newest first."""
        for moment in reversed(past):
            if wall - moment.wall >= self._interval * _EARLY:
                wall = moment.wall
                yield moment


def _values(moment: PastMoment) -> Mapping[tuple[str, object], float]:
    return {
        (series.metric.name, series.entity): value
        for layout, values in moment.parts
        for series, value in zip(layout.series, values, strict=True)
        if isinstance(series.entity, Gpu)
    }
