"""Which series are exposed: `metrics.include` and `metrics.exclude`, names with `*` or a word for a class of them.

This affects only pages: rules on the node read everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Flag
from fnmatch import fnmatchcase

from agent.catalogue import BY_NAME
from agent.lib.picking import picker
from agent.lib.round_memo import RoundMemo
from agent.model import Frame, Layout, Metric, Series, Shown, Snapshot

PREFIX = "coldplate_infiniband_"
"""Drivers have counters with names of their own, whose rows are made when they are first seen."""
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
"""What each word selects; `default` and `detail` together are `all`."""


class SeriesSelection:
    """Leaves series out of a snapshot. Raises ValueError for a pattern that can match nothing."""

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        self._include, self._exclude = tuple(include), tuple(exclude)
        self._parts: dict[Metric, Part] = {}
        self._layouts = RoundMemo(self._selection)
        self._last: tuple[Snapshot, Snapshot] | None = None
        for key, patterns in (("include", include), ("exclude", exclude)):
            for pattern in patterns:
                _check(key, pattern)

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with only the selected series; the same object again for the same snapshot."""
        if self._last is None or self._last[0] is not snapshot:
            selections = self._layouts.of([frame.layout for frame in snapshot.frames])
            frames = tuple(each.apply(frame) for each, frame in zip(selections, snapshot.frames, strict=True))
            self._last = (snapshot, replace(snapshot, frames=frames))
        return self._last[1]

    def of(self, metric: Metric) -> Part:
        """Which series of the metric are exposed."""
        part = self._parts.get(metric)
        if part is None:
            part = self._parts[metric] = _union(self._include, metric) & ~_union(self._exclude, metric)
        return part

    def _selection(self, layout: Layout) -> _LayoutSelection:
        return _LayoutSelection(layout, [self._part(series) for series in layout.series])

    def _part(self, series: Series) -> Part:
        """When the series is exposed; for coldplate_metric_missing the selection of the missing metric counts, too."""
        if series.metric is MISSING:
            missed = BY_NAME.get(dict(series.labels).get("metric", ""))
            if missed is not None and not self.of(missed):
                return Part.NONE
        return self.of(series.metric)


class _LayoutSelection:
    """What is selected of the frames of one layout. For some series it depends on whether they are 0 now."""

    def __init__(self, layout: Layout, parts: Sequence[Part]) -> None:
        self._layout = layout
        self._parts = parts
        self._depending = [place for place, part in enumerate(parts) if part in (Part.ZEROS, Part.OTHERS)]
        self._pick_depending = picker(self._depending)
        self._told: tuple[bool, ...] | None = None
        """Which of the series that depend on their value were not 0 when `_shown` was made."""
        self._shown = layout
        self._pick: Callable[[Sequence[float]], tuple[float, ...]] = tuple

    def apply(self, frame: Frame) -> Frame:
        told = tuple(map(bool, self._pick_depending(frame.values)))
        if told != self._told:
            self._choose(told)
        if self._shown is self._layout:
            return frame
        return Frame(self._shown, self._pick(frame.values))

    def _choose(self, told: tuple[bool, ...]) -> None:
        wanted = {place: Part.OTHERS if each else Part.ZEROS for place, each in zip(self._depending, told, strict=True)}
        places = [place for place, part in enumerate(self._parts) if part & wanted.get(place, Part.ALL)]
        self._told, self._pick = told, picker(places)
        every = len(places) == len(self._layout)
        self._shown = self._layout if every else Layout(tuple(self._layout.series[place] for place in places))


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
    import difflib  # for who made a mistake only

    near = difflib.get_close_matches(pattern, [*BY_NAME, *WORDS], 1, 0.5)
    hint = f"; did you mean {near[0]!r}?" if near else "; see docs/metrics.md for the names"
    raise ValueError(f"{key}: {pattern!r} matches no metric{hint}")
