"""How fast counters grow: some neighbours show rates as gauges, which no single sample has."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agent.model import Layout, Snapshot

SPAN_SECONDS = 10.0
"""Seconds over which a rate is taken, once that much has been seen."""


class _PastFrame(NamedTuple):
    mono: float
    values: tuple[float, ...]


class Growth:
    """Remembers what counters were some seconds ago, by layout. `concerns` says whether a layout has such counters.

    `observe` is for the thread that publishes snapshots, `per_second` for any: what it reads is replaced, not changed.
    """

    def __init__(self, concerns: Callable[[Layout], bool]) -> None:
        self._concerns = concerns
        self._past: dict[Layout, tuple[_PastFrame, ...] | None] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of a snapshot's counters, by reference."""
        now, past = snapshot.at.mono, self._past
        new: dict[Layout, tuple[_PastFrame, ...] | None] = {}
        for layout, values in snapshot.frames:
            seen = past[layout] if layout in past else () if self._concerns(layout) else None
            if seen is not None and (not seen or seen[-1].values is not values):
                recent = seen[1:] if len(seen) > 1 and seen[1].mono <= now - SPAN_SECONDS else seen
                seen = (*recent, _PastFrame(now, values))
            new[layout] = seen
        self._past = new

    def per_second(self, layout: Layout, place: int) -> float | None:
        """How much the counter at a place of a layout grew in a second; None until it was seen twice."""
        seen = self._past.get(layout) or ()
        if len(seen) < 2:
            return None
        first, last = seen[0], seen[-1]
        return max(0.0, last.values[place] - first.values[place]) / (last.mono - first.mono)
