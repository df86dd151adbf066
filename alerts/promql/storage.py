"""Samples in memory, and the interface that an evaluation needs.

`SampleSource` is that interface: the series that match, with their samples after `start` and up to `end`. `Storage`
implements it with arrays, for tests and for code without windows. Times are seconds and are kept to the
millisecond, which is Prometheus's resolution, so that the edges of a range are exact. It never reads a clock and never
expires anything by itself: `drop_before` does.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from alerts.limits import ELEMENT
from alerts.promql.budget import Budget
from alerts.promql.index import Index
from alerts.promql.labels import Labels
from alerts.promql.matchers import Matcher
from alerts.promql.staleness import STALE, is_stale

_COPIED = 64
"""Samples that are copied in the time of one unit of work; a window with fewer takes only the unit of its series."""

Window = tuple[Labels, Sequence[float], Sequence[float]]
Newest = tuple[Labels, float, float]


class SampleSource(Protocol):
    """A source of samples to evaluate over."""

    def select(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> Iterable[Window]:
        """Yield label set, times and values of each series that matches, for start < time <= end.

        Staleness markers are among the values. A series without samples in the range is left out. Only one window needs
        to be in memory at a time. Raises LimitError if this takes more than the budget has.
        """


class InstantSource(SampleSource, Protocol):
    """A source that can also give only the newest sample, which saves an instant selector its window."""

    def newest(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> list[Newest]:
        """Return label set, time and value of the newest sample of each series, for start < time <= end.

        The elements count as held. Raises LimitError if they are more than the budget has.
        """


def to_milliseconds(at: float) -> int:
    """Return a time in whole milliseconds."""
    return round(at * 1000)


class OutOfOrderError(ValueError):
    """A sample is not newer than the newest of its series."""


def is_newer(newest_at: float, newest: float, at: float, value: float) -> bool:
    """Return whether a sample comes after a series' newest, False if it repeats it. Raises OutOfOrderError."""
    if at > newest_at:
        return True
    if at == newest_at and (value == newest or (value != value and newest != newest)):
        return False
    raise OutOfOrderError(f"sample at {at} is not after the newest of its series at {newest_at}")


class Sampled(Protocol):
    """A series with its samples, oldest first. It has at least one when it is read."""

    labels: Labels
    times: array[float]
    values: array[float]


def windows_of(found: Sequence[Sampled], start: float, end: float, budget: Budget | None) -> Iterator[Window]:
    """Yield what `SampleSource.select` yields for these series."""
    budget = budget or Budget()
    for series in budget.each(found):
        times = series.times
        low = 0 if times[0] > start else bisect_right(times, start)
        high = len(times) if times[-1] <= end else bisect_right(times, end)
        if high - low > _COPIED:
            budget.fit(high - low)
            budget.spend((high - low) // _COPIED)
        if low < high:
            yield series.labels, times[low:high], series.values[low:high]


def newest_of(found: Sequence[Sampled], start: float, end: float, budget: Budget | None) -> list[Newest]:
    """Return what `InstantSource.newest` returns for these series."""
    budget = budget or Budget()
    budget.hold(ELEMENT * len(found))
    newest: list[Newest] = []
    for series in budget.each(found):
        times = series.times
        at = times[-1]
        if at <= end:  # the usual case: the question is seldom about the past
            if at > start:
                newest.append((series.labels, at, series.values[-1]))
            continue
        index = bisect_right(times, end) - 1
        if index >= 0 and times[index] > start:
            newest.append((series.labels, times[index], series.values[index]))
    return newest


class _Series:
    __slots__ = ("labels", "times", "values")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.times: array[float] = array("d")
        self.values: array[float] = array("d")


class Storage:
    """Series in memory, found by metric name."""

    refused: ClassVar[Mapping[Any, str]] = {}
    """Rules for which nothing is kept: none, everything is kept."""

    def __init__(self) -> None:
        self._index: Index[_Series] = Index()

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._index)

    def append(self, labels: Labels, at: float, value: float) -> None:
        """Add a sample; it must be newer than the series' newest, unless it repeats that one."""
        series = self._index.get(labels) or self._index.add(_Series(labels))
        at = to_milliseconds(at) / 1000
        if not series.times or is_newer(series.times[-1], series.values[-1], at, value):
            series.times.append(at)
            series.values.append(value)

    @property
    def version(self) -> object:
        """Another object after each series that came or went."""
        return self._index.version

    def lacks(self, matchers: tuple[Matcher, ...], budget: Budget) -> bool:
        """Return whether no series matches. Raises LimitError."""
        return not self._index.matching(matchers, budget)

    def mark_stale(self, labels: Labels, at: float) -> None:
        """End a series; a series without samples, or that has ended, is left alone."""
        series = self._index.get(labels)
        if series is not None and not is_stale(series.values[-1]):
            self.append(labels, at, STALE)

    def select(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> Iterator[Window]:
        """Yield the windows of the series that match (see `SampleSource`)."""
        return windows_of(self._index.matching(matchers, budget), start, end, budget)

    def newest(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> list[Newest]:
        """Return the newest samples of the series that match (see `InstantSource`)."""
        return newest_of(self._index.matching(matchers, budget), start, end, budget)

    def drop_before(self, at: float) -> None:
        """Forget every sample older than a time, and every series that has none left."""
        at = to_milliseconds(at) / 1000
        for series in list(self._index):
            first = bisect_left(series.times, at)
            if first:
                del series.times[:first]
                del series.values[:first]
                if not series.times:
                    self._index.remove(series)
