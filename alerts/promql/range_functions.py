"""Functions of a range vector: each reduces the samples of a window to one number, or nothing.

`rate`, `increase` and `delta` extrapolate to the edges of the range as in Prometheus 3: a gap at an edge that is
wider than the samples' usual distance first shrinks to half that distance, and only then may the point at which a
counter was zero be closer still.
"""

import math
from array import array
from collections.abc import Callable
from itertools import islice, pairwise
from operator import gt, lt, mul, ne
from typing import NamedTuple

from alerts.promql import numbers
from alerts.promql.numbers import Floats, Iterate
from alerts.promql.plan import (
    Derivation,
    Elements,
    EvaluationContext,
    MatrixPlan,
    ScalarPlan,
    VectorPlan,
    refuse_same_labels,
)
from alerts.promql.storage import without_markers

_SUMMED = 16
"""Samples that a function without a Python loop processes in the time of one unit of work."""
_TOGETHER = 256
"""Units of work after which the work is counted."""
_LONG = 32_768
"""Number of samples from which on a window is not copied to look at it."""


class RangeWindow(NamedTuple):
    """The range around a window, the function's numeric argument, if it has one, and how to iterate over samples."""

    start_ms: int
    end_ms: int
    at_ms: int
    argument: float
    iterate: Iterate


RangeFunction = Callable[[Floats, Floats, RangeWindow], "float | None"]


class OfWindows(VectorPlan):
    """A function of each window of a range vector; without `_nameless` the metric's name stays."""

    _function: RangeFunction
    _matrix: MatrixPlan
    _argument: ScalarPlan | None
    _nameless: Derivation | None

    @property
    def certain(self) -> bool:
        return self._argument is None and self._matrix.certain

    def is_barren(self, context: EvaluationContext) -> bool:
        number = self._argument
        return (number is None or number.constant is not None) and self._matrix.is_barren(context)

    def run(self, context: EvaluationContext) -> Elements:
        budget = context.budget
        before = budget.held
        windows, start_ms, end_ms, marked = self._matrix.run(context)
        argument = 0.0 if self._argument is None else self._argument.run(context)
        span = RangeWindow(start_ms, end_ms, context.at_ms, argument, budget.iterate)
        function, nameless = self._function, self._nameless
        elements: Elements = []
        units = 0
        for labels, times, values in windows:
            if marked:
                times, values = without_markers(times, values)
                if not times:
                    continue
            units += 1 + len(values) // _SUMMED
            if units >= _TOGETHER:
                budget.spend(units)
                budget.hold_result(before, len(elements))
                units = 0
            value = function(times, values, span)
            if value is None:
                continue
            result_labels = labels if nameless is None else nameless.derive(labels)
            if context.steps is not None:
                context.refuse_clash(self, labels, result_labels)
            elements.append((result_labels, value))
        budget.hold_result(before, len(elements))
        return refuse_same_labels(elements)


def _counter_increase(values: Floats, iterate: Iterate) -> float:
    """Return the increase of a counter, for which every fall is a reset to zero."""
    rise = values[-1] - values[0]
    if len(values) > _LONG:
        falls = any(map(lt, islice(values, 1, None), values))
    else:
        # Sorting values that are in order only compares neighbours: the quickest way to see that nothing fell.
        floats = values.tolist() if isinstance(values, array) else list(values)
        falls = sorted(floats) != floats
    if falls:
        for before, after in pairwise(iterate(values)):
            if after < before:
                rise += before
    return rise


def _share(times: Floats, first: float, change: float, span: RangeWindow, counter: bool) -> float:
    """Return the factor from the change between first and last value to the change over the range.

    In seconds, and added in the order of Prometheus: the last bit depends on both.
    """
    first_ms, last_ms = round(times[0] * 1000), round(times[-1] * 1000)
    sampled = (last_ms - first_ms) / 1000
    spacing = sampled / (len(times) - 1)
    far, to_start, to_end = spacing * 1.1, (first_ms - span[0]) / 1000, (span[1] - last_ms) / 1000
    if to_start >= far:
        to_start = spacing / 2
    if counter and change > 0 and first >= 0:
        from_zero = sampled * (first / change)
        if from_zero < to_start:
            to_start = from_zero
    return (sampled + to_start + (to_end if to_end < far else spacing / 2)) / sampled


def rate(times: Floats, values: Floats, span: RangeWindow) -> float | None:
    """Return the increase of a counter per second."""
    if len(values) < 2:
        return None
    change = _counter_increase(values, span.iterate)
    return change * (_share(times, values[0], change, span, True) / ((span.end_ms - span.start_ms) / 1000))


