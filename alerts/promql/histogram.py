"""Functions of classic histograms, whose buckets are series that differ in the label `le`."""

import math
import sys
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

from alerts.go_literals import parse_float
from alerts.promql import numbers
from alerts.promql.labels import BUCKET_BOUND, Labels, drop_labels, label_value
from alerts.promql.plan import Derivation, Elements, EvaluationContext, ScalarPlan, VectorPlan, refuse_same_labels

_SMALL_DIFFERENCE = 1e-12
"""Relative difference below which two counts are equal: it comes from rounding in `rate` and `sum`."""

Bucket = tuple[float, float]
"""Upper bound and cumulative count."""


def drop_bucket_bound(labels: Labels) -> Labels:
    """Return the labels of a histogram from those of one of its buckets."""
    return drop_labels(labels, frozenset((BUCKET_BOUND,)))


class HistogramFunction(VectorPlan):
    """Applies a function to scalars and the buckets of each histogram. Series without a valid `le` are ignored."""

    _function: Callable[..., float]
    _arguments: tuple[ScalarPlan, ...]
    _inner: VectorPlan
    _without_bound: Derivation
    _without_name: Derivation

    def run(self, context: EvaluationContext) -> Elements:
        arguments = [argument.run(context) for argument in self._arguments]
        histograms: dict[int, tuple[Labels, list[Bucket]]] = {}
        for labels, count in context.budget.iterate(self._inner.run(context)):
            bound = _bound(label_value(labels, BUCKET_BOUND))
            if bound is not None:
                key = self._without_bound.derive(labels)
                histograms.setdefault(id(key), (self._without_name.derive(key), []))[1].append((bound, count))
        labelled_buckets = context.budget.iterate([*histograms.values()])
        elements = [(labels, self._function(*arguments, buckets)) for labels, buckets in labelled_buckets]
        return refuse_same_labels(elements)


def _bound(text: str) -> float | None:
    """Return the bound in a value of `le`; None if Go cannot parse it."""
    try:
        return parse_float(text)
    except ValueError:
        return None


def bucket_quantile(quantile: float, buckets: list[Bucket]) -> float:
    """Return the value at a quantile from 0 to 1, interpolated linearly within its bucket."""
    if math.isnan(quantile):
        return math.nan
    if quantile < 0 or quantile > 1:
        return math.copysign(math.inf, quantile)
    bounds, counts = _merge_buckets(buckets)
    if bounds[-1] != math.inf or len(bounds) < 2:
        return math.nan
    counts = [*accumulate(counts, _monotonic)]
    if counts[-1] == 0:
        return math.nan
    rank = quantile * counts[-1]
    # With NaN among the counts, the result depends on the search. Go's tests count >= rank, so this one does.
    index = bisect_left(counts, True, hi=len(counts) - 1, key=lambda count: count >= rank)
    if index == len(counts) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    lower = bounds[index - 1] if index else 0.0
    below = counts[index - 1] if index else 0.0
    return lower + (bounds[index] - lower) * numbers.divide(rank - below, counts[index] - below)


def bucket_fraction(lower: float, upper: float, buckets: list[Bucket]) -> float:
    """Return the share of observations above `lower` and up to `upper`, interpolated linearly within buckets."""
    bounds, counts = _merge_buckets(buckets)
    total = counts[-1]
    if bounds[-1] != math.inf or total == 0 or math.isnan(lower) or math.isnan(upper):
        return math.nan
    if lower >= upper:
        return 0.0
    return numbers.divide(_rank(upper, bounds, counts) - _rank(lower, bounds, counts), total)


def _rank(value: float, bounds: list[float], counts: list[float]) -> float:
    """Return the number of observations up to a value, interpolated linearly within its bucket."""
    below, start = 0.0, -math.inf
    rank = counts[-1]
    for bound, count in zip(bounds, counts, strict=True):
        if start >= value:
            rank = below
            break
        if start < value < bound:
            rank = below + numbers.divide((count - below) * (value - start), bound - start)
            break
        below, start = count, bound
    return min(rank, counts[-1])


def _merge_buckets(buckets: list[Bucket]) -> tuple[list[float], list[float]]:
    """Return ascending bounds and their counts; buckets with one bound (`le="1"`, `le="1.0"`) are added."""
    bounds: list[float] = []
    counts: list[float] = []
    for bound, count in sorted(buckets, key=lambda bucket: bucket[0]):
        if bounds and bounds[-1] == bound:
            counts[-1] += count
        else:
            bounds.append(bound)
            counts.append(count)
    return bounds, counts


def _monotonic(previous: float, count: float) -> float:
    """Return the count, or the previous one if this one is lower or nearly equal.

    Counts fall where buckets were read at different instants, and differ slightly after `rate` and `sum`.
    """
    together = min(abs(count) + abs(previous), sys.float_info.max)
    close = count == previous or abs(count - previous) < _SMALL_DIFFERENCE * together
    return previous if close or count < previous else count
