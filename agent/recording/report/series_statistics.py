"""Statistics of a series in bounded memory, and the grid of equal parts of the report's time.

Every statistic knows over how many seconds it is; a snapshot that lacks the series adds nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from math import ceil, inf
from operator import sub, truediv
from typing import NamedTuple, Protocol

from msgspec import Struct

from agent.model import Unit
from agent.recording.column_reader import Held, written_out

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
    """Return a grid over these wall seconds, with parts no shorter than the interval of the snapshots, in seconds."""
    span = max(end - start, 0.0) + interval
    width = max(interval, span / parts)
    return TimeGrid(start, width, max(1, min(parts, ceil(span / width - 1e-9))))


class SnapshotRange:
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


_BINS = 4096
"""Distinct values of a series that its quantiles distinguish; with more they become coarser."""
_SCALE = {Unit.RATIO: 1000.0, Unit.BYTES: 2.0**-24, Unit.HERTZ: 1e-6}
"""The resolution of quantiles: a thousandth, 16 MiB, a megahertz; else a tenth of the unit."""


class SeriesStatistic(Protocol):
    """What takes in the values of a series. `ticks` are the snapshots of the stretch that have it, None for all."""

    def add(self, stretch: SnapshotRange, ticks: Sequence[int] | None, held: Held) -> None: ...


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
        self.lows[part] = min(self.lows[part], low)
        self.highs[part] = max(self.highs[part], high)
        self._totals[part] += total
        self.seconds[part] += seconds

    def means(self) -> list[float | None]:
        return [total / seconds if seconds else None for total, seconds in zip(self._totals, self.seconds, strict=True)]

    @property
    def mean(self) -> float | None:
        """The mean of all; None without values."""
        seconds = sum(self.seconds)
        return sum(self._totals) / seconds if seconds else None

    @property
    def low(self) -> float | None:
        """The lowest of all; None without values."""
        return min(self.lows) if sum(self.seconds) else None

    @property
    def high(self) -> float | None:
        """The highest of all; None without values."""
        return max(self.highs) if sum(self.seconds) else None


class GaugeStatistic:
    """A gauge: its envelope over time, and how often which value was seen."""

    def __init__(self, grid: TimeGrid, unit: Unit) -> None:
        self.envelope = Envelope(grid)
        self._scale = _SCALE.get(unit, 10.0)
        self._seen: Counter[int] = Counter()
        self.last: float | None = None

    def add(self, stretch: SnapshotRange, ticks: Sequence[int] | None, held: Held) -> None:
        if ticks is not None:
            values = written_out(held, len(ticks))
            for tick, value in zip(ticks, values, strict=True):
                seconds = stretch.steps[tick]
                self.envelope.add(stretch.grid.part(stretch.walls[tick]), value, value, value * seconds, seconds)
                self.last = value
            self._count(values)
        elif isinstance(held, float):
            for part, _, _, seconds in stretch.runs:
                self.envelope.add(part, held, held, held * seconds, seconds)
            self._seen[int(held * self._scale)] += len(stretch.walls)
            self.last = held
        else:
            for part, first, behind, seconds in stretch.runs:
                some = held[first:behind]
                total = sum(some) / (behind - first) * seconds
                self.envelope.add(part, min(some), max(some), total, seconds)
            self._count(held)
            self.last = held[-1]

    def _count(self, values: Iterable[float]) -> None:
        scale = self._scale
        self._seen.update([int(value * scale) for value in values])
        if len(self._seen) > _BINS:
            coarser: Counter[int] = Counter()
            for number, times in self._seen.items():
                coarser[number // 2] += times
            self._seen, self._scale = coarser, scale / 2

    def quantile(self, share: float) -> float:
        """Return the value below which this share of the samples is; to the fineness of `_SCALE`."""
        numbers = sorted(self._seen)
        rank = share * self._seen.total()
        passed = accumulate(self._seen[number] for number in numbers)
        number = next((one for one, so_far in zip(numbers, passed, strict=True) if so_far >= rank), numbers[-1])
        return number / self._scale

    def share_from(self, value: float) -> float:
        """Return the share of the samples that are at least this value."""
        least = int(value * self._scale)
        return sum(times for number, times in self._seen.items() if number >= least) / self._seen.total()

    def summary(self) -> GaugeSummary | None:
        """Return its summary; None if it has no sample."""
        mean, low, high = self.envelope.mean, self.envelope.low, self.envelope.high
        if mean is None or low is None or high is None:
            return None
        p5, p50, p95 = (min(max(self.quantile(share), low), high) for share in (0.05, 0.5, 0.95))
        return GaugeSummary(min(max(mean, low), high), low, high, p5, p50, p95, sum(self.envelope.seconds))


class CounterStatistic:
    """A counter: its growth, over how many seconds, and on request the rate over time.

    A counter that falls starts again there: its growth in that step is unknown, and not counted.
    `first_at` is the wall second at which it first grew.
    """

    def __init__(self, grid: TimeGrid | None, *, born_at_zero: bool = False) -> None:
        """With a grid the rate over time is kept. `born_at_zero`: a series that appears has grown from 0."""
        self.growth = 0.0
        self.seconds = 0.0
        self.first_at: float | None = None
        self.envelope = Envelope(grid) if grid is not None else None
        self._last: tuple[float, float] | None = None
        self._born_at_zero = born_at_zero

    def add(self, stretch: SnapshotRange, ticks: Sequence[int] | None, held: Held) -> None:
        if ticks is None and self._last is not None and stretch.is_smooth and self._smooth(stretch, held):
            return
        places = range(len(stretch.walls)) if ticks is None else ticks
        values = written_out(held, len(places))
        if self._born_at_zero:
            self._last, self._born_at_zero = (0.0, stretch.monos[places[0]] - stretch.steps[places[0]]), False
        for tick, value in zip(places, values, strict=True):
            self._step(stretch, tick, value)

    def _smooth(self, stretch: SnapshotRange, held: Held) -> bool:
        """Take in all at once where nothing is odd; whether that was so."""
        assert self._last is not None
        value, mono = self._last
        first, until = stretch.monos[0] - mono, stretch.monos[-1]
        if not 0 < first <= BRIDGE_SECONDS:
            return False
        if held == value:
            if self.envelope is not None:
                for part, _, _, seconds in stretch.runs:
                    self.envelope.add(part, 0.0, 0.0, 0.0, seconds)
        else:
            values = written_out(held, len(stretch.walls))
            grown = list(map(sub, values, (value, *values)))
            if min(grown) < 0:
                return False
            if self.first_at is None:
                walls = zip(stretch.walls, grown, strict=True)
                self.first_at = next((wall for wall, more in walls if more > 0), None)
            self._rates(stretch, grown, first)
            self.growth += values[-1] - value
            self._last = (values[-1], until)
        self.seconds += until - mono
        self._last = (self._last[0], until)
        return True

    def _rates(self, stretch: SnapshotRange, grown: Sequence[float], first: float) -> None:
        if self.envelope is None:
            return
        seconds = [first, *map(sub, stretch.monos[1:], stretch.monos)]
        rates = list(map(truediv, grown, seconds))
        for part, start, behind, _ in stretch.runs:
            some = rates[start:behind]
            self.envelope.add(part, min(some), max(some), sum(grown[start:behind]), sum(seconds[start:behind]))

    def _step(self, stretch: SnapshotRange, tick: int, value: float) -> None:
        mono, wall = stretch.monos[tick], stretch.walls[tick]
        if self._last is not None:
            before, since = self._last
            seconds, grown = mono - since, value - before
            if 0 < seconds <= BRIDGE_SECONDS and grown >= 0:
                self.growth += grown
                self.seconds += seconds
                if self.envelope is not None:
                    self.envelope.add(stretch.grid.part(wall), grown / seconds, grown / seconds, grown, seconds)
                if grown > 0 and self.first_at is None:
                    self.first_at = wall
        self._last = (value, mono)

    @property
    def rate(self) -> float | None:
        """Growth per second; None if it was not seen twice."""
        return self.growth / self.seconds if self.seconds else None

    @property
    def peak(self) -> float | None:
        """The highest rate between two snapshots; None if it was not seen twice, or the rate is not kept."""
        return self.envelope.high if self.envelope is not None else None


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

    def add(self, stretch: SnapshotRange, ticks: Sequence[int] | None, held: Held) -> None:
        if ticks is None and isinstance(held, float) and (not held or self._goes_on(stretch)):
            self.seconds += stretch.seconds
            self._until = None
            if held:
                self.on += stretch.seconds
                self._until = stretch.walls[-1]
                if self.flips == len(self.spans):
                    self.spans[-1][1] = self._until
            return
        places = range(len(stretch.walls)) if ticks is None else ticks
        values = written_out(held, len(places))
        for tick, value in zip(places, values, strict=True):
            self._step(stretch.walls[tick], stretch.steps[tick], value)

    def _goes_on(self, stretch: SnapshotRange) -> bool:
        """Return whether what was on until the snapshot before is on in all of these without a break."""
        steps = stretch.steps
        return (
            self._until is not None
            and stretch.walls[0] - self._until <= 2.5 * steps[0]
            and stretch.longest <= 2.5 * min(steps)
        )

    def _step(self, wall: float, seconds: float, value: float) -> None:
        self.seconds += seconds
        if not value:
            self._until = None
            return
        self.on += seconds
        if self._until is None or wall - self._until > 2.5 * seconds:
            self.flips += 1
            if len(self.spans) < _SPANS:
                self.spans.append([wall - seconds, wall])
        elif self.flips == len(self.spans):
            self.spans[-1][1] = wall
        self._until = wall
