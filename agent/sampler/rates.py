"""Rates and usual levels that the ledger learns from tick to tick: of bytes that move, and of idle power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agent.model import Layout

SETTLED_SECONDS, IDLE_SECONDS = 10.0, 60.0
"""For how long a GPU must be idle before its power counts as idle power, and the time constant of learning that."""
FAR_ABOVE, LEAST_BYTES = 3.0, 200e6
"""The node writes or reads far above the usual from this multiple of the usual rate, and this excess in bytes/s, on."""
USUAL_SECONDS = 300.0
"""Time constant of the usual rate, which is learned while GPUs compute."""


class Rate:
    """Growth per second of the sum of some values of a frame. New ones come with the lane that reads them."""

    def __init__(self) -> None:
        self.per_second = 0.0
        self._read: Sequence[float] | None = None
        self._at = self._total = 0.0

    def update(self, values: Sequence[float], places: Sequence[int], now: float) -> float:
        """Return the rate between the last two reads; 0 before the second."""
        if values is not self._read:
            total = sum([values[place] for place in places])
            if self._read is not None and now > self._at:
                self.per_second = max(total - self._total, 0.0) / (now - self._at)
            self._read, self._at, self._total = values, now, total
        return self.per_second


class Flow:
    """The rate of some counters of the node, and the usual one."""

    def __init__(self) -> None:
        self.rate = 0.0
        self.usual = 0.0
        self._parts: dict[Layout, tuple[int, list[int], Rate]] = {}
        """By layout, the number of its frame, the places of the counters there, and their rate."""

    def find(self, layouts: Sequence[Layout], places: Mapping[int, list[int]]) -> None:
        """Note where the counters are; those of other layouts are forgotten."""
        rates = {layout: rate for layout, (_, _, rate) in self._parts.items()}
        self._parts = {
            layouts[frame]: (frame, counters, rates.get(layouts[frame]) or Rate()) for frame, counters in places.items()
        }

    def update(self, values: Sequence[Sequence[float]], now: float) -> None:
        """Read the counters of the frames that were read again."""
        self.rate = sum([rate.update(values[frame], places, now) for frame, places, rate in self._parts.values()])

    def update_usual(self, seconds: float) -> None:
        """Count the present rate to the usual one."""
        self.usual += (self.rate - self.usual) * min(seconds / USUAL_SECONDS, 1.0)

    @property
    def is_high(self) -> bool:
        """Whether the rate is far above the usual."""
        return self.rate > FAR_ABOVE * self.usual + LEAST_BYTES


class IdlePower:
    """What one GPU draws when a job holds it and nothing runs, as a share of its default limit; 0 until it is known."""

    def __init__(self) -> None:
        self.share = 0.0
        self._idle_since: float | None = None
        self._at = 0.0

    def update(self, now: float, busy: float, power: float) -> None:
        """Count a tick. The driver reports means of power, so the first idle seconds still show work."""
        if busy > 0.0:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        elif now - self._idle_since >= SETTLED_SECONDS:
            weight = min((now - self._at) / IDLE_SECONDS, 1.0) if self.share else 1.0
            self.share += (power - self.share) * weight
        self._at = now
