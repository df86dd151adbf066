"""Compute sums over the node's GPUs and over those of each job, the ends of each GPU's NVLink traffic, and the node's
power by estimate if nothing measures it.

A server that reads thousands of nodes reads these in place of every GPU or link: one series where there were eight or
sixty. Links of a GPU share its traffic evenly where the fabric is whole: one that carries less than the others is slow
or takes errors, which the least and the most loaded link show.

An estimate is always labelled as one. On 8-GPU H100 nodes a BMC showed 1.1 times the sum of the GPUs' power plus 1.5
to 1.9 kW, with a residual of about 1 kW (standard deviation): fans, processors, NICs and the loss in the supplies. The
constant is spread over the eight GPUs, so that smaller boards of the same kind get their share. Other machines have
other coefficients, which can be configured.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import add, itemgetter, sub
from typing import NamedTuple

from msgspec import Struct

from agent.catalogue import BY_NAME
from agent.catalogue.jobs import JOB
from agent.lib.layout_columns import picker
from agent.model import EMPTY_LAYOUT, Entity, Frame, Framer, Gpu, Labels, Layout, Metric, Node, NvLink, Reading, Series

_SENT, _RECEIVED = (BY_NAME[f"coldplate_nvlink_{way}_bytes_total"] for way in ("transmit", "receive"))
_ROWS = tuple(BY_NAME[f"coldplate_gpu_nvlink_traffic_{end}_bytes_per_second"] for end in ("lowest", "highest"))


class LinkRates:
    """Compares the links of one GPU. Its counters come conditioned: they never fall, and garbage is left out."""

    def __init__(self) -> None:
        self._layout = EMPTY_LAYOUT
        self._shown = EMPTY_LAYOUT
        self._has_links = False
        self._before: tuple[float, tuple[float, ...]] | None = None

    def beside(self, at: float, frame: Frame, shortest: float, longest: float) -> Frame:
        """Return the frame with the rates since the one before. `at`, `shortest` and `longest` are in seconds.

        Without them if that one had other links, or is not `shortest` to `longest` ago: a driver that is asked twice
        in a row says nothing of a rate, nor does a mean over a time of which nothing is known.
        """
        if frame.layout is not self._layout:
            self._find(frame.layout)
        if not self._has_links:
            return frame
        counts = tuple(map(add, self._pick_sent(frame.values), self._pick_received(frame.values)))
        seconds = at - self._before[0] if self._before is not None else longest + 1.0
        if seconds < shortest:
            return frame
        before, self._before = self._before, (at, counts)
        if before is None or seconds > longest:
            return frame
        grown = tuple(map(sub, counts, before[1]))
        return Frame(self._shown, (*frame.values, min(grown) / seconds, max(grown) / seconds))

    def _find(self, layout: Layout) -> None:
        """Note where the counters of the links are; a link that has only one of them is not compared."""
        sent, received = (
            {series.entity: place for place, series in enumerate(layout.series) if series.metric is counter}
            for counter in (_SENT, _RECEIVED)
        )
        links = [link for link in sent if link in received and isinstance(link, NvLink)]
        self._pick_sent, self._pick_received = (picker([places[link] for link in links]) for places in (sent, received))
        self._layout, self._has_links, self._before = layout, bool(links), None
        if links:
            self._shown = Layout((*layout.series, *(Series(row, links[0].gpu) for row in _ROWS)))


SERIES = Series(BY_NAME["coldplate_node_power_watts"], Node(), (("source", "estimate"),))


class Coefficients(Struct, frozen=True):
    """Node power is `factor` times the sum of the GPUs' power, plus a number of watts for each GPU."""

    factor: float = 1.1
    watts_per_gpu: float = 1700.0 / 8


DEFAULT = Coefficients()


def estimate(powers: Sequence[float | None], coefficients: Coefficients) -> Reading | None:
    """Return the node's power from that of each of its GPUs, in watts; None unless all of them are known.

    A sum without one of the GPUs would be too low, just when something is wrong with the node.
    """
    watts = [power for power in powers if power is not None]
    if not watts or len(watts) < len(powers):
        return None
    return Reading(SERIES, coefficients.factor * sum(watts) + coefficients.watts_per_gpu * len(watts))


UP = BY_NAME["coldplate_gpu_up"]
POWER = BY_NAME["coldplate_gpu_power_mean_watts"]
UTILIZATION = BY_NAME["coldplate_gpu_utilization_mean_ratio"]
MARGIN = BY_NAME["coldplate_gpu_temperature_margin_celsius"]
THROTTLE = BY_NAME["coldplate_gpu_throttle_seconds_total"]
HOLDER = BY_NAME["coldplate_gpu_job_info"]

NORMAL = frozenset({"gpu_idle", "low_utilization", "sw_power_cap"})
"""Reasons for which a healthy GPU reduces its clocks."""

_THROTTLED = Series(BY_NAME["coldplate_node_gpu_throttle_any_reason_seconds_total"], Node())
_THROTTLE_OF = BY_NAME["coldplate_node_gpu_throttle_seconds_total"]


class Where(NamedTuple):
    """Where a value is: the number of its frame, and its place there."""

    frame: int
    place: int


Values = list[float]


def _mean(values: Values) -> float:
    return sum(values) / len(values)


class _Sum(NamedTuple):
    """One series made of several values."""

    series: Series
    made: Callable[[Values], float]
    of: tuple[Where, ...]


