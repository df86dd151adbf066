"""Write and read what values in a recording belong to: once in a segment, and referred to by number.

Metrics, entities, series and layouts; and of the backends' reports everything but their numbers, with gaps in runs that
share a reason. Each kind is numbered from 0. Every text and number of a file that is read may be anything.
"""

import json
import re
import zlib
from collections.abc import Callable, Sequence
from itertools import chain, groupby
from typing import Any

from agent.catalogue import BY_NAME
from agent.catalogue.bindings import Derived
from agent.model import (
    Backend,
    BackendReport,
    Entity,
    Gap,
    Gpu,
    IbPort,
    Kind,
    Labels,
    Lane,
    Layout,
    Metric,
    Node,
    NvLink,
    Outcome,
    Rack,
    Reason,
    Series,
    Unit,
)
from agent.recording.file_records import inflate
from agent.recording.redaction import Redaction

LEVEL = 1
"""Of zlib. Readings that vary hardly compress: level 6 saves 2 % of the bytes and takes twice as long."""
KINDS = ("metrics", "entities", "series", "layouts", "absences", "runs", "reports", "lists")
"""In the order in which they refer to each other."""
ENOUGH = 100_000
"""Definitions in one segment after which a writer begins another, whose tables are empty."""

_ENTITIES: dict[str, type[Gpu | IbPort | Rack | Backend | Node]] = {
    "gpu": Gpu, "port": IbPort, "rack": Rack, "backend": Backend, "node": Node,
}  # fmt: skip
"""By their words in the file, which the values of their labels follow; a link follows its GPU."""
_WORDS: dict[type, str] = {entity: word for word, entity in _ENTITIES.items()}

Absences = tuple[tuple[Metric, Entity], ...]
Run = tuple[Absences, Reason, str]


class WrittenDefinitions:
    """What a segment has defined, and what it has yet to write. Texts are redacted here, and nowhere else."""

    def __init__(self, redaction: Redaction | None) -> None:
        self._redaction = redaction
        self._fresh: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        self._numbers: dict[str, dict[Any, int]] = {kind: {} for kind in KINDS}
        self._runs_of: dict[str, tuple[Sequence[Gap], tuple[int, ...]]] = {}
        """For each backend the gaps that it reported last, and their runs."""

    @property
    def is_large(self) -> bool:
        """Whether it is time for another segment: what comes and goes must not fill the memory."""
        return sum(map(len, self._numbers.values())) > ENOUGH

    def drain(self) -> bytes:
        """Return what was defined since the last call, as a payload; empty if nothing was."""
        fresh = {kind: items for kind, items in self._fresh.items() if items}
        if not fresh:
            return b""
        self._fresh = {kind: [] for kind in KINDS}
        return zlib.compress(json.dumps(fresh, separators=(",", ":")).encode(), LEVEL)

    def layout(self, layout: Layout) -> int:
        return self._number("layouts", layout, lambda: _in_runs([self._series(series) for series in layout.series]))

    def reports(self, reports: Sequence[BackendReport]) -> int:
        """Return the number of a list of reports, apart from their durations and calls."""
        numbers = tuple(self._report(report) for report in reports)
        return self._number("lists", numbers, lambda: list(numbers))

    def _number(self, kind: str, key: Any, make: Callable[[], list[Any]]) -> int:
        """Return the number of a definition; the first time, `make` returns what the file says of it."""
        numbers = self._numbers[kind]
        if key not in numbers:
            item = make()  # first: it may define others of its kind
            numbers[key] = len(numbers)
            self._fresh[kind].append(item)
        return numbers[key]

    def _metric(self, metric: Metric) -> int:
        kinds = (metric.kind, metric.unit, metric.lane)
        return self._number(
            "metrics",
            metric,
            lambda: [metric.name, *(kind.value for kind in kinds), metric.entity.__name__, metric.help],
        )

    def _entity(self, entity: Entity) -> int:
        return self._number("entities", entity, lambda: self._entity_parts(entity))

    def _entity_parts(self, entity: Entity) -> list[Any]:
        if isinstance(entity, NvLink):
            return ["nvlink", self._entity(entity.gpu), entity.link]
        hidden = self._redaction.entity(entity) if self._redaction else entity
        return [_WORDS[type(hidden)], *(value for _, value in hidden.labels)]

    def _series(self, series: Series) -> int:
        def make() -> list[Any]:
            labels = self._redaction.labels(series.labels) if self._redaction else series.labels
            return [self._metric(series.metric), self._entity(series.entity), *chain.from_iterable(labels)]

        return self._number("series", series, make)

    def _report(self, report: BackendReport) -> int:
        name, outcome, detail, runs = report.backend, report.outcome.value, report.detail, self._runs(report)
        key = (name, outcome, detail, runs)
        return self._number("reports", key, lambda: [name, outcome, self._text(detail), list(runs)])

    def _runs(self, report: BackendReport) -> tuple[int, ...]:
        gaps, runs = self._runs_of.get(report.backend, ((), ()))
        if gaps is not report.gaps:
            groups = groupby(report.gaps, key=lambda gap: (gap.reason, gap.detail))
            runs = tuple(self._run(reason, detail, list(gaps_of_run)) for (reason, detail), gaps_of_run in groups)
            self._runs_of[report.backend] = (report.gaps, runs)
        return runs

    def _run(self, reason: Reason, detail: str, gaps: Sequence[Gap]) -> int:
        absences: Absences = tuple((gap.metric, gap.entity) for gap in gaps)
        missing = self._number(
            "absences",
            absences,
            lambda: [number for metric, entity in absences for number in (self._metric(metric), self._entity(entity))],
        )
        key = (missing, reason, detail)
        return self._number("runs", key, lambda: [missing, reason.value, self._text(detail)])

    def _text(self, text: str) -> str:
        return self._redaction.text(text) if self._redaction else text


