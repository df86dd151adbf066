"""Minimum, mean and maximum over a rolling window, so that nothing between two scrapes is lost.

The window has 60 buckets; the statistics cover the 59 closed ones and the open one, and are
updated when a bucket closes. Reading never resets them, so any number of scrapers see the same.

All series of a lane are columns of the same window: operations apply to a whole row at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from math import inf
from operator import add, truediv
from typing import NamedTuple

BUCKETS = 60

Row = tuple[float, ...]
Counts = tuple[int, ...] | int
"""The number of values of each column; one number if all columns have as many, as nearly always."""


class Bucket(NamedTuple):
    """The statistics of a stretch of time, one item for each column; a column without a value has a count of 0."""

    lowest: Row
    highest: Row
    sums: Row
    counts: Counts

    def with_other(self, other: Bucket) -> Bucket:
        """Return the statistics of both stretches together."""
        return Bucket(
            tuple(map(min, self.lowest, other.lowest)),
            tuple(map(max, self.highest, other.highest)),
            tuple(map(add, self.sums, other.sums)),
            _added(self.counts, other.counts),
        )

    def spread_counts(self) -> tuple[int, ...]:
        """Return the count of each column."""
        return self.counts if isinstance(self.counts, tuple) else (self.counts,) * len(self.sums)


def _added(left: Counts, right: Counts) -> Counts:
    if isinstance(left, int):
        return left + right if isinstance(right, int) else tuple(map(add, repeat(left), right))
    return tuple(map(add, left, repeat(right) if isinstance(right, int) else right))


class RollingWindow:
    """Statistics of some series that are sampled together. Times in seconds on the monotonic clock.

    Buckets are kept in two piles, as a queue that is made of two stacks: each bucket of the older pile holds the
    statistics from its own time to the end of the pile, so that the oldest bucket is simply dropped, and no minimum is
    ever searched for among all sixty.
    """

    def __init__(self, window: float, width: int) -> None:
        """`window` in seconds; `width` is the number of columns."""
        self._length = window / BUCKETS
        self._width = width
        self._nothing = _empty(width)
        self._index = -1
        self._open = self._nothing
        self._newer: list[tuple[int, Bucket]] = []
        self._newer_total = self._nothing
        self._older: list[tuple[int, Bucket]] = []
        self.lowest: Row = ()
        self.means: Row = ()
        self.highest: Row = ()

    def add(self, at: float, values: Sequence[float | None]) -> bool:
        """Take in one value of each column, or None; True if `lowest`, `means` and `highest` were renewed.

        Their items for a column without a value in the window are meaningless.
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
        more = width - self._width
        self._width = width
        empty = _empty(more)
        self._nothing, self._open, self._newer_total = (
            _beside(each, empty) for each in (self._nothing, self._open, self._newer_total)
        )
        self._newer = [(index, _beside(bucket, empty)) for index, bucket in self._newer]
        self._older = [(index, _beside(bucket, empty)) for index, bucket in self._older]

    def _bucket(self, values: Sequence[float | None]) -> Bucket:
        if None in values:
            return Bucket(
                tuple(inf if value is None else float(value) for value in values),
                tuple(-inf if value is None else float(value) for value in values),
                tuple(value or 0.0 for value in values),
                tuple(int(value is not None) for value in values),
            )
        row: Row = tuple(map(float, values))  # type: ignore[arg-type]  # no None is among them
        return Bucket(row, row, row, 1)

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
        # The three stretches at once, each column in one step; the sums in the order in which they were made.
        self.lowest = tuple(map(min, older.lowest, newer.lowest, latest.lowest))
        self.highest = tuple(map(max, older.highest, newer.highest, latest.highest))
        sums = map(add, older.sums, map(add, newer.sums, latest.sums))
        counts = _added(older.counts, _added(newer.counts, latest.counts))
        each = repeat(max(counts, 1)) if isinstance(counts, int) else map(max, counts, repeat(1))
        self.means = tuple(map(truediv, sums, each))


def _empty(width: int) -> Bucket:
    return Bucket((inf,) * width, (-inf,) * width, (0.0,) * width, 0)


def _beside(left: Bucket, right: Bucket) -> Bucket:
    return Bucket(
        left.lowest + right.lowest,
        left.highest + right.highest,
        left.sums + right.sums,
        left.spread_counts() + right.spread_counts(),
    )