class _Throttle(Struct):
    """The counters of one GPU with the node's series for its reason, their places, and their last values."""

    gpu: Entity
    counters: list[tuple[Series, Where]]
    values: Sequence[float | None]


_NODE = (
    (UP, BY_NAME["coldplate_node_gpus_up"], sum),
    (POWER, BY_NAME["coldplate_node_gpu_power_mean_watts"], sum),
    (UTILIZATION, BY_NAME["coldplate_node_gpu_utilization_mean_ratio"], _mean),
    (MARGIN, BY_NAME["coldplate_node_gpu_temperature_margin_celsius"], min),
)
_JOB = (
    (UTILIZATION, BY_NAME["coldplate_job_gpu_utilization_mean_ratio"], _mean),
    (UTILIZATION, BY_NAME["coldplate_job_gpu_utilization_lowest_ratio"], min),
    (UTILIZATION, BY_NAME["coldplate_job_gpu_utilization_highest_ratio"], max),
    (POWER, BY_NAME["coldplate_job_gpu_power_mean_watts"], sum),
)
_WHOLE = BY_NAME["coldplate_job_exclusive_gpus"]


class NodeSums:
    """Makes one frame of the others. What is where is found out only when a layout changes."""

    def __init__(self) -> None:
        self._layouts: tuple[Layout, ...] = ()
        self._sums: list[_Sum] = []
        self._throttles: list[_Throttle] = []
        self._before: dict[tuple[Entity, Series], float | None] = {}
        """Their last values by GPU and the node's series, from before the layouts changed."""
        self._by_reason: dict[Series, float] = {}
        self._throttled = 0.0
        self._framer = Framer()

    def frame(self, frames: Sequence[Frame]) -> Frame:
        """Return the node sums of these frames; a metric that no GPU reports has no sum."""
        layouts = tuple(map(itemgetter(0), frames))
        if layouts != self._layouts:
            self._find(layouts)
        values = [frame.values for frame in frames]
        readings = [Reading(s.series, s.made([values[i][k] for i, k in s.of])) for s in self._sums]
        self._count(values)
        if self._by_reason:
            readings.append(Reading(_THROTTLED, self._throttled))
            readings += [Reading(series, total) for series, total in self._by_reason.items()]
        return self._framer.frame(readings)

    def _count(self, values: Sequence[Sequence[float]]) -> None:
        """Add the growth of each GPU's counters to the node's.

        A GPU that falls silent takes nothing away, and one whose driver counts from 0 again adds only what it grows
        from there. Reasons that overlap count once in the total of all.
        """
        for throttle in self._throttles:
            row = [values[frame][place] for _, (frame, place) in throttle.counters]
            old, throttle.values = throttle.values, row
            if row == old:  # as nearly always
                continue
            most = 0.0
            for (series, _), before, now in zip(throttle.counters, old, row, strict=True):
                if before is not None and now > before:
                    self._by_reason[series] += now - before
                    most = max(most, now - before)
            self._throttled += most

    def _find(self, layouts: tuple[Layout, ...]) -> None:
        """Note where the values of the GPUs are, and which job has which of them."""
        places: dict[Metric, dict[Entity, Where]] = defaultdict(dict)
        counters: dict[Entity, list[tuple[Series, Where]]] = defaultdict(list)
        jobs: dict[Labels, dict[Entity, Where]] = defaultdict(dict)
        for series, at in series_of(layouts):
            if not isinstance(series.entity, Gpu):
                continue
            if series.metric is THROTTLE:
                reason = dict(series.labels)["reason"]
                if reason not in NORMAL:
                    counters[series.entity].append((Series(_THROTTLE_OF, Node(), (("reason", reason),)), at))
            elif series.metric is HOLDER:
                labels = dict(series.labels)
                if labels.get("mig") == "0":
                    jobs[tuple((name, labels.get(name, "")) for name in JOB)][series.entity] = at
            elif series.metric in _READ:
                places[series.metric][series.entity] = at
        self._layouts = layouts
        self._sums = [
            _Sum(Series(row, Node()), aggregate, tuple(places[metric].values()))
            for metric, row, aggregate in _NODE
            if places[metric]
        ]
        for job, held in jobs.items():
            self._sums += _sums_of(job, held, places)
        for columns in self._throttles:
            last = zip(columns.counters, columns.values, strict=True)
            self._before.update({(columns.gpu, series): value for (series, _), value in last})
        self._throttles = [
            _Throttle(gpu, counter, [self._before.get((gpu, series)) for series, _ in counter])
            for gpu, counter in counters.items()
        ]
        for series in (series for counter in counters.values() for series, _ in counter):
            self._by_reason.setdefault(series, 0.0)


_READ = frozenset(metric for metric, _, _ in (*_NODE, *_JOB))


def _sums_of(
    job: Labels, held: Mapping[Entity, Where], places: Mapping[Metric, Mapping[Entity, Where]]
) -> Iterator[_Sum]:
    """Yield those of one job, of the GPUs that it holds whole and alone."""
    yield _Sum(Series(_WHOLE, Node(), job), len, tuple(held.values()))
    for metric, row, aggregate in _JOB:
        columns = tuple(at for gpu, at in places.get(metric, {}).items() if gpu in held)
        if columns:
            yield _Sum(Series(row, Node(), job), aggregate, columns)


def series_of(layouts: Sequence[Layout]) -> Iterator[tuple[Series, Where]]:
    """Yield every series of these frames, with its place."""
    for number, layout in enumerate(layouts):
        for place, series in enumerate(layout.series):
            yield series, Where(number, place)
