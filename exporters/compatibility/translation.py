"""Turn a snapshot into frames of other exporters' series.

Everything that depends on series alone is remembered by layout: which values are taken, what they are multiplied by,
and the labels. The labels also depend on info series, such as that of a job; when those change, all is made again,
which happens when a job begins or ends. Values are converted column by column. Some exporters show rates as gauges,
which no single sample has: growth is measured between snapshots, and some show how much a counter has grown within the
last minutes in its place.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import mul
from typing import NamedTuple

from msgspec.structs import replace

from agent.catalogue import BY_NAME
from agent.lib.layout_columns import RoundMemo, picker
from agent.model import (
    EMPTY_FRAME,
    Entity,
    Frame,
    Gpu,
    Labels,
    Lane,
    Layout,
    Metric,
    Node,
    Reading,
    Series,
    Snapshot,
    Unit,
)
from exporters.compatibility import PROFILES
from exporters.compatibility.foreign_names import (
    WHOLE,
    WINDOW_SECONDS,
    ForeignName,
    ForeignProfile,
    KnownGpu,
    KnownNode,
    Recent,
    Term,
)


class RecentGrowth:
    """Remembers when counters of some rows grew. A counter that appears later than the first snapshot began at 0.

    `observe` is for the thread that publishes snapshots, `growth_of` for any: what it reads is replaced, not changed.
    """

    def __init__(self, rows: Collection[str]) -> None:
        self._rows = rows
        self._places = RoundMemo[Layout, tuple[int, ...]](self._find)
        self._counts: dict[Series, float] | None = None
        self._steps: deque[tuple[float, Series, float]] = deque()
        """When a counter grew, in monotonic seconds, and how much."""
        self._grown: Mapping[Series, float] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of what has grown, and forget what is too old."""
        places = self._places.of([frame.layout for frame in snapshot.frames])
        counts = {
            frame.layout.series[place]: frame.values[place]
            for frame, positions in zip(snapshot.frames, places, strict=True)
            for place in positions
        }
        before, self._counts, now = self._counts, counts, snapshot.at.mono
        if before is not None and counts != before:
            grown = ((series, count - before.get(series, 0.0)) for series, count in counts.items())
            self._steps.extend((now, series, step) for series, step in grown if step > 0)
        while self._steps and self._steps[0][0] < now - WINDOW_SECONDS:
            self._steps.popleft()
        sums: defaultdict[Series, float] = defaultdict(float)
        for _, series, step in self._steps:
            sums[series] += step
        self._grown = sums

    def growth_of(self, series: Series) -> float:
        """Return by how much a counter has grown."""
        return self._grown.get(series, 0.0)

    def _find(self, layout: Layout) -> tuple[int, ...]:
        return tuple(place for place, series in enumerate(layout.series) if series.metric.name in self._rows)


SPAN_SECONDS = 10.0
"""Seconds over which a rate is taken, once that much has been seen."""


class _PastFrame(NamedTuple):
    mono: float
    values: tuple[float, ...]


class Growth:
    """Remembers what counters were some seconds ago, by layout. `concerns` says whether a layout has such counters.

    `observe` is for the thread that publishes snapshots, `per_second` for any: what it reads is replaced, not changed.
    """

    def __init__(self, concerns: Callable[[Layout], bool]) -> None:
        self._concerns = concerns
        self._past: dict[Layout, tuple[_PastFrame, ...] | None] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of a snapshot's counters, by reference."""
        now = snapshot.at.mono
        new: dict[Layout, tuple[_PastFrame, ...] | None] = {}
        for layout, values in snapshot.frames:
            past_frames = self._past_of(layout)
            if past_frames is not None and (not past_frames or past_frames[-1].values is not values):
                reaches_back = len(past_frames) > 1 and past_frames[1].mono <= now - SPAN_SECONDS
                recent = past_frames[1:] if reaches_back else past_frames
                past_frames = (*recent, _PastFrame(now, values))
            new[layout] = past_frames
        self._past = new

    def _past_of(self, layout: Layout) -> tuple[_PastFrame, ...] | None:
        """Return the frames of a layout that are remembered; None for one without such counters."""
        if layout in self._past:
            return self._past[layout]
        return () if self._concerns(layout) else None

    def per_second(self, layout: Layout, place: int) -> float | None:
        """Return how much the counter at a place of a layout grew in a second; None until it was seen twice."""
        past_frames = self._past.get(layout) or ()
        if len(past_frames) < 2:
            return None
        first, last = past_frames[0], past_frames[-1]
        return max(0.0, last.values[place] - first.values[place]) / (last.mono - first.mono)


