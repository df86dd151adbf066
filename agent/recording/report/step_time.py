"""The step time of a training job, where it shows in what its GPUs do: the autocorrelation of a few windows.

Steps shorter than some samples come out as two, three or five times themselves, with peaks as high as those of
right ones: in simulation, 3.8 s sampled once a second gave 19.0 s with an autocorrelation of 0.97. So no step
shorter than ten samples is told, and none where a shift by one sample already breaks the likeness. What is left are
beats of steps that last a little more than a sample: 1.1 s still comes out as 11 s.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import mul, sub
from statistics import median
from typing import NamedTuple

from agent.recording.column_reader import Held
from agent.recording.report.time_grid import Stretch

WINDOW = 600
"""Samples of a window."""
WINDOWS = 6
"""Windows that are kept, spread evenly over the recording."""
SHORTEST = 10
"""Samples of the shortest step that is told."""
LEAST_PERIODS = 5
"""Periods that a window must hold for its step to be told."""
CLEAR = 0.5
"""Autocorrelation from which on a peak is clear."""
NEARLY = 0.75
"""Share of the highest peak's height from which on the first such peak is the period, and others are its multiples."""
FAINT = 0.3
"""Share of the peak's height that its neighbours must have."""
AGREEMENT = 0.05
"""Share by which the windows' steps may differ from their median."""


class StepTime(NamedTuple):
    """A step in seconds, the autocorrelation there (at most 1), and the windows of which so many agree on it."""

    seconds: float
    clarity: float
    agreeing: int
    windows: int


class StepSignal:
    """A few windows of a series, sample by sample, evenly spread over the recording. A gap ends a window early."""

    def __init__(self, snapshots: int, *, counts: bool) -> None:
        """`snapshots` are those of the recording; of a series that `counts`, its growth is looked at."""
        self._counts = counts
        self._stride = max(snapshots // WINDOWS, WINDOW)
        self._seen = 0
        self._before: float | None = None
        self._open: array[float] | None = None
        self.windows: list[tuple[float, array[float]]] = []
        """Seconds between two samples, and the samples."""

    def take(self, stretch: Stretch, ticks: Sequence[int] | None, held: Held) -> None:
        """As `Figure`."""
        count = len(stretch.walls)
        even = ticks is None and stretch.longest < 1.5 * stretch.shortest
        start, self._seen = self._seen % self._stride, self._seen + count
        values = [held] * count if isinstance(held, float) else held
        if not even:
            self._open, self._before = None, None
            return
        if start < WINDOW:
            samples = list(map(sub, values, (self._before or 0.0, *values))) if self._counts else values
            if self._counts and self._before is None:
                samples = samples[1:]
            self._enter(stretch.seconds / count, samples, start)
        else:
            self._open = None
        self._before = values[-1]

    def _enter(self, interval: float, samples: Sequence[float], start: int) -> None:
        if self._open is None or start == 0:
            if len(self.windows) >= WINDOWS:
                return
            self._open = array("d")
            self.windows.append((interval, self._open))
        self._open.extend(samples[: WINDOW - len(self._open)])


def period_of(samples: Sequence[float]) -> tuple[float, float] | None:
    """The period of a signal in samples, and its autocorrelation there; None if none is clear."""
    count = len(samples)
    longest = count // LEAST_PERIODS
    if longest <= SHORTEST:
        return None
    mean = sum(samples) / count
    centred = [value - mean for value in samples]
    whole = sum(map(mul, centred, centred))
    if whole <= 1e-12 * count * max(mean * mean, 1e-300):
        return None
    heights = [
        sum(map(mul, centred, centred[lag:])) / whole * count / (count - lag)  # the overlap gets shorter
        for lag in range(longest + 2)
    ]
    peaks = [lag for lag in range(2, longest + 1) if heights[lag - 1] < heights[lag] >= heights[lag + 1]]
    highest = max((heights[lag] for lag in peaks), default=0.0)
    if highest < CLEAR:
        return None
    first = next(lag for lag in peaks if heights[lag] >= NEARLY * highest)
    before, here, after = heights[first - 1 : first + 2]
    if first < SHORTEST or min(before, after) < FAINT * here:
        return None
    if min(heights[:first]) > 0.5 * here:
        return None
    bend = before - 2 * here + after
    return first + (0.5 * (before - after) / bend if bend else 0.0), min(here, 1.0)


def step_time(signal: StepSignal) -> StepTime | None:
    """The step that most windows of a signal agree on; None if there is none."""
    found = [
        (period[0] * interval, period[1])
        for interval, samples in signal.windows
        if len(samples) >= SHORTEST * LEAST_PERIODS and (period := period_of(samples)) is not None
    ]
    windows = sum(1 for _, samples in signal.windows if len(samples) >= SHORTEST * LEAST_PERIODS)
    if not found:
        return None
    middle = median(seconds for seconds, _ in found)
    near = [each for each in found if abs(each[0] - middle) <= AGREEMENT * middle]
    if 2 * len(near) <= windows:
        return None
    return StepTime(median(each[0] for each in near), median(each[1] for each in near), len(near), windows)
