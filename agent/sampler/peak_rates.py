"""The rate at which each of some counters grew from one sample to the next, for the peaks within a minute."""

from __future__ import annotations

from collections.abc import Sequence

from agent.model import Series

Last = dict[Series, tuple[float, float]]
"""When a counter was last read, and the value that was shown then."""


class Rates:
    """Rates of counters that are sampled together. `last` is shared with those who have measured them before."""

    def __init__(self, series: Sequence[Series], last: Last) -> None:
        self._series = tuple(series)
        self._last = last

    def feed(self, at: float, values: Sequence[float | None]) -> list[float | None]:
        """Growth per second since the last value of each; None without a value, or one before. `at` in seconds."""
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
