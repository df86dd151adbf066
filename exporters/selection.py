"""Which series are exposed: `metrics.include` and `metrics.exclude`, names with `*` or a word for a class of them.

What is left out here is left out of pages only: rules on the node read everything.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from enum import Flag
from fnmatch import fnmatchcase

from agent.catalogue import BY_NAME
from agent.model import Metric, Reading, Series, Shown, Snapshot

PREFIX = "coldplate_infiniband_"
"""Drivers have counters of their own names, whose rows are made when they are seen."""
MISSING = BY_NAME["coldplate_metric_missing"]


class Part(Flag):
    """The series of a row that are 0 now, and the others."""

    NONE = 0
    ZEROS = 1
    OTHERS = 2
    ALL = 3


WORDS = {
    "default": {Shown.DEFAULT: Part.ALL, Shown.COUNTED: Part.OTHERS},
    "detail": {Shown.DETAIL: Part.ALL, Shown.COUNTED: Part.ZEROS},
    "all": dict.fromkeys(Shown, Part.ALL),
}
"""What each word stands for; `default` and `detail` together are `all`."""


class SeriesSelection:
    """Leaves series out of a snapshot. Raises ValueError for a pattern that can match nothing."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include, self._exclude = tuple(include), tuple(exclude)
        self._parts: dict[Metric, Part] = {}
        self._whole: dict[Metric, bool] = {}
        """Rows of which every series is exposed, or none: asked of thousands of readings for each page."""
        self._told: dict[Series, bool] = {}
        self._last: tuple[Snapshot, Snapshot] | None = None
        for key, patterns in (("include", include), ("exclude", exclude)):
            for pattern in patterns:
                _check(key, pattern)

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with the selected series only; the same object again for the same snapshot."""
        if self._last is None or self._last[0] is not snapshot:
            whole = self._whole.get
            readings = tuple(
                reading
                for reading in snapshot.readings
                if (verdict := whole(reading.series.metric)) or (verdict is None and self._shows(reading))
            )
            self._last = (snapshot, replace(snapshot, readings=readings))
        return self._last[1]

    def of(self, metric: Metric) -> Part:
        """What is exposed of the metric."""
        part = self._parts.get(metric)
        if part is None:
            part = self._parts[metric] = _union(self._include, metric) & ~_union(self._exclude, metric)
        return part

    def _shows(self, reading: Reading) -> bool:
        series = reading.series
        part = self.of(series.metric)
        if part in (Part.ALL, Part.NONE) and series.metric is not MISSING:
            self._whole[series.metric] = bool(part)
        if not part & (Part.OTHERS if reading.value else Part.ZEROS):
            return False
        return series.metric is not MISSING or self._tells(series)

    def _tells(self, series: Series) -> bool:
        """Whether the metric that is told to be missing would be exposed."""
        told = self._told.get(series)
        if told is None:
            missed = BY_NAME.get(dict(series.labels).get("metric", ""))
            told = self._told[series] = missed is None or bool(self.of(missed))
        return told


def _union(patterns: Sequence[str], metric: Metric) -> Part:
    part = Part.NONE
    for pattern in patterns:
        if pattern in WORDS:
            part |= WORDS[pattern].get(metric.shown, Part.NONE)
        elif fnmatchcase(metric.name, pattern):
            part |= Part.ALL
    return part


def _check(key: str, pattern: str) -> None:
    if pattern in WORDS or any(fnmatchcase(name, pattern) for name in BY_NAME) or pattern.startswith(PREFIX):
        return
    near = difflib.get_close_matches(pattern, [*BY_NAME, *WORDS], 1, 0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "; see docs/metrics.md for the names"
    raise ValueError(f"{key}: {pattern!r} matches no metric{hint}")
