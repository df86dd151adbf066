"""Which series are exposed: a profile, without the groups that are disabled, and names with `*` more or less.

This affects only pages: rules on the node read everything.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from fnmatch import fnmatchcase

from agent.catalogue import BY_NAME
from agent.catalogue.groups import WORDS, Profile, profile_of, words_of
from agent.catalogue.infiniband import PREFIX
from agent.lib.layout_columns import RoundMemo, picker
from agent.lib.wording import nearest
from agent.model import Frame, Layout, Metric, Series, Shown, Snapshot

MISSING = BY_NAME["coldplate_metric_missing"]


class Exposure(IntEnum):
    """Whether a series is exposed."""

    NEVER = 0
    UNLESS_ZERO = 1
    ALWAYS = 2


class SeriesSelection:
    """Leaves series out of a snapshot.

    `profile` is one of `Profile`, by its word. `include` and `exclude` are names of metrics, and `disable` is of
    groups; all may have `*`. What is included by name is shown even if its group is disabled, and what is excluded
    never is. Raises ValueError for a pattern that can match nothing; its text begins with the key.
    """

    def __init__(
        self,
        profile: str = Profile.DEFAULT.word,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        disable: Sequence[str] = (),
    ) -> None:
        self._profile = Profile[profile.upper()]
        self._include, self._exclude, self._disable = tuple(include), tuple(exclude), tuple(disable)
        self.terms = (self._profile, self._include, self._exclude, self._disable)
        """What it was made of: one with the same terms need not take its place, and forget all layouts."""
        self._exposures: dict[Metric, Exposure] = {}
        itself = weakref.proxy(self)  # who held whom in a ring would keep a snapshot for long after each reload
        self._layouts: RoundMemo[Layout, _LayoutSelection] = RoundMemo(lambda layout: itself._selection(layout))
        self._last: tuple[Snapshot, Snapshot] | None = None
        for key, patterns in (("include", include), ("exclude", exclude)):
            _check(key, "metric", patterns, BY_NAME, PREFIX)
        _check("disable", "group", disable, WORDS)

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with only the selected series; the same object again for the same snapshot."""
        if self._last is None or self._last[0] is not snapshot:
            selections = self._layouts.of([frame.layout for frame in snapshot.frames])
            frames = tuple(selection.apply(frame) for selection, frame in zip(selections, snapshot.frames, strict=True))
            self._last = (snapshot, replace(snapshot, frames=frames))
        return self._last[1]

    def exposure_of(self, metric: Metric) -> Exposure:
        """Return whether the series of a metric are exposed."""
        if metric not in self._exposures:
            self._exposures[metric] = self._decide_exposure(metric)
        return self._exposures[metric]

    def _decide_exposure(self, metric: Metric) -> Exposure:
        if _matches([metric.name], self._exclude):
            return Exposure.NEVER
        if _matches([metric.name], self._include):
            return Exposure.ALWAYS
        if self._profile < profile_of(metric) or _matches(words_of(metric), self._disable):
            return Exposure.NEVER
        is_counted = metric.shown is Shown.COUNTED and self._profile < Profile.FULL
        return Exposure.UNLESS_ZERO if is_counted else Exposure.ALWAYS

    def _selection(self, layout: Layout) -> _LayoutSelection:
        return _LayoutSelection(layout, [self._exposure_in(series) for series in layout.series])

    def _exposure_in(self, series: Series) -> Exposure:
        """Return when the series is exposed; for coldplate_metric_missing, that of the missing metric counts too."""
        if series.metric is MISSING:
            missed = BY_NAME.get(dict(series.labels).get("metric", ""))
            if missed is not None and not self.exposure_of(missed):
                return Exposure.NEVER
        return self.exposure_of(series.metric)


class _LayoutSelection:
    """The selected series of the frames of one layout. For some series it depends on whether they are 0 now."""

    def __init__(self, layout: Layout, exposures: Sequence[Exposure]) -> None:
        self._layout = layout
        self._exposures = exposures
        self._depending = [place for place, exposure in enumerate(exposures) if exposure is Exposure.UNLESS_ZERO]
        self._pick_depending = picker(self._depending)
        self._states: tuple[bool, ...] | None = None
        """Which of the series that depend on their value were not 0 when `_shown` was made."""
        self._shown = layout
        self._pick: Callable[[Sequence[float]], tuple[float, ...]] = tuple

    def apply(self, frame: Frame) -> Frame:
        states = tuple(map(bool, self._pick_depending(frame.values)))
        if states != self._states:
            self._choose(states)
        if self._shown is self._layout:
            return frame
        return Frame(self._shown, self._pick(frame.values))

    def _choose(self, states: tuple[bool, ...]) -> None:
        nonzero = {place for place, is_shown in zip(self._depending, states, strict=True) if is_shown}
        places = [place for place, e in enumerate(self._exposures) if e is Exposure.ALWAYS or place in nonzero]
        self._states, self._pick = states, picker(places)
        every = len(places) == len(self._layout)
        self._shown = self._layout if every else Layout(tuple(self._layout.series[place] for place in places))


def _matches(names: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


def _check(key: str, noun: str, patterns: Sequence[str], names: Iterable[str], prefix: str | None = None) -> None:
    """Refuse a pattern that matches none of the names; further names may begin with `prefix`."""
    for pattern in patterns:
        if any(fnmatchcase(name, pattern) for name in names) or (prefix and pattern.startswith(prefix)):
            continue
        hint = nearest(pattern, names) or "; see docs/metrics.md for the names"
        raise ValueError(f"{key}: {pattern!r} matches no {noun}{hint}")
