"""How much counters have grown within the last minutes, by series: what some exporters show in place of a counter."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from agent.lib.layout_columns import RoundMemo
from agent.model import Layout, Series, Snapshot

WINDOW_SECONDS = 300.0


class RecentGrowth:
    """Remembers when counters of some rows grew. A counter that appears later than the first snapshot began at 0.

    `observe` is for the thread that publishes snapshots, `of` for any: what it reads is replaced, not changed.
    """

    def __init__(self, rows: Collection[str]) -> None:
        self._rows = rows
        self._places = RoundMemo[Layout, tuple[int, ...]](self._find)
        self._counts: dict[Series, float] | None = None
        self._steps: deque[tuple[float, Series, float]] = deque()
        """When a counter grew, in monotonic seconds, and how much."""
        self._grown: dict[Series, float] = {}

    def observe(self, snapshot: Snapshot) -> None:
        """Take note of what has grown, and forget what is too old."""
        places = self._places.of([frame.layout for frame in snapshot.frames])
        counts = {
            frame.layout.series[place]: frame.values[place]
            for frame, found in zip(snapshot.frames, places, strict=True)
            for place in found
        }
        before, self._counts = self._counts, counts
        steps = self._steps
        number = len(steps)
        if before is not None and counts != before:
            for series, count in counts.items():
                if count > before.get(series, 0.0):
                    steps.append((snapshot.at.mono, series, count - before.get(series, 0.0)))
        changed = len(steps) > number
        while steps and steps[0][0] < snapshot.at.mono - WINDOW_SECONDS:
            steps.popleft()
            changed = True
        if changed:
            grown: dict[Series, float] = {}
            for _, series, step in steps:
                grown[series] = grown.get(series, 0.0) + step
            self._grown = grown

    def of(self, series: Series) -> float:
        """Return by how much a counter has grown."""
        return self._grown.get(series, 0.0)

    def _find(self, layout: Layout) -> tuple[int, ...]:
        return tuple(place for place, each in enumerate(layout.series) if each.metric.name in self._rows)
