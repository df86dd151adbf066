"""The rate at which each of some counters grew from one sample to the next, for the peaks within a minute."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import sub, truediv

from agent.model import Series

Last = dict[Series, tuple[float, float]]
"""When a counter was last read, and the value that was shown then."""


class Rates:
    """Rates of counters that are sampled together. `last` is shared with those who have measured them before."""

    def __init__(self, series: Sequence[Series], last: Last) -> None:
        self._series = tuple(series)
        self._last = last
        self._before: tuple[float, ...] | None = None
        """The last value of each, while all have one that was read together; otherwise they are in `last`."""
        self._at = 0.0

    def feed(self, at: float, values: tuple[float | None, ...]) -> Sequence[float | None]:
        """Growth per second since the last value of each; None without a value, or one before. `at` in seconds."""
        complete: tuple[float, ...] | None = values if None not in values else None  # type: ignore[assignment]
        if complete is None:
            self.let_go()
            return self._feed_each(at, values)
        if self._before is None:
            found: Sequence[float | None] = self._feed_each(at, values)
        elif at > self._at:
            found = tuple(map(truediv, map(sub, complete, self._before), repeat(at - self._at)))
        else:
            found = (None,) * len(values)
        self._at, self._before = at, complete
        return found

    def let_go(self) -> None:
        """Pass on the last values: others may measure from now on."""
        if self._before is not None:
            self._last.update(
                (series, (self._at, value)) for series, value in zip(self._series, self._before, strict=True)
            )
            self._before = None

    def _feed_each(self, at: float, values: Sequence[float | None]) -> list[float | None]:
        last = self._last
        rates: list[float | None] = []
        for series, value in zip(self._series, values, strict=True):
            before = last.get(series)
            if value is None:
                rates.append(None)
                continue
            last[series] = (at, value)
            rates.append((value - before[1]) / (at - before[0]) if before is not None and at > before[0] else None)
        return rates
