"""The facts of a run: its nodes, their GPUs, ports and jobs, and how evenly the GPUs of a job work.

Utilization is compared as means over five minutes: an instant says nothing about work that comes in steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import fmean
from typing import NamedTuple, TypeVar

from msgspec import Struct, field

from agent.health.device_facts import INTENDED
from agent.model import Entity, Gpu, IbPort, Labels, Node, NvLink, Reason
from agent.recording.file_records import RecordingHeader
from agent.recording.report import report_series as chosen
from agent.recording.report.report_series import StepSampler, StepTime, step_time
from agent.recording.report.series_statistics import (
    CounterStatistic,
    Envelope,
    GaugeStatistic,
    GaugeSummary,
    SeriesStatistic,
    StateStatistic,
    TimeGrid,
)

COUNTED_SECONDS = 1500.0
"""A run this long takes its energy and its throttled time from the driver's counters. They are read every 15 s, so a
shorter run could lack more than the 1 % by which the mean power of a second, added up, differed on an H200."""

_E = TypeVar("_E", bound=Entity)
_S = TypeVar("_S", GaugeStatistic, CounterStatistic, StateStatistic)
_NODE = Node()


class JobIdentity(NamedTuple):
    """A job that held GPUs: as its scheduler names it, and its owner and name where they are known."""

    scheduler: str
    job_id: str
    user: str = ""
    name: str = ""


class Measured(NamedTuple):
    """An amount over seconds, and its source: who counted it, or of what it was computed."""

    amount: float
    seconds: float
    source: str

    @property
    def per_second(self) -> float:
        return self.amount / self.seconds


class NodeFacts(Struct):
    """One node: `seconds` of recorded time in a number of `snapshots`, between the wall seconds `first` and `last`."""

    name: str
    grid: TimeGrid
    headers: list[RecordingHeader] = field(default_factory=list)
    snapshots: int = 0
    seconds: float = 0.0
    first: float = 0.0
    last: float = 0.0
    figures: dict[tuple[str, Entity], dict[Labels, SeriesStatistic]] = field(default_factory=dict)
    """What was kept of the series of a metric and an entity, by their other labels."""
    signals: dict[tuple[str, Entity], StepSampler] = field(default_factory=dict)
    absent: dict[tuple[str, Entity], Reason] = field(default_factory=dict)
    """Why a metric that some GPU or port lacks is absent, as its source said last."""

    def facts_of(self, entity: Entity = _NODE) -> EntityFacts:
        """Return what was kept of an entity: the node itself, one of its GPUs, ports or links."""
        return EntityFacts(self, entity)

    def power(self) -> dict[str, GaugeSummary]:
        """Return the power of the node in watts, by the meter that it is from."""
        meters = self.facts_of().series(chosen.NODE_POWER, GaugeStatistic)
        return {labels.get("source", ""): meter.summary() for labels, meter in meters}

    def processor_share(self) -> float | None:
        """Return the share of time in which its processors were busy; None where that was not seen."""
        modes = {mode: counter.growth for mode, counter in self.facts_of().growth_by(chosen.CPU, "mode").items()}
        whole = sum(modes.values())
        return 1 - (modes.get("idle", 0.0) + modes.get("iowait", 0.0)) / whole if whole else None

    def io_waiting(self) -> float | None:
        """Return the share of time in which some task waited for storage; None where that was not seen."""
        io = self.facts_of().growth_by(chosen.PRESSURE, "resource").get("io")
        return io.mean if io is not None else None

    def entities(self, kind: type[_E]) -> list[_E]:
        """Return the GPUs, ports or links of which something was seen."""
        return sorted({holder for _, holder in self.figures if isinstance(holder, kind)}, key=_order)


def _order(entity: Entity) -> tuple[tuple[int, str], ...]:
    return tuple((int(text) if text.isdecimal() and len(text) < 9 else 10**9, text) for _, text in entity.labels)


class EntityFacts:
    """What was kept of an entity of a node. A value that the run does not have is None, never 0."""

    def __init__(self, node: NodeFacts, entity: Entity) -> None:
        self.node, self.entity = node, entity

    def series(self, name: str, kind: type[_S]) -> list[tuple[dict[str, str], _S]]:
        """Return the series of a metric with their labels; gauges that were seen, counters that were seen twice."""
        figures = self.node.figures.get((name, self.entity), {}).items()
        return [(dict(labels), figure) for labels, figure in figures if isinstance(figure, kind) and figure.seconds]

    def states(self, name: str) -> list[tuple[dict[str, str], StateStatistic]]:
        return self.series(name, StateStatistic)

    def growths(self, name: str) -> list[tuple[dict[str, str], CounterStatistic]]:
        return self.series(name, CounterStatistic)

    def gauge(self, name: str) -> GaugeStatistic | None:
        """Return a gauge without labels; of clocks that of the multiprocessors, which alone is kept."""
        return next((gauge for _, gauge in self.series(name, GaugeStatistic)), None)

    def growth(self, name: str) -> CounterStatistic | None:
        """Return a counter without labels."""
        return next((counter for _, counter in self.growths(name)), None)

    def summary(self, name: str) -> GaugeSummary | None:
        gauge = self.gauge(name)
        return gauge.summary() if gauge is not None else None

    def mean(self, *names: str) -> float | None:
        """Return the mean of a gauge or the rate of a counter, or the sum of several; None if one was not seen."""
        figures = [figure for name in names if (figure := self.gauge(name) or self.growth(name)) is not None]
        return sum(figure.mean for figure in figures) if len(figures) == len(names) else None

    def peak(self, *names: str) -> float | None:
        """Return the highest value of a gauge or rate of a counter, or the sum of several; None if one was not seen."""
        envelopes = self.envelopes(names)
        return sum(max(envelope.highs) for envelope in envelopes) if envelopes else None

    def envelopes(self, names: Sequence[str]) -> list[Envelope]:
        """Return gauges, or the rates of counters, in the parts of the grid; none if one of them was not seen."""
        figures = [self.gauge(name) or self.growth(name) for name in names]
        envelopes = [figure.envelope for figure in figures if figure is not None and figure.envelope is not None]
        return envelopes if len(envelopes) == len(names) else []

    def means(self, name: str) -> list[float | None] | None:
        """Return the means of a gauge in the parts of the grid."""
        gauge = self.gauge(name)
        return gauge.envelope.means() if gauge is not None else None

    def growth_by(self, name: str, label: str) -> dict[str, CounterStatistic]:
        """Return the counters of a metric by the value of its label."""
        return {labels.get(label, ""): counter for labels, counter in self.growths(name)}


class GpuFacts(EntityFacts):
    """One GPU of one node."""

    def __init__(self, node: NodeFacts, gpu: Gpu, *, alone: bool) -> None:
        """`alone` says that the run has one node, which then need not be named."""
        super().__init__(node, gpu)
        self.gpu = gpu
        self.title = gpu.index if alone else f"{node.name}/{gpu.index}"

    @property
    def model(self) -> str:
        """Its model; empty where it never said."""
        return next((labels.get("model", "") for labels, _ in self.states(chosen.GPU_INFO)), "")

    @property
    def power_limit(self) -> float | None:
        """The power limit in force last, in watts."""
        gauge = self.gauge(chosen.POWER_LIMIT)
        return gauge.last if gauge is not None else None

    @property
    def silent_seconds(self) -> float:
        """Seconds in which the agent said that it does not answer."""
        return sum(state.off for _, state in self.states(chosen.GPU_UP))

    def links(self) -> list[tuple[int, StateStatistic]]:
        """Return its NVLinks by number, and when each was up."""
        links = [link for link in self.node.entities(NvLink) if link.gpu == self.gpu]
        return [(link.link, state) for link in links for _, state in self.node.facts_of(link).states(chosen.NVLINK_UP)]

    def energy(self) -> Measured | None:
        """Return joules, of the `counter` or integrated from `power`."""
        counter, power = self.growth(chosen.ENERGY), self.summary(chosen.POWER)
        if counter is not None and (power is None or counter.seconds >= COUNTED_SECONDS):
            return Measured(counter.growth, counter.seconds, "counter")
        return Measured(power.mean * power.seconds, power.seconds, "power") if power is not None else None

    def state_seconds(self) -> dict[str, float]:
        """Return seconds by what the GPU did, as its agent counted them; empty if that was not recorded."""
        return {state: counter.growth for state, counter in self.growth_by(chosen.STATE_SECONDS, "state").items()}

    def throttled_seconds(self) -> dict[str, Measured]:
        """Return seconds with reduced clocks by reason, as the `driver` counted them or `samples` show."""
        by_reason = {
            labels.get("reason", ""): Measured(state.on, state.seconds, "samples")
            for labels, state in self.states(chosen.THROTTLE_ACTIVE)
        }
        for reason, counter in self.growth_by(chosen.THROTTLED, "reason").items():
            if reason not in by_reason or counter.seconds >= COUNTED_SECONDS:
                by_reason[reason] = Measured(min(counter.growth, counter.seconds), counter.seconds, "driver")
        return by_reason

    def slowed_seconds(self) -> dict[str, Measured]:
        """Return the same of those reasons that are not normal, as idleness and the power cap are."""
        return {reason: measured for reason, measured in self.throttled_seconds().items() if reason not in INTENDED}

    def lost_seconds(self) -> Measured | None:
        """Return the time with clocks reduced for the longest of the reasons that are not normal."""
        longest = max(self.slowed_seconds().values(), key=lambda measured: measured.amount, default=None)
        seconds = max((measured.seconds for measured in self.throttled_seconds().values()), default=0.0)
        return longest._replace(seconds=seconds) if longest is not None else None

    def capped_share(self) -> Measured | None:
        """Return the share of time at the power limit.

        The `driver` or its `samples` show when the limit held the clocks; else the `power` does, from 97 % of it on.
        """
        capped = self.throttled_seconds().get("sw_power_cap")
        if capped is not None:
            return capped._replace(amount=capped.per_second)
        power, limit = self.gauge(chosen.POWER), self.power_limit
        return Measured(power.share_from(0.97 * limit), power.seconds, "power") if power is not None and limit else None

    def job(self) -> JobIdentity | None:
        """Return the job that held it for the longest time; None if none did."""
        held = [(figure.on, labels) for labels, figure in self.states(chosen.HOLDER) if labels.get("shared") != "true"]
        if not held:
            return None
        labels = max(held, key=lambda one: one[0])[1]
        return JobIdentity(*(labels.get(name, "") for name in JobIdentity._fields))


class RecordedRun(Struct):
    """One or more recordings of a run. `problems` are what was wrong with the files, in texts that name them."""

    nodes: list[NodeFacts]
    grid: TimeGrid
    interval: float
    first: float
    last: float
    files: list[str]
    problems: list[str]

    def gpus(self) -> list[GpuFacts]:
        """Return all GPUs, node by node."""
        alone = len(self.nodes) == 1
        return [GpuFacts(node, gpu, alone=alone) for node in self.nodes for gpu in node.entities(Gpu)]

    def ports(self) -> list[tuple[IbPort, EntityFacts]]:
        """Return all InfiniBand ports, node by node."""
        return [(port, node.facts_of(port)) for node in self.nodes for port in node.entities(IbPort)]

    def groups(self) -> list[tuple[JobIdentity | None, list[GpuFacts]]]:
        """GPUs that are to be compared with each other: those of a job, of the same model; None if of no job."""
        groups: dict[tuple[str, str, str], tuple[JobIdentity | None, list[GpuFacts]]] = {}
        for gpu in self.gpus():
            job = gpu.job()
            key = (job.scheduler, job.job_id, gpu.model) if job else ("", gpu.node.name, "")
            groups.setdefault(key, (job, []))[1].append(gpu)
        return list(groups.values())

    @property
    def span(self) -> float:
        """Seconds from the first snapshot to the last."""
        return self.last - self.first + self.interval


WINDOW_SECONDS = 300.0
SHORTEST_WINDOW_SECONDS = 60.0
"""Seconds of a window where the recording is shorter than five minutes; of less there is no figure."""
_WHOLE = 0.8
"""Share of a window's parts of the grid in which a GPU must have been seen."""

