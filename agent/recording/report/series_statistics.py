"""Statistics of a series in bounded memory, and the grid of equal parts of the report's time.

Every statistic knows over how many seconds it is; a snapshot that lacks the series adds nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, groupby, pairwise, repeat
from math import ceil, inf
from operator import sub, truediv
from typing import NamedTuple, Protocol

from msgspec import Struct

from agent.model import Unit
from agent.recording.recorded_block import Held, written_out

BRIDGE_SECONDS = 60.0
"""Seconds without a counter after which its growth belongs to no run: another run, a paused driver."""
PARTS = 480
"""Parts of a grid: a plot has little more than one point for each two pixels of its width."""


class TimeGrid(Struct, frozen=True):
    """`count` parts of `width` seconds each, from the wall second `start` on."""

    start: float
    width: float
    count: int

    def part(self, wall: float) -> int:
        """Return the part in which a wall second is; the first or the last one for what is outside."""
        return min(max(int((wall - self.start) / self.width), 0), self.count - 1)


def grid_over(start: float, end: float, interval: float, parts: int = PARTS) -> TimeGrid:
    """Return a grid over these wall seconds, with parts no shorter than the interval of the snapshots, in seconds."""
    span = max(end - start, 0.0) + interval
    width = max(interval, span / parts)
    return TimeGrid(start, width, max(1, min(parts, ceil(span / width - 1e-9))))


_PAUSE = 2.5
"""Steps without a snapshot after which nothing is known of the time between."""


class SnapshotRange:
    """Some snapshots of a node one after the other, as statistics take them in.

    `steps` are the seconds that each snapshot stands for. `runs` are those in the same part of the grid: (part, first,
    behind the last, seconds). `unbroken` are those without a pause: (first, behind the last).
    """

    def __init__(self, grid: TimeGrid, walls: Sequence[float], monos: Sequence[float], steps: Sequence[float]) -> None:
        self.grid, self.walls, self.monos, self.steps = grid, walls, monos, steps
        self.seconds = sum(steps)
        self.gaps = list(map(sub, monos[1:], monos))
        """Monotonic seconds between the snapshots: one less than there are."""
        self.has_odd_gaps = bool(self.gaps) and not 0 < min(self.gaps) <= max(self.gaps) <= BRIDGE_SECONDS
        parts = list(map(grid.part, walls))
        later = range(1, len(walls))
        changes = [place for place in later if parts[place] != parts[place - 1]]
        pauses = [place for place in later if walls[place] - walls[place - 1] > _PAUSE * steps[place]]
        self._narrowed: dict[tuple[int, ...], SnapshotRange] = {}
        self.unbroken = list(pairwise((0, *pauses, len(walls))))
        self.runs = [
            (parts[first], first, behind, sum(steps[first:behind]))
            for first, behind in pairwise((0, *changes, len(walls)))
        ]

    def only(self, ticks: Sequence[int]) -> SnapshotRange:
        """Return a range of these of its snapshots."""
        key = tuple(ticks)
        if key not in self._narrowed:  # many series have the same
            walls, monos, steps = ([column[tick] for tick in ticks] for column in (self.walls, self.monos, self.steps))
            self._narrowed[key] = SnapshotRange(self.grid, walls, monos, steps)
        return self._narrowed[key]


def range_after(
    grid: TimeGrid, walls: Sequence[float], monos: Sequence[float], interval: float, before: float | None
) -> SnapshotRange:
    """Return a range of snapshots: each stands for the seconds since the one before, or for `interval` after a pause.

    `before` is the monotonic second of the snapshot before the first, if there is one of the same boot.
    """
    earlier = (monos[0] - interval if before is None else before, *monos[:-1])
    gaps = map(sub, monos, earlier)
    return SnapshotRange(grid, walls, monos, [gap if 0 < gap <= _PAUSE * interval else interval for gap in gaps])


_BINS = 4096
"""Distinct values of a series that its quantiles distinguish; with more they become coarser."""
_SCALE = {Unit.RATIO: 1000.0, Unit.BYTES: 2.0**-24, Unit.HERTZ: 1e-6}
"""The resolution of quantiles: a thousandth, 16 MiB, a megahertz; else a tenth of the unit."""


class SeriesStatistic(Protocol):
    """What takes in the values of a series in the snapshots of a range."""

    def add(self, stretch: SnapshotRange, held: Held) -> None: ...


class GaugeSummary(NamedTuple):
    """A gauge over `seconds`: its mean over time, its extremes and its 5th, 50th and 95th percentile, in its unit."""

    mean: float
    low: float
    high: float
    p5: float
    p50: float
    p95: float
    seconds: float


class Envelope:
    """The lowest, mean and highest value in each part of a grid; a part without values has seconds 0."""

    def __init__(self, grid: TimeGrid) -> None:
        self.grid = grid
        self.lows = array("d", [inf]) * grid.count
        self.highs = array("d", [-inf]) * grid.count
        self.seconds = array("d", [0.0]) * grid.count
        self._totals = array("d", [0.0]) * grid.count

    def add(self, part: int, low: float, high: float, total: float, seconds: float) -> None:
        """Values of one part; `total` is their sum, each times the seconds that it stands for."""
        if low < self.lows[part]:
            self.lows[part] = low
        if high > self.highs[part]:
            self.highs[part] = high
        self._totals[part] += total
        self.seconds[part] += seconds

    def means(self) -> list[float | None]:
        return [total / seconds if seconds else None for total, seconds in zip(self._totals, self.seconds, strict=True)]

    @property
    def mean(self) -> float:
        """The mean of all; there must be values."""
        return sum(self._totals) / sum(self.seconds)


class GaugeStatistic:
    """A gauge: its envelope over time, and how often which value was seen."""

    def __init__(self, grid: TimeGrid, unit: Unit) -> None:
        self.envelope = Envelope(grid)
        self._scale = _SCALE.get(unit, 10.0)
        self._counts: Counter[int] = Counter()
        self.last = 0.0

    @property
    def seconds(self) -> float:
        """Seconds in which it was seen; while they are 0, it has no mean and no summary."""
        return sum(self.envelope.seconds)

    @property
    def mean(self) -> float:
        return self.envelope.mean

    def add(self, stretch: SnapshotRange, held: Held) -> None:
        if isinstance(held, float):
            for part, _, _, seconds in stretch.runs:
                self.envelope.add(part, held, held, held * seconds, seconds)
            self._counts[int(held * self._scale)] += len(stretch.walls)
            self.last = held
        else:
            for part, first, behind, seconds in stretch.runs:
                values = held[first:behind]
                self.envelope.add(part, min(values), max(values), sum(values) / (behind - first) * seconds, seconds)
            scale = self._scale
            self._counts.update([int(value * scale) for value in held])
            self.last = held[-1]
        if len(self._counts) > _BINS:
            coarser: Counter[int] = Counter()
            for number, times in self._counts.items():
                coarser[number // 2] += times
            self._counts, self._scale = coarser, self._scale / 2

    def quantile(self, share: float) -> float:
        """Return the value below which this share of the samples is; to the fineness of `_SCALE`."""
        numbers = sorted(self._counts)
        rank = share * self._counts.total()
        passed = accumulate(self._counts[number] for number in numbers)
        number = next((one for one, so_far in zip(numbers, passed, strict=True) if so_far >= rank), numbers[-1])
        return number / self._scale

    def share_from(self, value: float) -> float:
        """Return the share of the samples that are at least this value."""
        least = int(value * self._scale)
        return sum(times for number, times in self._counts.items() if number >= least) / self._counts.total()

    def summary(self) -> GaugeSummary:
        low, high = min(self.envelope.lows), max(self.envelope.highs)
        p5, p50, p95 = (min(max(self.quantile(share), low), high) for share in (0.05, 0.5, 0.95))
        return GaugeSummary(min(max(self.mean, low), high), low, high, p5, p50, p95, self.seconds)


class CounterStatistic:
    """A counter: its growth, over how many seconds, and on request the rate over time.

    A counter that falls starts again there: its growth in that step is unknown, and not counted.
    """

    def __init__(self, grid: TimeGrid | None, *, born_at_zero: bool = False) -> None:
        """With a grid the rate over time is kept. `born_at_zero`: a series that appears has grown from 0."""
        self.growth = 0.0
        self.seconds = 0.0
        self.envelope = Envelope(grid) if grid is not None else None
        self._last: tuple[float, float] | None = None
        self._born_at_zero = born_at_zero

    def add(self, stretch: SnapshotRange, held: Held) -> None:
        values = written_out(held, len(stretch.monos))
        if self._last is None:
            first = stretch.monos[0]
            self._last = (0.0, first - stretch.steps[0]) if self._born_at_zero else (values[0], first)
        before, since = self._last
        self._last = values[-1], stretch.monos[-1]
        is_odd = stretch.has_odd_gaps or not 0 < stretch.monos[0] - since <= BRIDGE_SECONDS
        if held == before and not is_odd and self.envelope is None:  # most counters stand still
            self.seconds += stretch.monos[-1] - since
            return
        seconds = [stretch.monos[0] - since, *stretch.gaps]
        if isinstance(held, float):
            grown = [held - before, *repeat(0.0, len(stretch.gaps))]
        else:
            grown = list(map(sub, values, (before, *values)))
        if is_odd or min(grown) < 0:
            steps = enumerate(zip(grown, seconds, strict=True))
            valid = [tick for tick, (more, gap) in steps if 0 < gap <= BRIDGE_SECONDS and more >= 0]
            if not valid:
                return
            stretch = stretch.only(valid)
            grown, seconds = [grown[tick] for tick in valid], [seconds[tick] for tick in valid]
        self.growth += sum(grown)
        self.seconds += sum(seconds)
        if self.envelope is not None:
            rates = list(map(truediv, grown, seconds))
            for part, first, behind, _ in stretch.runs:
                part_rates = rates[first:behind]
                self.envelope.add(
                    part, min(part_rates), max(part_rates), sum(grown[first:behind]), sum(seconds[first:behind])
                )

    @property
    def mean(self) -> float:
        """Growth per second; it must have been seen twice, so that its seconds are not 0."""
        return self.growth / self.seconds


_SPANS = 50


class StateStatistic(Struct, eq=False):
    """A state or a fact: the seconds in which it was there, and those of them in which it was not 0.

    `spans` are the wall seconds from which and until which it was not 0, as many as are kept; `flips` counts them all.
    """

    seconds: float = 0.0
    on: float = 0.0
    flips: int = 0
    spans: list[list[float]] = []
    _until: float | None = None

    @property
    def off(self) -> float:
        return self.seconds - self.on

    def add(self, stretch: SnapshotRange, held: Held) -> None:
        self.seconds += stretch.seconds
        for first, behind in stretch.unbroken:
            if isinstance(held, float):
                self._add_piece(stretch, first, behind, is_on=held != 0)
                continue
            for is_on, ticks in groupby(range(first, behind), lambda tick: held[tick] != 0):
                run = list(ticks)
                self._add_piece(stretch, run[0], run[-1] + 1, is_on=is_on)

    def _add_piece(self, stretch: SnapshotRange, first: int, behind: int, *, is_on: bool) -> None:
        """Take in snapshots without a pause between them, in all of which it was on, or was not."""
        if not is_on:
            self._until = None
            return
        steps = stretch.steps[first:behind]
        begin, until = stretch.walls[first], stretch.walls[behind - 1]
        self.on += sum(steps)
        if self._until is None or begin - self._until > _PAUSE * steps[0]:
            self.flips += 1
            if len(self.spans) < _SPANS:
                self.spans.append([begin - steps[0], until])
        elif self.flips == len(self.spans):
            self.spans[-1][1] = until
        self._until = until
