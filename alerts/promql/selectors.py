"""Plans for reading samples: instant selectors, range selectors and subqueries.

Ranges and the five-minute look-back are open on the left, as in Prometheus 3. A staleness marker ends a series for
instant selectors and is invisible to range selectors.
"""

from array import array
from typing import NamedTuple

from msgspec import Struct

from alerts.promql.labels import SAME_LABELSET, EvaluationError, Labels, Matcher, only_metric_name
from alerts.promql.plan import (
    LOOKBACK_MS,
    Derivation,
    Elements,
    EvaluationContext,
    Matrix,
    MatrixPlan,
    VectorPlan,
    refuse_same_labels,
)
from alerts.promql.storage import Newest, is_stale

_STEP = 4
"""Units of work of a subquery's step, beside those for its elements."""
_SERIES = 8
"""Samples that a series of a subquery counts for beside its own: two arrays, and the entry that finds them."""


class Timing(NamedTuple):
    """The time of a selector or subquery: `offset` before the evaluation, the whole query's instant, or a fixed one.

    `of_fixed` of a selector says that it, or a subquery around it, is bound to a fixed time.
    """

    offset_ms: int
    at_query: bool
    fixed_ms: int | None = None
    of_fixed: bool = False

    def end_ms(self, context: EvaluationContext) -> int:
        """Return the newest instant that is looked at."""
        if self.fixed_ms is not None:
            return self.fixed_ms - self.offset_ms
        return (context.query_ms if self.at_query else context.at_ms) - self.offset_ms

    def selected_ms(self, context: EvaluationContext) -> int:
        """Return the newest instant whose samples are read. Raises EvaluationError if they may be gone by now."""
        if self.of_fixed and context.source.forgetful:
            raise EvaluationError(
                "'@' with a fixed time: samples are kept only as long as rules look back; use offset, "
                "or @ end(), or let a server evaluate the rule"
            )
        return self.end_ms(context)


class Selector(NamedTuple):
    """What a query reads: series by their matchers, and all of their samples of the last `history` seconds before the
    evaluation. Of the older ones it reads at most the newest: an instant selector without an offset has no history.
    """

    matchers: tuple[Matcher, ...]
    history: float


class _Reader(Struct, eq=False):
    """The common part of all plans that read the series of a source."""

    _matchers: tuple[Matcher, ...]
    _timing: Timing

    @property
    def certain(self) -> bool:
        return not self._timing.of_fixed and only_metric_name(self._matchers) is not None

    def is_barren(self, context: EvaluationContext) -> bool:
        return not self._timing.of_fixed and context.source.lacks(self._matchers, context.budget)


class InstantSelector(_Reader, VectorPlan):
    """The newest sample of each series that matches."""

    def run(self, context: EvaluationContext) -> Elements:
        return [
            (labels, value)
            for labels, _, value in context.budget.iterate(_newest(context, self._matchers, self._timing))
            if value == value or not is_stale(value)  # only a NaN can be the marker
        ]


class TimestampSelector(_Reader, VectorPlan):
    """`timestamp(selector)`: the time of the newest sample of each series that matches."""

    _nameless: Derivation

    def run(self, context: EvaluationContext) -> Elements:
        newest = context.budget.iterate(_newest(context, self._matchers, self._timing))
        nameless = self._nameless.derive
        return refuse_same_labels([(nameless(labels), at) for labels, at, value in newest if not is_stale(value)])


def _newest(context: EvaluationContext, matchers: tuple[Matcher, ...], timing: Timing) -> list[Newest]:
    end = timing.selected_ms(context)
    return context.source.newest(matchers, (end - LOOKBACK_MS) / 1000, end / 1000, context.budget)


class RangeSelector(_Reader, MatrixPlan):
    """The samples of a range for each series that matches; the windows are the source's."""

    _range_ms: int

    def run(self, context: EvaluationContext) -> Matrix:
        end = self._timing.selected_ms(context)
        start = end - self._range_ms
        windows = context.source.select(self._matchers, start / 1000, end / 1000, context.budget)
        return Matrix(windows, start, end, marked=True)


class SubqueryPlan(MatrixPlan):
    """The results of the inner query at every multiple of the step within the range."""

    _inner: VectorPlan
    _timing: Timing
    _range_ms: int
    _step_ms: int

    @property
    def certain(self) -> bool:
        return self._inner.certain

    def is_barren(self, context: EvaluationContext) -> bool:
        return self._inner.is_barren(context)

    def run(self, context: EvaluationContext) -> Matrix:
        end = self._timing.end_ms(context)
        start, step_ms = end - self._range_ms, self._step_ms
        if self._inner.is_barren(context):  # and so it is at every step
            return Matrix((), start, end, marked=False)
        budget, steps = context.budget, {} if context.steps is None else context.steps
        series: dict[int, tuple[Labels, array[float], array[float]]] = {}
        for at_ms in range((start // step_ms + 1) * step_ms, end + 1, step_ms):
            budget.spend(_STEP)
            before, series_before, now = budget.held, len(series), at_ms / 1000
            elements = self._inner.run(context._replace(at_ms=at_ms, steps=steps))
            for labels, value in budget.iterate(elements):
                window = series.get(id(labels))
                if window is None:
                    window = series[id(labels)] = (labels, array("d"), array("d"))
                if window[1] and window[1][-1] == now:
                    raise EvaluationError(SAME_LABELSET)
                window[1].append(now)
                window[2].append(value)
            budget.held = before  # the elements are released, and their samples kept
            budget.hold(len(elements) + _SERIES * (len(series) - series_before))
        return Matrix(series.values(), start, end, marked=False)