_UNKNOWN = 0.05
"""Share of the time of a group from which on a GPU without utilization is named."""

Means = Sequence["float | None"]


class Imbalance(Struct):
    """The difference of utilization between GPUs of a job, in windows of `window` seconds, over `seconds` in all."""

    window: float
    seconds: float
    mean: float
    largest: float


def imbalance_of(gpus: Sequence[GpuFacts]) -> Imbalance | None:
    """Return how uneven the work of these GPUs was; None of fewer than two, or of less than a minute."""
    columns = [means for gpu in gpus if (means := gpu.means(chosen.UTILIZATION)) is not None]
    grid = gpus[0].node.grid
    seconds = min(WINDOW_SECONDS, grid.width * grid.count)
    if len(columns) < 2 or seconds < SHORTEST_WINDOW_SECONDS:
        return None
    parts = ceil(seconds / grid.width - 1e-9)
    spreads: list[float] = []
    for first in range(0, grid.count, parts):
        shares = [mean for means in columns if (mean := _mean(means, first, parts)) is not None]
        if len(shares) > 1:
            spreads.append(max(shares) - min(shares))
    if not spreads:
        return None
    length = parts * grid.width
    return Imbalance(length, min(len(spreads) * length, grid.count * grid.width), fmean(spreads), max(spreads))


