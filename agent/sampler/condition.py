"""Every reading passes here once: physical range, monotone counters, rates for rolling statistics, busy time.

The work is planned once for each layout, and then done with whole columns: this is the sampler's hot path. A frame in
which every value is plausible, as in nearly all, is never processed value by value.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Sequence
from operator import le

from agent.catalogue import BY_NAME
from agent.catalogue.bindings import growth_of
from agent.lib.layout_columns import picker
from agent.model import Entity, Frame, Framer, Gap, Kind, Lane, Layout, Metric, Reading, Reason, Series
from agent.sampler.counters import Counter, Counters
from agent.sampler.rolling import ROOM, RolledColumns, RollingStatistics

UTILIZATION = BY_NAME["coldplate_gpu_utilization_ratio"]
BUSY = BY_NAME["coldplate_gpu_busy_seconds_total"]
GPU_POWER = BY_NAME["coldplate_gpu_power_watts"]
NODE_POWER = BY_NAME["coldplate_node_power_watts"]
LONGEST_STRIDE = 3.0
"""Periods of the lane that one reading may stand for: beyond that it is not known what the GPU did."""

Values = Sequence[float | None]
"""The values of a frame, or of some of its columns; None stands for a value that was left out."""

Key = tuple[str, str, Lane]
"""Backend, channel (empty for a backend without channels), lane."""


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


class _Plan:
    """What is done with the frames of one layout. A lane that is read seldom is not `rolling`."""

    def __init__(
        self, layout: Layout, counters: dict[Series, Counter], integrals: dict[Series, Integral], rolling: bool
    ) -> None:
        """`counters` and `integrals` are those of the lane, to which new ones are added."""
        series = layout.series
        self.layout = layout
        self.lowest = tuple(s.metric.span[0] for s in series)
        self.highest = tuple(s.metric.span[1] for s in series)
        self.noted = [(place, s) for place, s in enumerate(series) if s.metric in (GPU_POWER, NODE_POWER)]
        self.counted = [place for place, s in enumerate(series) if s.metric.kind is Kind.COUNTER]
        self.pick_counted = picker(self.counted)
        self.integrals = [
            (place, integrals.setdefault(s, Integral())) for place, s in enumerate(series) if s.metric is UTILIZATION
        ]
        of_lane = [series[place] for place in self.counted]
        rolled = [place for place, s in enumerate(series) if rolling and s.metric.rolling]
        rated = [number for number, s in enumerate(of_lane) if rolling and s.metric.peak]
        self.pick_rolled = picker(rolled)
        self.columns = None
        if rolled or rated:
            self.columns = RolledColumns([series[place] for place in rolled], [of_lane[number] for number in rated])
        self.counters = Counters([counters.setdefault(s, Counter(growth_of(s.metric))) for s in of_lane], rated)
        busy = [Series(BUSY, series[place].entity, series[place].labels) for place, _ in self.integrals]
        self.shown = Layout((*series, *busy)) if busy else layout


class _Lane:
    """One lane of one channel: what is remembered of its series across layouts, and the plan for the present one."""

    def __init__(self, key: Key, conditioner: Conditioner) -> None:
        self._key = key
        self._conditioner = conditioner
        self._counters: dict[Series, Counter] = {}
        self._integrals: dict[Series, Integral] = {}
        self._plan = _Plan(Layout(()), self._counters, self._integrals, False)
        self._framer = Framer()

    def pass_on(self, at: float, frame: Frame, longest: float) -> tuple[Frame, list[Gap]]:
        """Pass on as `Conditioner.pass_on`; `longest` is the most seconds that one reading may stand for."""
        if frame.layout is not self._plan.layout:
            self._replan(frame.layout)
        plan, gaps = self._plan, list[Gap]()
        values = self._within_range(frame.values, gaps)
        if plan.counted:
            values = self._grown(at, values, gaps)
        for place, series in plan.noted:
            value = values[place]
            if value is not None:
                self._conditioner.noted[self._key[0], series.metric][series.entity] = (at, value)
        if plan.columns is not None:
            rolled = (*plan.pick_rolled(values), *plan.counters.rates)
            self._conditioner.statistics.add_sample(self._key, plan.columns, rolled)
        exposed = (*values, *self._busy(at, values, longest)) if plan.integrals else values
        return self._frame(exposed, gaps), gaps

    def _replan(self, layout: Layout) -> None:
        """Plan for another layout. If too much is remembered, forget what it lacks: jobs come and go for years."""
        self._plan.counters.let_go()
        if len(self._counters) > max(ROOM, 2 * len(layout)):
            kept = set(layout.series)
            self._counters = {series: counter for series, counter in self._counters.items() if series in kept}
            self._integrals = {series: integral for series, integral in self._integrals.items() if series in kept}
        self._plan = _Plan(layout, self._counters, self._integrals, self._key[2] is Lane.FAST)
        if self._plan.columns is None:
            self._conditioner.statistics.remove(self._key)

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
        exposed = plan.counters.feed(at, raws)
        if exposed is raws:
            return values
        kept = list(values)
        for place, raw, value in zip(plan.counted, raws, exposed, strict=True):
            if value is None and raw is not None:
                series = plan.layout.series[place]
                last = self._counters[series].shown
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

    def _frame(self, exposed: Values, gaps: list[Gap]) -> Frame:
        if not gaps:
            return Frame(self._plan.shown, exposed)  # type: ignore[arg-type]  # nothing was left out
        pairs = zip(self._plan.shown.series, exposed, strict=True)
        return self._framer.frame(Reading(series, value) for series, value in pairs if value is not None)

    def _reject(self, series: Series, cause: str, detail: str) -> Gap:
        self._conditioner.rejected[self._key[0], cause] += 1
        return Gap(series.metric, series.entity, Reason.IMPLAUSIBLE, detail)


class Conditioner:
    """Conditions the frames of all sources. Only the fast lane has `statistics`: the others have too few values."""

    def __init__(self, statistics: RollingStatistics) -> None:
        self.statistics = statistics
        self._lanes: dict[Key, _Lane] = {}
        self.rejected: Tally[tuple[str, str]] = Tally()
        """Readings that were left out, by backend and cause."""
        self.noted: defaultdict[tuple[str, Metric], dict[Entity, tuple[float, float]]] = defaultdict(dict)
        """By backend, the powers of GPUs and the node: each entity's last good value, and when it was read."""

    def pass_on(self, key: Key, at: float, frame: Frame, period: float) -> tuple[Frame, list[Gap]]:
        """Return the readings to show for those read at `at`, and a gap for each that was left out."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, self)
        return lane.pass_on(at, frame, LONGEST_STRIDE * period)
