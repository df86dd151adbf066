"""How far the peers' clocks are from ours, and whether ours is the odd one.

A node whose clock is minutes off still draws power. Its reported seconds are shifted to ours by the lead of its
clock, in whole seconds, once that has been steady: a response that does not advance, such as a stale copy
from a proxy, falls behind by a second in each second and is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LIMIT_SECONDS = 2.0
"""Seconds by which a clock may differ before its seconds are shifted."""
STEADY_SECONDS = 0.5
"""Seconds by which two readings of one offset may differ: an answer may take up to 0.8 s, most take almost none."""


@dataclass(slots=True)
class PeerClock:
    """`offset`: seconds that the peer's clock is ahead of ours. `shift`: whole seconds to subtract from its seconds."""

    offset: float | None = None
    shift: int = 0

    def hear(self, offset: float) -> bool:
        """Record a reading of the offset; returns whether the peer's seconds can be converted to ours."""
        before, self.offset = self.offset, offset
        if abs(offset) <= LIMIT_SECONDS:
            self.shift = 0
            return True
        if self.shift and abs(offset - self.shift) <= 1:
            return True
        if before is None or abs(offset - before) > STEADY_SECONDS:
            return False
        self.shift = round(offset)
        return True


def own_lead(offsets: Sequence[float]) -> float | None:
    """Seconds that our clock is ahead of the others', by the median of theirs; None if there is no other.

    Of two in the middle, the one closer to our clock counts: of three clocks the two that agree are right.
    """
    if not offsets:
        return None
    ordered = sorted(offsets)
    middle = (ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2])
    return -min(middle, key=abs)
