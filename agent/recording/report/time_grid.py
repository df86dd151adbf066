"""The stretch of time that a report is about, in so many equal parts: what a plot can show, and memory can hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

BRIDGE_SECONDS = 60.0
"""Seconds without a counter after which what it grew meanwhile belongs to nobody: another run, a paused driver."""
PARTS = 480
"""Parts of a grid: a plot has little more than one point for each two pixels of its width."""


@dataclass(frozen=True, slots=True)
class TimeGrid:
    """`count` parts of `width` seconds each, from the wall second `start` on."""

    start: float
    width: float
    count: int

    def part(self, wall: float) -> int:
        """The part in which a wall second is; the first or the last one for what is outside."""
        return min(max(int((wall - self.start) / self.width), 0), self.count - 1)

    def parts(self, walls: Sequence[float]) -> Iterator[tuple[int, int, int]]:
        """Snapshots one after the other that are in the same part: the part, the first and the one behind the last."""
        first, last = self.part(walls[0]), self.part(walls[-1])
        if first == last:
            yield first, 0, len(walls)
            return
        at = 0
        for part, some in groupby(map(self.part, walls)):
            behind = at + sum(1 for _ in some)
            yield part, at, behind
            at = behind


def grid_over(start: float, end: float, interval: float, parts: int = PARTS) -> TimeGrid:
    """A grid over these wall seconds, with parts no shorter than the interval of the snapshots, in seconds."""
    span = max(end - start, 0.0) + interval
    width = max(interval, span / parts)
    return TimeGrid(start, width, max(1, min(parts, ceil(span / width - 1e-9))))


class Stretch:
    """Some snapshots of a node one after the other, as figures take them in.

    `steps` are the seconds that each snapshot stands for: those since the one before, or the interval of the recording
    where that one is missing. `runs` are the parts of the grid: (part, first, behind the last, seconds).
    `is_smooth` says that a counter can be followed through all of them.
    """

    def __init__(
        self, grid: TimeGrid, walls: Sequence[float], monos: Sequence[float], interval: float, before: float | None
    ) -> None:
        """`before` is the monotonic second of the snapshot before, if there is one of the same boot."""
        self.grid, self.walls, self.monos = grid, walls, monos
        firsts = monos[0] - interval if before is None else before
        longest = 2.5 * interval
        gaps = [after - one for one, after in zip((firsts, *monos), monos)]  # noqa: B905 one more
        self.steps = [gap if 0 < gap <= longest else interval for gap in gaps]
        self.longest = max(gaps[1:], default=interval)
        self.shortest = min(gaps[1:], default=interval)
        self.seconds = sum(self.steps)
        self.is_smooth = self.shortest > 0 and self.longest <= BRIDGE_SECONDS
        self.runs = [(part, first, behind, sum(self.steps[first:behind])) for part, first, behind in grid.parts(walls)]