HOST_LABELS = {"Hostname": ("Hostname",), "hostname": ("hostname",), "both": ("Hostname", "hostname")}
"""By the word in `metrics.hostname_label`: dcgm-exporter before and after its version of May 2026."""

_INFORMANTS = {BY_NAME[name] for name in ("coldplate_gpu_info", "coldplate_gpu_job_info", "coldplate_gpu_mig_info")}


@dataclass(frozen=True, slots=True)
class Neighbour(Entity):
    """The entity of another exporter's metrics; it comes after all entities of coldplate on a page."""


class _Part(NamedTuple):
    place: int
    term: Term


class _Output(NamedTuple):
    """A series of the other exporter, and where in a layout its terms and its divisor are."""

    name: ForeignName
    series: Series
    parts: tuple[_Part, ...]
    divisor: tuple[_Part, ...]


class _Recipe:
    """What is made of a layout's frames. Our values times a factor are converted together, those to be rounded last."""

    def __init__(self, layout: Layout, outputs: Sequence[_Output], growth: Growth, recent: RecentGrowth) -> None:
        scaled = [output for output in outputs if output.name.simple is not None]
        scaled.sort(key=lambda output: output.name.rounding is not None)
        factors = [output.parts[0].term.factor for output in scaled]
        self._pick = picker([output.parts[0].place for output in scaled])
        self._factors = [1 if factor == 1.0 else factor for factor in factors]  # an integer stays one
        self._roundings = [output.name.rounding for output in scaled if output.name.rounding is not None]
        self._exact = len(scaled) - len(self._roundings)
        self._computed_outputs = [output for output in outputs if output.name.simple is None]
        self._source, self._growth, self._recent = layout, growth, recent
        self._fixed = Layout(tuple(output.series for output in scaled))
        self._layout = self._fixed

    @property
    def idle(self) -> bool:
        return not self._factors and not self._computed_outputs

    def frame(self, frame: Frame) -> Frame:
        scaled = tuple(map(mul, self._pick(frame.values), self._factors))
        rounded = (rounding(value) for rounding, value in zip(self._roundings, scaled[self._exact :], strict=True))
        values = (*scaled[: self._exact], *rounded)
        if not self._computed_outputs:
            return Frame(self._fixed, values)
        more = list(self._computed(frame.values))
        series = (*self._fixed.series, *(reading.series for reading in more))
        if series != self._layout.series:
            self._layout = Layout(series)
        return Frame(self._layout, (*values, *(reading.value for reading in more)))

    def _computed(self, values: tuple[float, ...]) -> Iterator[Reading]:
        for output in self._computed_outputs:
            value = self._value(output, values)
            if value is not None:
                rounding = output.name.rounding
                yield Reading(output.series, value if rounding is None else rounding(value))

    def _value(self, output: _Output, values: tuple[float, ...]) -> float | None:
        if output.name.newest:
            return _newest(self._source, output, values)
        if output.name.recent:
            grown = self._recent.growth_of(self._source.series[output.parts[0].place])
            return grown if (grown > 0) == (output.name.recent is Recent.NONZERO) else None
        if output.name.label:
            return _number(dict(self._source.series[output.parts[0].place].all_labels).get(output.name.label, ""))
        above = self._sum(output.parts, values)
        if above is None or not output.divisor:
            return above
        below = self._sum(output.divisor, values)
        return above / below if below else None

    def _sum(self, parts: Sequence[_Part], values: tuple[float, ...]) -> float | None:
        total = 0.0
        for place, term in parts:
            value = self._growth.per_second(self._source, place) if term.rate else values[place]
            if value is None:
                return None
            total += value * term.factor
        return total


def _newest(layout: Layout, output: _Output, values: tuple[float, ...]) -> float | None:
    """Return the label of the series with the highest value, as a number; 0 without series."""
    candidates = [
        (values[place], dict(layout.series[place].labels).get(output.name.newest, ""))
        for place, term in output.parts
        if term is not output.name.terms[0]
    ]
    if not candidates:
        return 0.0
    return _number(max(candidates)[1])


def _number(label: str) -> float | None:
    return float(label) if label.isascii() and label.isdigit() else None