def unknown_utilization(gpus: Sequence[GpuFacts]) -> list[tuple[GpuFacts, float]]:
    """Return the GPUs that lack utilization while others of these have it, with the share of that time."""
    columns = [gpu.means(chosen.UTILIZATION) or [None] * gpu.node.grid.count for gpu in gpus]
    known_parts = [
        part for part, means in enumerate(zip(*columns, strict=True)) if any(mean is not None for mean in means)
    ]
    shares: list[tuple[GpuFacts, float]] = []
    for gpu, means in zip(gpus, columns, strict=True):
        missing_parts = [part for part in known_parts if means[part] is None]
        if missing_parts and len(missing_parts) >= _UNKNOWN * len(known_parts):
            shares.append((gpu, len(missing_parts) / len(known_parts)))
    return shares


def _mean(values: Means, first: int, parts: int) -> float | None:
    present = [value for value in values[first : first + parts] if value is not None]
    return fmean(present) if present and len(present) >= _WHOLE * parts else None


_STEP_GPUS = 4
"""GPUs of a job in which its steps are looked for: all have the same."""


def step_of(gpus: Sequence[GpuFacts]) -> tuple[StepTime, str, int] | None:
    """Return the step time of a job, in what it shows, and in how many of its GPUs alike; None unless most agree."""
    chosen_gpus = gpus[:: max(1, len(gpus) // _STEP_GPUS)][:_STEP_GPUS]
    for name, words in chosen.STEPPING.items():
        signals = [gpu.node.signals.get((name, gpu.gpu)) for gpu in chosen_gpus]
        steps = [step for signal in signals if signal is not None and (step := step_time(signal)) is not None]
        if not steps:
            continue
        middle = sorted(steps)[len(steps) // 2]
        near = [step for step in steps if abs(step.seconds - middle.seconds) <= 0.05 * middle.seconds]
        if 2 * len(near) > len(chosen_gpus):
            return middle, words, len(near)
    return None
