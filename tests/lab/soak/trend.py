"""Whether something grows: a line through samples that does not follow the odd one among them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

MOST = 400
"""Samples through which a line is laid; of more, as many at equal distances."""


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """What a figure grows by in a second: the median of the slopes between any two samples (Theil and Sen's line).

    Up to 29 % of the samples may be far off without turning it; a mean would follow a single peak. 0 of fewer than two.
    """
    chosen = samples[:: -(-len(samples) // MOST)] if samples else samples
    slopes = [(b - a) / (then - at) for (at, a), (then, b) in combinations(chosen, 2) if then > at]
    return median(slopes) if slopes else 0.0


@dataclass(slots=True)
class Trend:
    """Samples of one figure by seconds. It may grow by `limit` in all; None where it is only told."""

    what: str
    limit: float | None
    show: Callable[[float], str]
    samples: list[tuple[float, float]] = field(default_factory=list)

    def note(self, at: float, value: float) -> None:
        self.samples.append((at, value))

    def after(self, warm: float) -> Sequence[tuple[float, float]]:
        """The samples from this second on."""
        return [sample for sample in self.samples if sample[0] >= warm]

    def growth(self, warm: float) -> float:
        """By how much it grew from this second to the last sample, along its line."""
        samples = self.after(warm)
        return slope(samples) * (samples[-1][0] - samples[0][0]) if samples else 0.0

    def missed(self, warm: float) -> bool:
        """Whether it grew beyond its limit, or nobody knows because there are no two samples."""
        return self.limit is not None and (len(self.after(warm)) < 2 or self.growth(warm) >= self.limit)
