"""Functions of classic histograms: buckets are series that differ in the label `le`."""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

from alerts.go_literals import parse_float
from alerts.promql import numbers
from alerts.promql.labels import BUCKET_BOUND, Labels, drop_labels, label_value
from alerts.promql.plan import (
    Derivation,
    Elements,
    EvaluationContext,
    ScalarPlan,
    VectorPlan,
    refuse_same_labels,
)

# Counts that differ by less count as equal: the difference comes from rounding in `rate` and `sum`.
_SMALL_DIFFERENCE = 1e-12

Bucket = tuple[float, float]


def boundless(labels: Labels) -> Labels:
    """Return the labels of a histogram from those of one of its buckets."""
    return drop_labels(labels, frozenset((BUCKET_BOUND,)))


class OfHistograms(VectorPlan):
    """A function of numbers and the buckets of each histogram; series without a readable `le` are left out."""

    _function: Callable[..., float]
    _given: tuple[ScalarPlan, ...]
    _inner: VectorPlan
    _boundless: Derivation
    _nameless: Derivation

    def run(self, moment: EvaluationContext) -> Elements:
        given = [each.run(moment) for each in self._given]
        histograms: dict[int, tuple[Labels, list[Bucket]]] = {}
        for labels, count in moment.budget.each(self._inner.run(moment)):
            bound = _bound(label_value(labels, BUCKET_BOUND))
            if bound is not None:
                key = self._boundless.of(labels)
                histograms.setdefault(id(key), (self._nameless.of(key), []))[1].append((bound, count))
        found = moment.budget.each([*histograms.values()])
        return refuse_same_labels([(labels, self._function(*given, each)) for labels, each in found])


def _bound(text: str) -> float | None:
    """Return the bound that a text gives; None if Go would not parse it."""
    try:
        return parse_float(text)
    except ValueError:
        return None


def bucket_quantile(share: float, buckets: list[Bucket]) -> float:
    """Return the quantile of cumulative buckets, linear within a bucket."""
    if math.isnan(share):
        return math.nan
    if share < 0 or share > 1:
        return math.copysign(math.inf, share)
    bounds, counts = _merged(buckets)
    if bounds[-1] != math.inf or len(bounds) < 2:
        return math.nan
    counts = [*accumulate(counts, _rising)]
    if counts[-1] == 0:
        return math.nan
    rank = share * counts[-1]
    # Which count is found among NaNs depends on the search: like Go's, this one asks whether a count is large enough.
    index = bisect_left(counts, True, hi=len(counts) - 1, key=lambda count: count >= rank)
    if index == len(counts) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    lower, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    return lower + (bounds[index] - lower) * numbers.divide(rank - below, counts[index] - below)


def bucket_fraction(lower: float, upper: float, buckets: list[Bucket]) -> float:
    """Return the share of observations above `lower` and up to `upper`, linear within a bucket."""
    bounds, counts = _merged(buckets)
    total = counts[-1]
    if bounds[-1] != math.inf or total == 0 or math.isnan(lower) or math.isnan(upper):
        return math.nan
    if lower >= upper:
        return 0.0
    return numbers.divide(_rank(upper, bounds, counts) - _rank(lower, bounds, counts), total)


def _rank(value: float, bounds: list[float], counts: list[float]) -> float:
    """Return how many observations are no larger than a value."""
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


def _merged(buckets: list[Bucket]) -> tuple[list[float], list[float]]:
    """Order the buckets by their bounds; two with one bound (`le="1"`, `le="1.0"`) count together."""
    bounds: list[float] = []
    counts: list[float] = []
    for bound, count in sorted(buckets, key=lambda bucket: bucket[0]):
        if bounds and bounds[-1] == bound:
            counts[-1] += count
        else:
            bounds.append(bound)
            counts.append(count)
    return bounds, counts


def _rising(before: float, count: float) -> float:
    """Make a count cumulative again if buckets were read at different instants."""
    together = min(abs(count) + abs(before), sys.float_info.max)
    close = count == before or abs(count - before) < _SMALL_DIFFERENCE * together
    return before if close or count < before else count
