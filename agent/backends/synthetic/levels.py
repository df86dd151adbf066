"""The activity of a GPU, as a repeating cycle of constant levels whose integrals are known in closed form.

This is the core of the design: a day of training is one cycle and a number of repetitions, so that any moment
can be computed directly, at the price of a few multiplications. No simulation steps are needed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

(
    BUSY,  # share of time with a kernel running
    MEMORY_ACTIVE,
    POWER,  # watts
    SM,
    OCCUPANCY,
    TENSOR,
    DRAM,
    FP64,
    FP32,
    FP16,
    NVLINK_TX,  # bytes/s from here
    NVLINK_RX,
    PCIE_TX,
    PCIE_RX,
    FABRIC_TX,
    FABRIC_RX,
    IDLE,  # shares of time with a reason for low clocks, from here
    POWER_CAP,
    SW_THERMAL,
    HW_THERMAL,
    POWER_BRAKE,
    CLOCK,  # hertz; its integral means nothing
) = range(22)
WIDTH = 22

Levels = tuple[float, ...]


def levels(values: dict[int, float]) -> Levels:
    """The levels with these values, 0 elsewhere."""
    return tuple(values.get(channel, 0.0) for channel in range(WIDTH))


class Cycle:
    """Pieces of constant levels, over and over. Immutable by convention."""

    __slots__ = ("_prefix", "_starts", "durations", "mean_power", "period", "pieces", "total")

    def __init__(self, pieces: Sequence[tuple[float, Levels]]) -> None:
        self.durations = tuple(duration for duration, _ in pieces)
        self.pieces = tuple(level for _, level in pieces)
        starts, prefix = [0.0], [(0.0,) * WIDTH]
        for duration, level in pieces:
            starts.append(starts[-1] + duration)
            prefix.append(tuple(before + rate * duration for before, rate in zip(prefix[-1], level, strict=True)))
        self.period = starts.pop()
        self.total = prefix.pop()
        self._starts = starts
        self._prefix = prefix
        self.mean_power = self.total[POWER] / self.period

    def locate(self, x: float) -> tuple[float, int, float]:
        """Whole turns, piece, and time into the piece, `x` seconds after the cycle's origin."""
        turns, into = divmod(x, self.period)
        piece = bisect_right(self._starts, into) - 1
        return turns, piece, into - self._starts[piece]

    def at(self, x: float) -> Levels:
        return self.pieces[bisect_right(self._starts, x % self.period) - 1]

    def integral(self, x: float) -> list[float]:
        """What has accumulated since the cycle's origin, for each channel."""
        turns, piece, into = self.locate(x)
        return [
            turns * each + before + rate * into
            for each, before, rate in zip(self.total, self._prefix[piece], self.pieces[piece], strict=True)
        ]

    def added(self, base: list[float], x: float) -> list[float]:
        """`base` plus the integral: the two in one pass, because it is done at every read."""
        turns, piece, into = self.locate(x)
        parts = zip(base, self.total, self._prefix[piece], self.pieces[piece], strict=True)
        return [start + turns * each + before + rate * into for start, each, before, rate in parts]

    def added_of(self, base: list[float], x: float, channels: tuple[int, ...]) -> list[float]:
        """The same for some channels only."""
        turns, piece, into = self.locate(x)
        total, prefix, level = self.total, self._prefix[piece], self.pieces[piece]
        return [base[c] + turns * total[c] + prefix[c] + level[c] * into for c in channels]
