"""Samples in memory, found by matchers.

`SampleStore` is what an evaluation needs: the series that match, with their samples after `start` and up to `end`. It
finds series by metric name first, and keeps results until a series comes or goes. `Storage` keeps everything, for code
without windows. Times are seconds and are kept to the millisecond, which is Prometheus's resolution, so that the
edges of a range are exact.

Prometheus's staleness marker is the one NaN that means that a series has ended. An ordinary NaN is a value. Only the
marker's bits differ, so every test checks the bits.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import compress
from typing import Any, Generic, TypeVar

from alerts.limits import SAMPLES_PER_ELEMENT
from alerts.promql.budget import Budget
from alerts.promql.labels import METRIC_NAME, Labels, Matcher, label_value, match_all, only_metric_name

STALE_BITS = 0x7FF0000000000002
_STALE_BYTES = struct.pack("=Q", STALE_BITS)
_BYTE_OF_MARKERS = 0x7F
STALE: float = struct.unpack("=d", _STALE_BYTES)[0]

_pack = struct.Struct("=d").pack


def is_stale(value: float) -> bool:
    """Return whether a value is the staleness marker, and not a number or an ordinary NaN."""
    return value != value and _pack(value) == _STALE_BYTES


def without_markers(times: array[float], values: array[float]) -> tuple[array[float], array[float]]:
    """Leave the staleness markers out of a window: a range selector never shows them."""
    # A search of the bytes is a hundred times faster than a check of each value, and most windows have no marker. One
    # byte is searched for first: a search for all of them is slow if most bytes are zero, as in counts.
    raw = values.tobytes()
    if _BYTE_OF_MARKERS not in raw or _STALE_BYTES not in raw:
        return times, values
    kept = bytearray(value == value or not is_stale(value) for value in values)
    return array("d", compress(times, kept)), array("d", compress(values, kept))


_REMEMBERED_SELECTIONS = 1024
_REMEMBERED_SERIES = 250_000
"""Most entries of all remembered selections together: 2 MB."""
_MATCHED = 4
"""Units of work to compare a series with matchers."""


class SampledSeries:
    """A series with its samples, oldest first. It has at least one when it is read."""

    __slots__ = ("labels", "times", "values")

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.times: array[float] = array("d")
        self.values: array[float] = array("d")


S = TypeVar("S", bound=SampledSeries)


_COPIED = 64
"""Samples that are copied in the time of one unit of work; a window with fewer takes only the unit of its series."""

Window = tuple[Labels, "array[float]", "array[float]"]
Newest = tuple[Labels, float, float]


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


class SampleStore(Generic[S]):
    """Series to evaluate over, and to write to. What reads raises LimitError if it takes more than the budget has."""

    forgetful = False
    """Whether samples are kept only for as long as rules look back from now."""

    def __init__(self) -> None:
        self._series: dict[Labels, S] = {}
        self._by_name: dict[str, list[S]] = {}
        self._selections: dict[tuple[Matcher, ...], list[S]] = {}
        self._places = 0
        """Entries of all remembered selections together."""
        self.version = object()
        """Another object after each series that came or went."""

    def __len__(self) -> int:
        """Return the number of series."""
        return len(self._series)

    @property
    def refused(self) -> Mapping[Any, str]:
        """Rules for which no samples are kept, and why."""
        return {}

    def append(self, labels: Labels, at: float, value: float) -> None:
        """Add a sample that is newer than the series' newest, unless it repeats that one. Raises OutOfOrderError."""
        raise NotImplementedError

    def mark_stale(self, labels: Labels, at: float) -> None:
        """End a series; one that does not exist, or has ended, is left alone."""
        raise NotImplementedError

    def select(self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget) -> Iterator[Window]:
        """Yield label set, times and values of each series that matches, for start < time <= end.

        Staleness markers are among the values. A series without samples in the range is left out. Only one window needs
        to be in memory at a time.
        """
        for series in budget.iterate(self._matching(matchers, budget)):
            times = series.times
            low = 0 if times[0] > start else bisect_right(times, start)
            high = len(times) if times[-1] <= end else bisect_right(times, end)
            if high - low > _COPIED:
                budget.fit(high - low)
                budget.spend((high - low) // _COPIED)
            if low < high:
                yield series.labels, times[low:high], series.values[low:high]

    def newest(self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget) -> list[Newest]:
        """Return label set, time and value of the newest sample of each series that matches, for start < time <= end.

        The elements count as held.
        """
        matching = self._matching(matchers, budget)
        budget.hold(SAMPLES_PER_ELEMENT * len(matching))
        newest: list[Newest] = []
        for series in budget.iterate(matching):
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

    def same_labels(self, labels: Labels) -> Labels:
        """Return the label set of the series with exactly these labels, or the given object."""
        series = self._series.get(labels)
        return labels if series is None else series.labels

    def lacks(self, matchers: tuple[Matcher, ...], budget: Budget) -> bool:
        """Return whether no series matches at all, at any time."""
        return not self._find(matchers, budget)

    def _matching(self, matchers: tuple[Matcher, ...], budget: Budget) -> list[S]:
        """Return the series that match, with all their samples."""
        return self._find(matchers, budget)

    def _find(self, matchers: tuple[Matcher, ...], budget: Budget) -> list[S]:
        matching = self._selections.get(matchers)
        if matching is None:
            name = only_metric_name(matchers)
            candidates = [*self._series.values()] if name is None else self._by_name.get(name, [])
            looked_at = budget.iterate(candidates, _MATCHED)
            matching = [series for series in looked_at if match_all(matchers, series.labels)]
            self._places += len(matching)
            if len(self._selections) >= _REMEMBERED_SELECTIONS or self._places > _REMEMBERED_SERIES:
                self._selections.clear()
                self._places = len(matching)
            self._selections[matchers] = matching
        return matching

    def _add(self, series: S) -> S:
        """Add a new series, and return it."""
        self._series[series.labels] = series
        self._by_name.setdefault(label_value(series.labels, METRIC_NAME), []).append(series)
        self._change()
        return series

    def _remove(self, series: S) -> None:
        del self._series[series.labels]
        name = label_value(series.labels, METRIC_NAME)
        self._by_name[name].remove(series)
        if not self._by_name[name]:
            del self._by_name[name]
        self._change()

    def _change(self) -> None:
        self.version = object()
        self._selections.clear()
        self._places = 0


AnyStore = SampleStore[Any]


class Storage(SampleStore[SampledSeries]):
    """Keeps every sample."""

    def append(self, labels: Labels, at: float, value: float) -> None:
        series = self._series.get(labels) or self._add(SampledSeries(labels))
        at = to_milliseconds(at) / 1000
        if not series.times or is_newer(series.times[-1], series.values[-1], at, value):
            series.times.append(at)
            series.values.append(value)

    def mark_stale(self, labels: Labels, at: float) -> None:
        series = self._series.get(labels)
        if series is not None and not is_stale(series.values[-1]):
            self.append(labels, at, STALE)