class Translation:
    """The series of some profiles, from snapshots. Raises KeyError for an unknown word.

    `observe` is for the thread that publishes snapshots, `frames` for the one that renders pages.
    """

    def __init__(
        self, words: Sequence[str], host: str, host_labels: str = "both", further_labels: Sequence[str] = ()
    ) -> None:
        self._profiles = [PROFILES[word] for word in dict.fromkeys(words)]
        named: Labels = tuple((name, host) for name in HOST_LABELS[host_labels])
        self._by_row: dict[str, list[tuple[ForeignProfile, ForeignName, Term]]] = {}
        for profile in self._profiles:
            for name in profile.names:
                for term in (*name.terms, *name.divisor):
                    self._by_row.setdefault(term.row, []).append((profile, name, term))
        self._rows = {name: _row(name) for profile in self._profiles for name in profile.names}
        self._rates = {term.row for users in self._by_row.values() for _, _, term in users if term.rate}
        self._recent_rows = {name.terms[0].row for profile in self._profiles for name in profile.names if name.recent}
        self._recent = RecentGrowth(self._recent_rows)
        self._growth = Growth(lambda layout: any(series.metric.name in self._rates for series in layout.series))
        self._informants = RoundMemo[Layout, tuple[Series, ...]](_informants)
        self._last_informants: tuple[Series, ...] | None = None
        self._facts = KnownNode(host, named, {}, {}, tuple(further_labels))
        self._plans = RoundMemo[Layout, _Recipe](self._plan)
        self._last: tuple[Snapshot | None, tuple[Frame, ...]] = (None, ())

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of what rates are made of."""
        if self._rates:
            self._growth.observe(snapshot)
        if self._recent_rows:
            self._recent.observe(snapshot)

    def frames(self, snapshot: Snapshot) -> tuple[Frame, ...]:
        """Return the series of the other exporters; the same objects again for the same snapshot."""
        if self._last[0] is not snapshot:
            layouts = [frame.layout for frame in snapshot.frames]
            informants = tuple(chain.from_iterable(self._informants.of(layouts)))
            if informants != self._last_informants:
                self._last_informants, self._facts = informants, _facts(self._facts, informants)
                self._plans = RoundMemo(self._plan)
            plans = zip(self._plans.of(layouts), snapshot.frames, strict=True)
            frames = (plan.frame(frame) for plan, frame in plans if not plan.idle)
            self._last = (snapshot, tuple(frame for frame in frames if frame is not EMPTY_FRAME))
        return self._last[1]

    def _plan(self, layout: Layout) -> _Recipe:
        """Find the series of a layout that another exporter has, too."""
        places_of: dict[tuple[ForeignName, Labels], dict[Term, list[int]]] = {}
        for place, series in enumerate(layout.series):
            for profile, name, term in self._by_row.get(series.metric.name, ()):
                if term.labels and term.labels != tuple(value for _, value in series.labels):
                    continue
                # if the highest value counts, no label may distinguish the candidates
                labelled = Series(series.metric, series.entity) if name.newest else series
                labels = profile.labelling(self._facts, labelled, name.name)
                if labels is not None:
                    places_of.setdefault((name, labels), {}).setdefault(term, []).append(place)
        outputs = (
            _output(name, Series(self._rows[name], Node(), labels), places)
            for (name, labels), places in places_of.items()
        )
        return _Recipe(layout, [output for output in outputs if output is not None], self._growth, self._recent)


def _output(name: ForeignName, series: Series, places: dict[Term, list[int]]) -> _Output | None:
    """Return the series if all its terms are there; of two that would be the same series, the first counts."""
    if name.newest:
        every = [_Part(place, term) for term, positions in places.items() for place in positions]
        return _Output(name, series, tuple(every), ()) if name.terms[0] in places else None
    if any(term not in places for term in (*name.terms, *name.divisor)):
        return None
    above, below = (tuple(_Part(places[term][0], term) for term in terms) for terms in (name.terms, name.divisor))
    return _Output(name, series, above, below)


def _row(name: ForeignName) -> Metric:
    return Metric(name.name, name.kind, Unit.NONE, Neighbour, name.help, Lane.FAST, ())


def _informants(layout: Layout) -> tuple[Series, ...]:
    return tuple(series for series in layout.series if series.metric in _INFORMANTS)


def _facts(node: KnownNode, informants: Sequence[Series]) -> KnownNode:
    """Return the node with what these info series say."""
    gpus: dict[Gpu, KnownGpu] = {}
    profiles: dict[str, str] = {}
    for series in informants:
        labels = dict(series.labels)
        if not isinstance(series.entity, Gpu):
            continue
        gpu = gpus.setdefault(series.entity, KnownGpu())
        if series.metric.name == "coldplate_gpu_info":
            gpus[series.entity] = KnownGpu(labels, gpu.jobs)
        elif series.metric.name == "coldplate_gpu_mig_info":
            profiles[labels.get("mig_uuid", "")] = labels.get("profile", "")
        elif labels.get("shared") != "true":
            gpus[series.entity] = KnownGpu(gpu.info, {**gpu.jobs, labels.get("mig", WHOLE): labels})
    return replace(node, gpus=gpus, mig_profiles=profiles)
