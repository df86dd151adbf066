"""Samples in memory, and the little that an evaluation asks of whoever keeps them.

`Source` is that question: the series that match, with their samples after `start` and up to `end`. `Storage` answers it
from arrays, for tests and for whoever has no windows of his own. Times are seconds and are kept to the millisecond,
which is Prometheus's resolution, so that the edges of a range are exact. It never reads a clock and never expires
anything by itself: `drop_before` does.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from alerts.promql.labels import METRIC_NAME, Labels, label_value
from alerts.promql.matchers import Matcher, match_all, wanted_name
from alerts.promql.staleness import STALE, is_stale

Window = tuple[Labels, Sequence[float], Sequence[float]]
Newest = tuple[Labels, float, float]

_REMEMBERED_SELECTIONS = 1024


class Source(Protocol):
    """Whoever has samples to evaluate over."""

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> list[Window]:
        """Return label set, times and values of each series that matches, for start < time <= end.

        Staleness markers are among the values. A series without samples in the range is left out.
        """


@runtime_checkable
class InstantSource(Source, Protocol):
    """A source that can also give the newest sample alone, which saves an instant selector its window."""

    def newest(self, matchers: tuple[Matcher, ...], start: float, end: float) -> list[Newest]:
        """Return label set, time and value of the newest sample of each series, for start < time <= end."""


def to_milliseconds(at: float) -> int:
    """Return a time in whole milliseconds."""
    return round(at * 1000)


class OutOfOrderError(ValueError):
    """A sample is not newer than the newest of its series."""


class _Series:
    __slots__ = ("labels", "times", "values")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.times: array[float] = array("d")
        self.values: array[float] = array("d")


class Storage:
    """Series in memory, found by metric name."""

    def __init__(self) -> None:
        self._series: dict[Labels, _Series] = {}
        self._by_name: dict[str, list[_Series]] = {}
        self._selections: dict[tuple[Matcher, ...], list[_Series]] = {}

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._series)

    def append(self, labels: Labels, at: float, value: float) -> None:
        """Add a sample; it must be newer than the series' newest, unless it repeats that one."""
        series = self._series.get(labels)
        if series is None:
            series = self._add(labels)
        at = to_milliseconds(at) / 1000
        if series.times and at <= series.times[-1]:
            newest = series.values[-1]
            if at == series.times[-1] and (value == newest or (value != value and newest != newest)):
                return
            raise OutOfOrderError(f"sample at {at} is not after the newest of its series at {series.times[-1]}")
        series.times.append(at)
        series.values.append(value)

    def mark_stale(self, labels: Labels, at: float) -> None:
        """End a series; a series that has no samples, or has ended, is left alone."""
        series = self._series.get(labels)
        if series is not None and not is_stale(series.values[-1]):
            self.append(labels, at, STALE)

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float) -> list[Window]:
        """Return the windows of the series that match (see `Source`)."""
        windows: list[Window] = []
        for series in self._matching(matchers):
            times = series.times
            low = bisect_right(times, start)
            high = len(times) if times[-1] <= end else bisect_right(times, end)
            if low < high:
                windows.append((series.labels, times[low:high], series.values[low:high]))
        return windows

    def newest(self, matchers: tuple[Matcher, ...], start: float, end: float) -> list[Newest]:
        """Return the newest samples of the series that match (see `InstantSource`)."""
        found: list[Newest] = []
        for series in self._matching(matchers):
            times = series.times
            index = -1 if times[-1] <= end else bisect_right(times, end) - 1
            if index == -1 and times[-1] > end:
                continue
            if times[index] > start:
                found.append((series.labels, times[index], series.values[index]))
        return found

    def drop_before(self, at: float) -> None:
        """Forget every sample older than a time, and every series that has none left."""
        at = to_milliseconds(at) / 1000
        emptied = []
        for series in self._series.values():
            first = bisect_left(series.times, at)
            if first:
                del series.times[:first]
                del series.values[:first]
                if not series.times:
                    emptied.append(series)
        for series in emptied:
            self._remove(series)

    def _add(self, labels: Labels) -> _Series:
        series = _Series(labels)
        self._series[labels] = series
        self._by_name.setdefault(label_value(labels, METRIC_NAME), []).append(series)
        self._selections.clear()
        return series

    def _remove(self, series: _Series) -> None:
        del self._series[series.labels]
        name = label_value(series.labels, METRIC_NAME)
        self._by_name[name].remove(series)
        if not self._by_name[name]:
            del self._by_name[name]
        self._selections.clear()

    def _matching(self, matchers: tuple[Matcher, ...]) -> list[_Series]:
        """Return the series that match; the answer is kept until a series comes or goes."""
        found = self._selections.get(matchers)
        if found is None:
            name = wanted_name(matchers)
            candidates = self._series.values() if name is None else self._by_name.get(name, ())
            found = [series for series in candidates if match_all(matchers, series.labels)]
            if len(self._selections) >= _REMEMBERED_SELECTIONS:
                self._selections.clear()
            self._selections[matchers] = found
        return found