def increase(times: Floats, values: Floats, span: RangeWindow) -> float | None:
    """Return the increase of a counter over the range."""
    if len(values) < 2:
        return None
    change = _counter_increase(values, span.iterate)
    return change * _share(times, values[0], change, span, True)


def delta(times: Floats, values: Floats, span: RangeWindow) -> float | None:
    """Return the change of a gauge over the range."""
    if len(values) < 2:
        return None
    change = values[-1] - values[0]
    return change * _share(times, values[0], change, span, False)


def idelta(_times: Floats, values: Floats, _span: RangeWindow) -> float | None:
    """Return the change between the last two samples."""
    return values[-1] - values[-2] if len(values) > 1 else None


def irate(times: Floats, values: Floats, _span: RangeWindow) -> float | None:
    """Return the increase of a counter per second between the last two samples."""
    if len(values) < 2:
        return None
    rise = values[-1] if values[-1] < values[-2] else values[-1] - values[-2]
    return rise / (round((times[-1] - times[-2]) * 1000) / 1000)  # exact to the millisecond for times of any size


def changes(_times: Floats, values: Floats, span: RangeWindow) -> float:
    """Return how often the value changed; NaN after NaN is not a change."""
    count = sum(map(ne, values, islice(values, 1, None)))
    if count and any(map(ne, values, values)):
        pairs = pairwise(span.iterate(values))
        count = sum(before != after and (before == before or after == after) for before, after in pairs)
    return float(count)


def resets(_times: Floats, values: Floats, _span: RangeWindow) -> float:
    """Return how often the value fell."""
    return float(sum(map(gt, values, islice(values, 1, None))))


def deriv(times: Floats, values: Floats, span: RangeWindow) -> float | None:
    """Return the slope of the least-squares line."""
    return _line(times, values, times[0], span.iterate)[0] if len(values) > 1 else None


def predict_linear(times: Floats, values: Floats, span: RangeWindow) -> float | None:
    """Return the value of the least-squares line `argument` seconds after the evaluation."""
    if len(values) < 2:
        return None
    slope, intercept = _line(times, values, span.at_ms / 1000, span.iterate)
    return slope * span.argument + intercept


def _line(times: Floats, values: Floats, origin: float, iterate: Iterate) -> tuple[float, float]:
    """Return slope and intercept of the least-squares line."""
    first = values[0]
    if values[-1] == first and all(value == first for value in iterate(values)):
        return (0.0, values[0]) if math.isfinite(values[0]) else (math.nan, math.nan)
    count = float(len(values))
    distances = array("d", [round((time - origin) * 1000) / 1000 for time in iterate(times)])
    sum_x = _both(numbers.compensated(distances, iterate))
    sum_y = _both(numbers.compensated(values, iterate))
    sum_xy = _both(numbers.compensated(array("d", map(mul, iterate(distances), values)), iterate))
    sum_x2 = _both(numbers.compensated(array("d", map(mul, iterate(distances), distances)), iterate))
    slope = numbers.divide(sum_xy - sum_x * sum_y / count, sum_x2 - sum_x * sum_x / count)
    return slope, sum_y / count - slope * sum_x / count


def _both(parts: tuple[float, float]) -> float:
    return parts[0] + parts[1]


def quantile_over_time(_times: Floats, values: Floats, span: RangeWindow) -> float:
    """Return the quantile `argument` of the values."""
    return numbers.quantile(span.argument, values, span.iterate)


def last_over_time(_times: Floats, values: Floats, _span: RangeWindow) -> float:
    """Return the newest value: the one function that keeps the metric's name."""
    return values[-1]


RANGE_FUNCTIONS: dict[str, RangeFunction] = {
    "rate": rate,
    "irate": irate,
    "increase": increase,
    "delta": delta,
    "idelta": idelta,
    "deriv": deriv,
    "changes": changes,
    "resets": resets,
    "avg_over_time": lambda _times, values, span: numbers.mean(values, span.iterate),
    "min_over_time": lambda _times, values, _span: numbers.smallest(values),
    "max_over_time": lambda _times, values, _span: numbers.largest(values),
    "sum_over_time": lambda _times, values, span: numbers.kahan_sum(values, span.iterate),
    "count_over_time": lambda _times, values, _span: float(len(values)),
    "stddev_over_time": lambda _times, values, span: numbers.square_root(
        numbers.compensated_variance(values, span.iterate)
    ),
    "stdvar_over_time": lambda _times, values, span: numbers.compensated_variance(values, span.iterate),
    "last_over_time": last_over_time,
    "present_over_time": lambda _times, _values, _span: 1.0,
}
