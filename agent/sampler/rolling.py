"""Minimum, mean and maximum over a rolling window, so that nothing between two scrapes is lost.

The window has 60 buckets; the statistics cover the 59 closed ones and the open one, and are
updated when a bucket closes. Reading never resets them, so any number of scrapers see the same.

The series of all fast lanes are columns of one window: operations apply to a whole row at once, once for each snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from math import inf, isfinite, nan
from operator import add, and_
from typing import NamedTuple

from agent.catalogue import PEAKS, ROLLING
from agent.lib.layout_columns import picker
from agent.model import EMPTY_FRAME, EMPTY_LAYOUT, Frame, Framer, Layout, Series, readings_of

BUCKETS = 60
ROOM = 5_000
"""Series that are remembered. Beyond it, those that are gone are forgotten."""

Row = list[float]


class Bucket(NamedTuple):
    """The statistics of a stretch of time, one item for each column; a column without a value has a count of 0."""

    lowest: Row
    highest: Row
    sums: Row
    counts: Row

    def with_other(self, other: Bucket) -> Bucket:
        """Return the statistics of both stretches together."""
        return Bucket(
            _lower(self.lowest, other.lowest),
            _higher(self.highest, other.highest),
            list(map(add, self.sums, other.sums)),
            list(map(add, self.counts, other.counts)),
        )


def _lower(first: Row, second: Row) -> Row:
    """Return the lower value of each column."""
    return [new if new < old else old for old, new in zip(first, second, strict=True)]  # noqa: FURB136 - min is slow


def _higher(first: Row, second: Row) -> Row:
    """Return the higher value of each column."""
    return [new if new > old else old for old, new in zip(first, second, strict=True)]  # noqa: FURB136 - max is slow


class RollingWindow:
    """Statistics of some series that are sampled together. Times in seconds on the monotonic clock.

    Buckets are kept in two piles, as a queue that is made of two stacks: each bucket of the older pile holds the
    statistics from its own time to the end of the pile, so that the oldest bucket is simply dropped, and no minimum is
    ever searched for among all sixty.
    """

    def __init__(self, window: float, width: int) -> None:
        """`window` in seconds; `width` is the number of columns."""
        self._length = window / BUCKETS
        self.width = width
        self._nothing = _empty(width)
        self._index = -1
        self._open = self._nothing
        self._newer: list[tuple[int, Bucket]] = []
        self._newer_total = self._nothing
        self._older: list[tuple[int, Bucket]] = []
        self.lowest: Row = []
        self.means: Row = []
        self.highest: Row = []

    def add(self, at: float, values: Sequence[float | None]) -> bool:
        """Take in one value of each column, or None; True if `lowest`, `means` and `highest` were renewed.

        Their items for a column without a value in the window are not finite.
        """
        index = int(at / self._length)
        fresh = index != self._index
        if fresh:
            self._advance(index)
            self._open = self._bucket(values)
        else:
            self._open = self._open.with_other(self._bucket(values))
        # A column may get its first value while a bucket is open.
        renewed = fresh or len(self.means) != len(values) or -inf in self.highest
        if renewed:
            self._renew()
        return renewed

    def widen(self, width: int) -> None:
        """Continue with more columns; the new ones come last."""
        more = width - self.width
        self.width = width
        empty = _empty(more)
        self._nothing, self._open, self._newer_total = (
            _beside(columns, empty) for columns in (self._nothing, self._open, self._newer_total)
        )
        self._newer = [(index, _beside(bucket, empty)) for index, bucket in self._newer]
        self._older = [(index, _beside(bucket, empty)) for index, bucket in self._older]

    def _bucket(self, values: Sequence[float | None]) -> Bucket:
        if None in values:
            return Bucket(
                [inf if value is None else float(value) for value in values],
                [-inf if value is None else float(value) for value in values],
                [value or 0.0 for value in values],
                [float(value is not None) for value in values],
            )
        row: Row = list(map(float, values))  # type: ignore[arg-type]  # no None is among them
        return Bucket(row, row, row, [1.0] * self.width)

    def _advance(self, index: int) -> None:
        """Close the open bucket, and drop those that are too old."""
        if not 0 < index - self._index < BUCKETS or self._index < 0:
            self._newer, self._older, self._newer_total = [], [], self._nothing
        else:
            self._newer.append((self._index, self._open))
            self._newer_total = self._newer_total.with_other(self._open)
            self._drop(index - BUCKETS)
        self._index = index

    def _drop(self, last: int) -> None:
        """Drop the buckets up to this one."""
        while (self._older or self._newer) and (self._older[-1] if self._older else self._newer[0])[0] <= last:
            if not self._older:
                self._turn_over()
            self._older.pop()

    def _turn_over(self) -> None:
        """Make the newer pile the older one."""
        total = self._nothing
        for index, bucket in reversed(self._newer):
            total = bucket.with_other(total)
            self._older.append((index, total))
        self._newer, self._newer_total = [], self._nothing

    def _renew(self) -> None:
        newer, latest = self._newer_total, self._open
        older = self._older[-1][1] if self._older else self._nothing
        # The sums in the order in which they were made.
        self.lowest = _lower(_lower(older.lowest, newer.lowest), latest.lowest)
        self.highest = _higher(_higher(older.highest, newer.highest), latest.highest)
        sums = map(add, older.sums, map(add, newer.sums, latest.sums))
        counts = map(add, older.counts, map(add, newer.counts, latest.counts))
        self.means = [total / count if count else nan for total, count in zip(sums, counts, strict=True)]


def _empty(width: int) -> Bucket:
    return Bucket([inf] * width, [-inf] * width, [0.0] * width, [0.0] * width)


def _beside(first: Bucket, second: Bucket) -> Bucket:
    return Bucket(*map(add, first, second))


class RolledColumns:
    """The columns of one lane: its series that have statistics, then those of which only the highest rate is shown."""

    __slots__ = ("series", "shown")

    def __init__(self, rolled: Sequence[Series], rated: Sequence[Series]) -> None:
        self.series = (*rolled, *rated)
        self.shown: list[list[tuple[int, Series]]] = []
        """What is shown of each column: the number of the statistic (lowest, mean, highest), and its series."""
        for series in rolled:
            rows = enumerate(ROLLING[series.metric.name])
            self.shown.append([(number, Series(row, series.entity, series.labels)) for number, row in rows])
        for series in rated:
            self.shown.append([(2, Series(PEAKS[series.metric.name], series.entity, series.labels))])


class RollingStatistics:
    """The statistics of all fast lanes. A lane has a key, and enters the values of its columns with each sample."""

    def __init__(self, window: float) -> None:
        """`window` in seconds."""
        self._framer = Framer()
        self._window = window
        self._start()

    def set_window(self, window: float) -> None:
        """Start again if the window, in seconds, is another one than before."""
        if window != self._window:
            self._window = window
            self._start()

    def _start(self) -> None:
        self._places: dict[Series, int] = {}
        """The columns of all lanes."""
        self._places_of: dict[RolledColumns, list[int]] = {}
        self._rolling = RollingWindow(self._window, 0)
        self._entered: dict[object, tuple[RolledColumns, Sequence[float | None]]] = {}
        self._fresh: set[object] = set()
        self._lanes: list[RolledColumns] = []
        self._layout, self._pick = EMPTY_LAYOUT, picker(())

    def add_sample(self, key: object, columns: RolledColumns, values: Sequence[float | None]) -> None:
        """Take in what a lane has read since the last `add`: a value or None for each of its columns."""
        if columns not in self._places_of:
            self._places_of[columns] = [self._places.setdefault(series, len(self._places)) for series in columns.series]
            if len(self._places) > self._rolling.width:
                self._rolling.widen(len(self._places))
        self._entered[key] = columns, values
        self._fresh.add(key)

    def remove(self, key: object) -> None:
        """End the statistics of a lane whose last read gave no value for them."""
        self._entered.pop(key, None)
        self._fresh.discard(key)

    def add(self, at: float) -> None:
        """Add what was entered since the last call, as of a monotonic second."""
        if self._fresh:
            self._rolling.add(at, self._row())

    def frame(self, keys: Sequence[object]) -> Frame:
        """Return the statistics of the lanes with these keys: of columns that have a value."""
        lanes = [self._entered[key] for key in keys if key in self._entered]
        if len(self._entered) > len(lanes):
            self._entered = {key: self._entered[key] for key in keys if key in self._entered}
        columns = [rolled for rolled, _ in lanes]
        if columns != self._lanes:
            if len(self._places) > max(ROOM, 2 * sum(len(column.series) for column in columns)):
                self._start()
                return EMPTY_FRAME
            self._lay_out(columns)
        rolling = self._rolling
        statistics = self._pick((*rolling.lowest, *rolling.means, *rolling.highest))
        are_finite = list(map(isfinite, statistics))  # a lane that was not read within the window has no value in it
        if all(are_finite) and not any(None in values for _, values in lanes):
            return Frame(self._layout, statistics)
        have_value = (
            value is not None
            for rolled, values in lanes
            for series, value in zip(rolled.shown, values, strict=True)
            for _ in series
        )
        present = map(and_, are_finite, have_value)
        return self._framer.frame(compress(readings_of(self._layout.series, statistics), present))

    def _row(self) -> list[float | None]:
        row: list[float | None] = [None] * len(self._places)
        for key in self._fresh:
            columns, values = self._entered[key]
            for place, value in zip(self._places_of[columns], values, strict=True):
                row[place] = value
        self._fresh.clear()
        return row

    def _lay_out(self, lanes: list[RolledColumns]) -> None:
        self._lanes = lanes
        self._places_of = {lane: self._places_of[lane] for lane in lanes}
        width = len(self._places)
        exposed = [
            (number * width + place, series)
            for lane in lanes
            for place, rows in zip(self._places_of[lane], lane.shown, strict=True)
            for number, series in rows
        ]
        self._layout = Layout(tuple(series for _, series in exposed))
        self._pick = picker([place for place, _ in exposed])
