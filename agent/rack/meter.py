"""This node's power in each second of wall-clock time; a reported second never changes.

Second k is what ended at k: the mean of the samples in [k - 1, k). It is fixed when it is first requested
after it ended, and a sample that arrives later belongs to the next one. In a second without a sample the last one
counts, as long as it is not stale.
"""

from __future__ import annotations

from math import floor

KEPT_SECONDS = 8
"""Seconds that are remembered and reported."""
SET_BACK_SECONDS = 2
"""Seconds by which the clock must have been set back before what was reported no longer counts."""


class NodeMeter:
    """Belongs to one thread at a time. All times are wall seconds; samples come in order."""

    def __init__(self, patience: float = 3.0) -> None:
        self.patience = patience
        """Seconds for which a sample holds if none follows."""
        self.source: str | None = None
        """What measures or estimates the node's power; None while nothing does."""
        self._seconds: dict[int, float | None] = {}
        self._last: int | None = None
        self._samples: list[float] = []
        self._held: tuple[float, float] | None = None

    def note(self, at: float, watts: float | None, source: str = "") -> None:
        """Record a sample, or that there is none: then the last one no longer holds."""
        self._settle(at)
        if watts is None:
            self._samples, self._held, self.source = [], None, None
            return
        if source != self.source:
            self._samples, self.source = [], source
        self._samples.append(watts)
        self._held = (at, watts)

    def told(self, now: float) -> tuple[int, tuple[float | None, ...]]:
        """The last second that has ended, and the power in the last seconds up to it; None where it is not known."""
        last = self._settle(now)
        return last, tuple(self._seconds.get(second) for second in range(last - KEPT_SECONDS + 1, last + 1))

    def _settle(self, now: float) -> int:
        """Fix the seconds that have ended; returns the last fixed one."""
        newest = floor(now)
        last = self._last
        if last is None or not last - SET_BACK_SECONDS <= newest <= last + KEPT_SECONDS + self.patience:
            self._begin(newest)
            return newest
        for second in range(last + 1, newest + 1):
            self._seconds[second] = self._value(second)
            self._seconds.pop(second - KEPT_SECONDS, None)
            self._samples = []
        self._last = max(last, newest)
        return self._last

    def _begin(self, second: int) -> None:
        """Start again: the clock was set, or nothing was requested for long, so what was reported no longer counts."""
        self._seconds = {}
        self._samples = []
        self._held = None
        self._last = second

    def _value(self, second: int) -> float | None:
        if self._samples:
            return sum(self._samples) / len(self._samples)
        if self._held is not None and second - self._held[0] <= self.patience:
            return self._held[1]
        return None
