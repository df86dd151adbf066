"""Every reading passes here once: physical range, monotone counters, rates for rolling statistics, busy time.

The work is planned once for each layout, and then done with whole columns: this is the sampler's hot path. A frame in
which every value is plausible, as in nearly all, is never processed value by value.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from operator import le

from agent.catalogue import BY_NAME
from agent.catalogue.bindings import growth_of
from agent.lib.layout_columns import picker
from agent.model import Entity, Frame, Framer, Gap, Kind, Lane, Layout, Metric, Reading, Reason, Series
from agent.sampler.counters import Counter, Counters
from agent.sampler.rolling import ROOM, RollingStatistics

UTILIZATION = BY_NAME["coldplate_gpu_utilization_ratio"]
BUSY = BY_NAME["coldplate_gpu_busy_seconds_total"]
GPU_POWER = BY_NAME["coldplate_gpu_power_watts"]
NODE_POWER = BY_NAME["coldplate_node_power_watts"]
NOTED = (GPU_POWER, NODE_POWER)
"""Gauges that other parts of the sampler compute with."""
LONGEST_STRIDE = 3.0
"""Periods of the lane that one reading may stand for: beyond that it is not known what the GPU did."""

Values = Sequence[float | None]
"""The values of a frame, or of some of its columns; None stands for a value that was left out."""

_Noted = dict[Metric, dict[Entity, tuple[float, float]]]


class Integral:
    """Seconds of a ratio: each reading times the time that it stands for, summed."""

    __slots__ = ("_at", "total")

    def __init__(self) -> None:
        self.total = 0.0
        self._at: float | None = None

    def add(self, at: float, ratio: float, longest: float) -> None:
        if self._at is not None and 0 < at - self._at <= longest:
            self.total += ratio * (at - self._at)
        self._at = at


class _Memory:
    """What is remembered of the series of one lane of one channel, across layouts."""

    def __init__(self) -> None:
        self.counters: dict[Series, Counter] = {}
        self.integrals: dict[Series, Integral] = {}

    def forget(self, shown: Sequence[Series]) -> None:
        """If there is too much, drop what is not shown now: jobs come and go as long as the agent runs."""
        if len(self.counters) > max(ROOM, 2 * len(shown)):
            kept = set(shown)
            self.counters = {series: counter for series, counter in self.counters.items() if series in kept}
            self.integrals = {series: each for series, each in self.integrals.items() if series in kept}


class _Plan:
    """What is done with the frames of one layout. A lane that is read seldom has no `statistics`."""

    def __init__(self, layout: Layout, memory: _Memory, statistics: RollingStatistics | None) -> None:
        series = layout.series
        memory.forget(series)
        self.layout = layout
        self.lowest = tuple(each.metric.span[0] for each in series)
        self.highest = tuple(each.metric.span[1] for each in series)
        self.noted = [(place, each) for place, each in enumerate(series) if each.metric in NOTED]
        self.counted = [place for place, each in enumerate(series) if each.metric.kind is Kind.COUNTER]
        self.pick_counted = picker(self.counted)
        self.integrals = [
            (place, memory.integrals.setdefault(each, Integral()))
            for place, each in enumerate(series)
            if each.metric is UTILIZATION
        ]
        rated: list[int] = []
        self.edition, self.columns, self.pick_rolled = object(), None, picker(())
        if statistics is not None:
            rolled = [place for place, each in enumerate(series) if each.metric.rolling]
            rated = [number for number, place in enumerate(self.counted) if series[place].metric.peak]
            self.pick_rolled = picker(rolled)
            if rolled or rated:
                self.edition = statistics.edition
                self.columns = statistics.columns_of(
                    [series[place] for place in rolled], [series[self.counted[number]] for number in rated]
                )
        of_lane = [series[place] for place in self.counted]
        counters = [memory.counters.setdefault(each, Counter(growth_of(each.metric))) for each in of_lane]
        self.counters = Counters(counters, rated)
        self._lay_out_shown()

    def _lay_out_shown(self) -> None:
        """Plan what is shown: after each series its busy time, picked from values and computed ones."""
        series = self.layout.series
        integrals = {place: number for number, (place, _) in enumerate(self.integrals)}
        shown: list[tuple[Series, int]] = []
        for place, each in enumerate(series):
            shown.append((each, place))
            if place in integrals:
                shown.append((Series(BUSY, each.entity, each.labels), len(series) + integrals[place]))
        self.shown = Layout(tuple(each for each, _ in shown)) if integrals else self.layout
        self.pick_shown = picker([place for _, place in shown])


class _Lane:
    """One lane of one channel. `rejected` counts readings left out, by cause."""

    def __init__(self, key: object, statistics: RollingStatistics | None, rejected: Tally[str], noted: _Noted) -> None:
        self.memory = _Memory()
        self._key = key
        self._statistics = statistics
        self._plan = _Plan(Layout(()), self.memory, statistics)
        self._framer = Framer()
        self._rejected = rejected
        self._noted = noted

    def pass_on(self, at: float, frame: Frame, longest: float) -> tuple[Frame, list[Gap]]:
        """As `Conditioner.pass_on`; `longest` is the most seconds that one reading may stand for."""
        if frame.layout is not self._plan.layout:
            self._replan(frame.layout)
        plan, gaps = self._plan, list[Gap]()
        values = self._within_range(frame.values, gaps)
        if plan.counted:
            values = self._grown(at, values, gaps)
        for place, series in plan.noted:
            value = values[place]
            if value is not None:
                self._noted[series.metric][series.entity] = (at, value)
        if self._statistics is not None and plan.columns is not None:
            rates = plan.counters.rates
            if plan.edition is not self._statistics.edition:  # other settings
                self._replan(frame.layout)
                plan = self._plan
            assert plan.columns is not None
            self._statistics.enter(self._key, plan.columns, (*plan.pick_rolled(values), *rates))
        shown = plan.pick_shown((*values, *self._busy(at, values, longest))) if plan.integrals else values
        return self._frame(shown, gaps), gaps

    def _replan(self, layout: Layout) -> None:
        self._plan.counters.let_go()
        self._plan = _Plan(layout, self.memory, self._statistics)

    def _within_range(self, values: tuple[float, ...], gaps: list[Gap]) -> Values:
        plan = self._plan
        if all(map(le, plan.lowest, values)) and all(map(le, values, plan.highest)):  # NaN is never within
            return values
        kept: list[float | None] = list(values)
        for place, (series, value) in enumerate(zip(plan.layout.series, values, strict=True)):
            lowest, highest = series.metric.span
            if not lowest <= value <= highest:
                gaps.append(self._reject(series, "range", f"{value!r} is outside {series.metric.span}"))
                kept[place] = None
        return kept

    def _grown(self, at: float, values: Values, gaps: list[Gap]) -> Values:
        """Return the values, with those of counters as they should be shown."""
        plan = self._plan
        raws = plan.pick_counted(values)
        shown = plan.counters.feed(at, raws)
        if shown is raws:
            return values
        kept = list(values)
        for place, raw, value in zip(plan.counted, raws, shown, strict=True):
            if value is None and raw is not None:
                series = plan.layout.series[place]
                last = self.memory.counters[series].shown
                gaps.append(self._reject(series, "step", f"{raw!r} does not follow {last!r}"))
            kept[place] = value
        return kept

    def _busy(self, at: float, values: Values, longest: float) -> Values:
        """Return the busy seconds of each utilization; None where it was left out."""
        totals: list[float | None] = []
        for place, integral in self._plan.integrals:
            ratio = values[place]
            if ratio is not None:
                integral.add(at, ratio, longest)
            totals.append(None if ratio is None else integral.total)
        return totals

    def _frame(self, shown: Values, gaps: list[Gap]) -> Frame:
        if not gaps:
            return Frame(self._plan.shown, shown)  # type: ignore[arg-type]  # nothing was left out
        pairs = zip(self._plan.shown.series, shown, strict=True)
        return self._framer.frame(Reading(series, value) for series, value in pairs if value is not None)

    def _reject(self, series: Series, cause: str, detail: str) -> Gap:
        self._rejected[cause] += 1
        return Gap(series.metric, series.entity, Reason.IMPLAUSIBLE, detail)


class Conditioner:
    """Conditions the frames of one source; `rejected` counts readings left out, by cause."""

    def __init__(self, statistics: RollingStatistics) -> None:
        self._statistics = statistics
        self._lanes: dict[object, _Lane] = {}
        self.rejected: Tally[str] = Tally()
        self.noted: _Noted = {metric: {} for metric in NOTED}
        """For the noted gauges, each entity's last good value, and when it was read."""

    def pass_on(self, key: object, at: float, frame: Frame, lane: Lane, period: float) -> tuple[Frame, list[Gap]]:
        """Return the readings to show for those read at `at`, and a gap for each that was left out.

        `key` names the channel and lane. Only the fast lane has rolling statistics: those of four values a minute are
        not worth showing.
        """
        known = self._lanes.get(key)
        if known is None:
            statistics = self._statistics if lane is Lane.FAST else None
            known = self._lanes[key] = _Lane(key, statistics, self.rejected, self.noted)
        return known.pass_on(at, frame, LONGEST_STRIDE * period)
