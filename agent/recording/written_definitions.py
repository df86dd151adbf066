"""What values in a recording belong to, written once in a segment and referred to by number.

Metrics, entities, series and layouts; and of the backends' reports everything but their numbers: gaps come in runs that
share a reason, because a device that is silent misses all that it had. Each kind is numbered from 0."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from agent.model import (
    Backend,
    BackendReport,
    Entity,
    Gap,
    Gpu,
    IbPort,
    Labels,
    Layout,
    Metric,
    NvLink,
    Rack,
    Reason,
    Series,
)
from agent.recording.redaction import Redaction

LEVEL = 6
KINDS = ("metrics", "entities", "series", "layouts", "absences", "runs", "reports", "lists")
"""In the order in which they refer to each other."""
ENOUGH = 100_000
"""Definitions in one segment after which a writer begins another, whose tables are empty."""

Absences = tuple[tuple[Metric, Entity], ...]
Run = tuple[Absences, Reason, str]
_ReportKey = tuple[str, str, str, tuple[int, ...]]


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
        """Return the number of a layout."""
        number = self._numbers["layouts"].get(layout)
        if number is not None:
            return number
        series = [self._series(each) for each in layout.series]
        return self._define("layouts", layout, _in_runs(series))

    def reports(self, reports: Sequence[BackendReport]) -> int:
        """Return the number of a list of reports, apart from their durations and calls."""
        numbers = tuple(self._report(each) for each in reports)
        known = self._numbers["lists"].get(numbers)
        return self._define("lists", numbers, list(numbers)) if known is None else known

    def _define(self, kind: str, key: Any, item: Any) -> int:
        numbers = self._numbers[kind]
        number = numbers[key] = len(numbers)
        self._fresh[kind].append(item)
        return number

    def _metric(self, metric: Metric) -> int:
        number = self._numbers["metrics"].get(metric)
        if number is not None:
            return number
        kinds = [metric.kind.value, metric.unit.value, metric.lane.value, metric.entity.__name__]
        item = [metric.name, *kinds, metric.help]
        return self._define("metrics", metric, item)

    def _entity(self, entity: Entity) -> int:
        number = self._numbers["entities"].get(entity)
        if number is not None:
            return number
        parts: list[Any]
        hidden = self._redaction.entity(entity) if self._redaction else entity
        if isinstance(hidden, Gpu):
            parts = ["gpu", hidden.index, hidden.uuid]
        elif isinstance(hidden, NvLink):
            assert isinstance(entity, NvLink)
            parts = ["nvlink", self._entity(entity.gpu), hidden.link]
        elif isinstance(hidden, IbPort):
            parts = ["port", hidden.device, hidden.port]
        elif isinstance(hidden, Rack):
            parts = ["rack", hidden.name]
        elif isinstance(hidden, Backend):
            parts = ["backend", hidden.name]
        else:
            parts = ["node"]
        return self._define("entities", entity, parts)

    def _series(self, series: Series) -> int:
        number = self._numbers["series"].get(series)
        if number is not None:
            return number
        labels: Labels = series.labels
        if self._redaction:
            labels = self._redaction.labels(labels)
        flat = [text for pair in labels for text in pair]
        return self._define("series", series, [self._metric(series.metric), self._entity(series.entity), *flat])

    def _report(self, report: BackendReport) -> int:
        key: _ReportKey = (report.backend, report.outcome.value, report.detail, self._runs(report))
        number = self._numbers["reports"].get(key)
        if number is not None:
            return number
        name, outcome, detail, runs = key
        return self._define("reports", key, [name, outcome, self._text(detail), list(runs)])

    def _runs(self, report: BackendReport) -> tuple[int, ...]:
        gaps, runs = self._runs_of.get(report.backend, ((), ()))
        if gaps is not report.gaps:
            groups = groupby(report.gaps, key=lambda gap: (gap.reason, gap.detail))
            runs = tuple(self._run(why, detail, list(some)) for (why, detail), some in groups)
            self._runs_of[report.backend] = (report.gaps, runs)
        return runs

    def _run(self, reason: Reason, detail: str, gaps: Sequence[Gap]) -> int:
        absences: Absences = tuple((gap.metric, gap.entity) for gap in gaps)
        missing = self._numbers["absences"].get(absences)
        if missing is None:
            flat = [number for metric, entity in absences for number in (self._metric(metric), self._entity(entity))]
            missing = self._define("absences", absences, flat)
        key = (missing, reason, detail)
        number = self._numbers["runs"].get(key)
        return self._define("runs", key, [missing, reason.value, self._text(detail)]) if number is None else number

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
