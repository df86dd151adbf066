"""Scales the driver's numbers together, as long as each of them is good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import mul, truediv

from agent.backends.nvml.arrays import Slot, SlotFault
from agent.model import Reading, Series, readings_of


class ScaledColumns:
    """Series, and the factors by which the numbers of each are multiplied and divided."""

    def __init__(self, rows: Sequence[tuple[float, float, Series]]) -> None:
        """`rows` are multiplier, divisor and series."""
        self._multipliers = tuple(multiplier for multiplier, _, _ in rows)
        self._divisors = tuple(divisor for _, divisor, _ in rows)
        self._series = tuple(series for _, _, series in rows)

    def readings(self, slots: Sequence[Slot]) -> Iterator[Reading] | None:
        """The readings, from one number for each series; None if any number is missing."""
        if SlotFault in map(type, slots):
            return None
        return readings_of(self._series, map(truediv, map(mul, slots, self._multipliers), self._divisors))
