"""Every reading passes here once: physical range, monotone counters, rolling statistics, busy time.

For each lane of each channel the work is laid out once, as a list of columns beside the list of its
series, and then done by walking both: this is the sampler's hot path.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from itertools import repeat
from operator import is_

from agent.catalogue import BY_NAME, ROLLING
from agent.catalogue.growth import growth_of
from agent.model import Entity, Gap, Kind, Lane, Metric, Reading, Reason, Series
from agent.sampler.counters import Counter
from agent.sampler.rolling import RollingWindow

UTILIZATION = BY_NAME["coldplate_gpu_utilization_ratio"]
BUSY = BY_NAME["coldplate_gpu_busy_seconds_total"]
GPU_POWER = BY_NAME["coldplate_gpu_power_watts"]
NODE_POWER = BY_NAME["coldplate_node_power_watts"]
NOTED = (GPU_POWER, NODE_POWER)
"""Gauges that other parts of the sampler compute with."""
ROOM = 5_000
"""Columns that are remembered before those of series that are gone are forgotten."""
LONGEST_STRIDE = 3.0
"""Periods of the lane that one reading may stand for: beyond, nobody knows what the GPU did meanwhile."""


# Makes a reading without a call of Python code: this is done for hundreds at each tick.
_MAKE = tuple.__new__
_READING = repeat(Reading)


class Integral:
    """Seconds of a ratio: the ratio times the time that each of its readings stands for."""

    __slots__ = ("_at", "series", "total")

    def __init__(self, series: Series) -> None:
        self.series = series
        self.total = 0.0
        self._at: float | None = None

    def add(self, at: float, ratio: float, longest: float) -> None:
        if self._at is not None and 0 < at - self._at <= longest:
            self.total += ratio * (at - self._at)
        self._at = at


class ConditionedSeries:
    """What is done with one series: made once, kept as long as the agent runs."""

    __slots__ = ("counter", "highest", "integral", "lowest", "noted", "rolled", "rolling", "series", "window")

    def __init__(self, series: Series, window: float, sampled_fast: bool) -> None:
        metric = series.metric
        self.series = series
        self.lowest, self.highest = metric.span
        self.counter = Counter(growth_of(metric)) if metric.kind is Kind.COUNTER else None
        self.noted = metric in NOTED
        self.rolling: tuple[Series, ...] = ()
        self.rolled: tuple[Reading, ...] = ()
        self.window: RollingWindow | None = None
        if metric.rolling and sampled_fast:
            self.set_window(window)
        self.integral = Integral(Series(BUSY, series.entity, series.labels)) if metric is UTILIZATION else None

    def set_window(self, window: float) -> None:
        self.window = RollingWindow(window)
        self.rolling = tuple(
            Series(row, self.series.entity, self.series.labels) for row in ROLLING[self.series.metric.name]
        )

    def roll(self, at: float, value: float) -> None:
        assert self.window is not None
        if self.window.add(at, value):
            statistics = (self.window.min, self.window.mean, self.window.max)
            self.rolled = tuple(map(_MAKE, _READING, zip(self.rolling, statistics, strict=True)))


class Conditioner:
    """Keeps the columns of all series; `rejected` counts readings left out, by cause."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._columns: dict[Series, ConditionedSeries] = {}
        self._layouts: dict[object, tuple[list[Series], list[ConditionedSeries]]] = {}
        self._room = ROOM
        self.rejected: Tally[str] = Tally()
        self.noted: dict[Metric, dict[Entity, tuple[float, float]]] = {metric: {} for metric in NOTED}
        """For the noted gauges, when each entity's last good value was read, and the value."""

    def set_window(self, window: float) -> None:
        """Use another span for the rolling statistics, which begin anew."""
        if window != self._window:
            self._window = window
            for column in self._columns.values():
                if column.window is not None:
                    column.set_window(window)

    def pass_on(
        self, key: object, at: float, readings: Sequence[Reading], lane: Lane, period: float
    ) -> tuple[list[Reading], list[Gap]]:
        """The readings to show for those read at `at`, and a gap for each that was left out.

        `key` names the channel and lane, whose series are mostly the same from sample to sample. Rolling
        statistics are made of what comes in the fast lane: four values a minute have none worth showing.
        """
        columns = self._columns_of(key, readings, lane)
        shown: list[Reading] = []
        gaps: list[Gap] = []
        for column, reading in zip(columns, readings, strict=True):
            series, value = reading
            if not column.lowest <= value <= column.highest:  # NaN is never within
                gaps.append(self._reject(series, "range", f"{value!r} is outside {series.metric.span}"))
                continue
            counter = column.counter
            if counter is not None:
                if value == counter.still:  # most counters stand still most of the time
                    counter.at = at
                    shown.append(reading)
                    continue
                rebased = counter.feed(at, value)
                if rebased is None:
                    gaps.append(self._reject(series, "step", f"{value!r} does not follow {counter.shown!r}"))
                    continue
                shown.append(reading if rebased is value else Reading(series, rebased))
                continue
            shown.append(reading)
            if column.noted:
                self.noted[series.metric][series.entity] = (at, value)
            if column.window is not None:
                column.roll(at, value)
                shown.extend(column.rolled)
            if column.integral is not None:
                column.integral.add(at, value, LONGEST_STRIDE * period)
                shown.append(Reading(column.integral.series, column.integral.total))
        return shown, gaps

    def _columns_of(self, key: object, readings: Sequence[Reading], lane: Lane) -> list[ConditionedSeries]:
        series = [reading[0] for reading in readings]
        known = self._layouts.get(key)
        if known is not None and len(known[0]) == len(series) and all(map(is_, known[0], series)):
            return known[1]
        columns = [self._column(each, lane) for each in series]
        self._layouts[key] = (series, columns)
        return columns

    def _column(self, series: Series, lane: Lane) -> ConditionedSeries:
        column = self._columns.get(series)
        if column is None:  # equal series of a source that was opened anew go on where they were
            column = self._columns[series] = ConditionedSeries(series, self._window, lane is Lane.FAST)
            if len(self._columns) > self._room:
                self._forget()
        return column

    def _forget(self) -> None:
        """Drop the columns of series that no source shows any more: jobs come and go for as long as the agent runs."""
        shown = {each for series, _ in self._layouts.values() for each in series}
        self._columns = {series: column for series, column in self._columns.items() if series in shown}
        self._room = max(ROOM, 2 * len(self._columns))

    def _reject(self, series: Series, cause: str, detail: str) -> Gap:
        self.rejected[cause] += 1
        return Gap(series.metric, series.entity, Reason.IMPLAUSIBLE, detail)