def _in_runs(numbers: Sequence[int]) -> list[int]:
    """Return numbers that follow each other as a first one and how many: most of a layout is new with it."""
    runs: list[int] = []
    for number in numbers:
        if runs and number == runs[-2] + runs[-1]:
            runs[-1] += 1
        else:
            runs += (number, 1)
    return runs


INFLATED = 16 * 2**20
"""Bytes of the definitions of one record: those of the largest node have three mebibytes."""
ITEMS = 400_000
"""Definitions of a segment that a reader keeps: four times those after which a writer begins another."""
WIDTH = 4_000_000
"""Series and gaps of all its layouts and absences together."""
GAPS = 500_000
"""Gaps of one snapshot."""
TEXT = 16 * 2**10
"""Characters of a text."""

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_TYPES: dict[str, type] = {entity.__name__: entity for entity in (*_ENTITIES.values(), NvLink)}

_Report = tuple[str, Outcome, str, tuple[Run, ...]]


class KnownDefinitions:
    """Series, layouts and foreign metrics of the segment before, so that they stay the same objects in the next."""

    def __init__(self) -> None:
        self.metrics: dict[str, Metric] = {}
        self.series: dict[Series, Series] = {}
        self.layouts: dict[tuple[Series, ...], Layout] = {}


class ReadDefinitions:
    """The tables of one segment. All methods raise ValueError, TypeError or LookupError for what makes no sense."""

    def __init__(self, before: KnownDefinitions) -> None:
        self._before = before
        self.known = KnownDefinitions()
        self.known.metrics = before.metrics
        self._tables: dict[str, list[Any]] = {kind: [] for kind in KINDS}
        self.layouts: list[Layout] = self._tables["layouts"]
        self._last: tuple[int, tuple[BackendReport, ...]] = (-1, ())
        """The list that was requested last: gaps are made on request, since a silent device has others each second."""
        self._room = ITEMS
        self._width = WIDTH

    def add_payload(self, payload: bytes) -> None:
        document = json.loads(inflate(payload, INFLATED))
        makers: tuple[Callable[[Any], object], ...] = (
            self._metric, self._entity, self._series, self._layout, self._absence, self._run, self._report, self._list,
        )  # fmt: skip
        for kind, make in zip(KINDS, makers, strict=True):
            table, items = self._tables[kind], document.get(kind, ())
            self._room -= len(items)
            if self._room < 0:
                raise ValueError(f"more than {ITEMS} definitions in a segment")
            for item in items:  # one by one: an entity may refer to the one before
                table.append(make(item))

    def _at(self, kind: str, number: Any) -> Any:
        return self._tables[kind][_number(number)]

    def _metric(self, item: Any) -> Metric:
        name, kind, unit, lane, entity, words = item
        metric = BY_NAME.get(name) or self.known.metrics.get(name)
        if metric is None:
            if not _NAME.fullmatch(name):
                raise ValueError("a metric without a name")
            metric = self.known.metrics[name] = Metric(
                name, Kind(kind), Unit(unit), _TYPES[entity], _text(words), Lane(lane), (Derived("a recording"),)
            )
        return metric

    def _entity(self, parts: Any) -> Entity:
        kind, *rest = parts
        if kind == "nvlink":
            gpu = self._at("entities", rest[0])
            if not isinstance(gpu, Gpu):
                raise ValueError("a link of no GPU")
            return NvLink(gpu, _number(rest[1]))
        return _ENTITIES[kind](*map(_text, rest))

    def _series(self, item: Any) -> Series:
        metric, entity, *flat = item
        texts = [_text(text) for text in flat]
        if len(texts) % 2 or not all(map(_NAME.fullmatch, texts[::2])):
            raise ValueError("invalid labels")
        labels: Labels = tuple(zip(texts[::2], texts[1::2], strict=True))
        fresh = Series(self._at("metrics", metric), self._at("entities", entity), labels)
        series = self._before.series.get(fresh, fresh)
        self.known.series[series] = series
        return series

    def _layout(self, runs: Any) -> Layout:
        numbers = []
        for first, count in zip(runs[::2], runs[1::2], strict=True):
            self._widen(_number(count))
            numbers.append(range(_number(first), first + count))
        series = tuple(self._tables["series"][number] for run in numbers for number in run)
        layout = self._before.layouts.get(series) or self.known.layouts.get(series) or Layout(series)
        self.known.layouts[series] = layout
        return layout

    def _absence(self, flat: Any) -> Absences:
        self._widen(len(flat))
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return tuple((self._at("metrics", metric), self._at("entities", entity)) for metric, entity in pairs)

    def _run(self, item: Any) -> Run:
        absences, reason, detail = item
        return self._at("absences", absences), Reason(reason), _text(detail)

    def _report(self, item: Any) -> _Report:
        name, outcome, detail, numbers = item
        runs = tuple(self._at("runs", number) for number in numbers)
        return _text(name), Outcome(outcome), _text(detail), runs

    def _list(self, numbers: Sequence[Any]) -> tuple[_Report, ...]:
        return tuple(self._at("reports", number) for number in numbers)

    def reports(self, number: int) -> tuple[BackendReport, ...]:
        """Return a list of reports; their durations and calls are 0."""
        if number != self._last[0]:
            listed: tuple[_Report, ...] = self._tables["lists"][number]
            if sum(len(absences) for _, _, _, runs in listed for absences, _, _ in runs) > GAPS:
                raise ValueError(f"more than {GAPS} gaps at once")
            reports = (BackendReport(name, outcome, 0.0, detail, _gaps(runs)) for name, outcome, detail, runs in listed)
            self._last = number, tuple(reports)
        return self._last[1]

    def _widen(self, more: int) -> None:
        self._width -= more
        if self._width < 0:
            raise ValueError(f"more than {WIDTH} series and gaps in the definitions of a segment")


def _gaps(runs: Sequence[Run]) -> tuple[Gap, ...]:
    return tuple(
        Gap(metric, entity, reason, detail) for absences, reason, detail in runs for metric, entity in absences
    )


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > TEXT:
        raise ValueError("a text has another type or is too long")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a number of anything")
    return value
