"""Lowest, mean and highest value over a rolling window, so that nothing between two scrapes is lost.

The window is made of 60 buckets; the statistics cover the 59 closed ones and the open one, and are
renewed when a bucket closes. They are never reset by reading, so any number of scrapers see the same.
"""

from __future__ import annotations

from array import array
from math import inf

BUCKETS = 60


class RollingWindow:
    """Statistics of one series. Times in seconds on the monotonic clock."""

    __slots__ = (
        "_bucket", "_count", "_counts", "_high", "_highest", "_index", "_low", "_lowest", "_sum", "_sums",
        "max", "mean", "min",
    )  # fmt: skip

    def __init__(self, window: float) -> None:
        self._bucket = window / BUCKETS
        self._lowest = array("d", [inf]) * BUCKETS
        self._highest = array("d", [-inf]) * BUCKETS
        self._sums = array("d", [0.0]) * BUCKETS
        self._counts = array("L", [0]) * BUCKETS
        self._index = -1
        # Of all buckets: kept up to date, since looking at all sixty for each value of each GPU would be
        # the dearest thing that the sampler does.
        self._low, self._high, self._sum, self._count = inf, -inf, 0.0, 0
        self.min = self.mean = self.max = 0.0

    def add(self, at: float, value: float) -> bool:
        """Take a value in; True if `min`, `mean` and `max` were renewed."""
        index = int(at / self._bucket)
        fresh = index != self._index
        if fresh:
            self._open(index)
        slot = index % BUCKETS
        if value < self._lowest[slot]:
            self._lowest[slot] = value
            if value < self._low:
                self._low = value
        if value > self._highest[slot]:
            self._highest[slot] = value
            if value > self._high:
                self._high = value
        self._sums[slot] += value
        self._counts[slot] += 1
        self._sum += value
        self._count += 1
        if fresh:
            self.min, self.mean, self.max = self._low, self._sum / self._count, self._high
        return fresh

    def _open(self, index: int) -> None:
        """Clear the buckets between the last one used and this one: nothing was seen then."""
        last = self._index if 0 <= index - self._index < BUCKETS and self._index >= 0 else index - BUCKETS
        lost_extreme = False
        for passed in range(last + 1, index + 1):
            slot = passed % BUCKETS
            if self._counts[slot]:
                lost_extreme |= self._lowest[slot] <= self._low or self._highest[slot] >= self._high
                self._count -= self._counts[slot]
                self._sum -= self._sums[slot]
                self._lowest[slot], self._highest[slot] = inf, -inf
                self._sums[slot], self._counts[slot] = 0.0, 0
        if lost_extreme:
            self._low, self._high = min(self._lowest), max(self._highest)
        if index % BUCKETS == 0 or not self._count:
            self._sum = sum(self._sums)  # rounding must not add up over weeks
        self._index = index
