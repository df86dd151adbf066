"""`histogram_quantile` on classic histograms: buckets are series that differ in the label `le`."""

from __future__ import annotations

import math
from bisect import bisect_left

from alerts.promql.labels import BUCKET_BOUND, METRIC_NAME, Labels, drop_labels, label_value
from alerts.promql.plan import Elements, LabelSpace, Moment, ScalarPlan, VectorPlan, refuse_same_labels

# Counts that differ by less are taken for equal: the difference comes from rounding in `rate` and `sum`.
_SMALL_DIFFERENCE = 1e-12

Bucket = tuple[float, float]


def histogram_quantile(space: LabelSpace, share: ScalarPlan, vector: VectorPlan) -> VectorPlan:
    """Plan `histogram_quantile`: one element for each histogram; series without a readable `le` are left out."""
    boundless = space.derivation(lambda labels: drop_labels(labels, frozenset((BUCKET_BOUND,))))
    nameless = space.derivation(lambda labels: drop_labels(labels, frozenset((METRIC_NAME,))))
    inner = vector.run

    def run(moment: Moment) -> Elements:
        wanted = share.run(moment)
        histograms: dict[int, tuple[Labels, list[Bucket]]] = {}
        for labels, count in moment.budget.each(inner(moment)):
            bound = _bound(label_value(labels, BUCKET_BOUND))
            if bound is not None:
                key = boundless(labels)
                histograms.setdefault(id(key), (nameless(key), []))[1].append((bound, count))
        found = moment.budget.each([*histograms.values()])
        return refuse_same_labels([(labels, bucket_quantile(wanted, each)) for labels, each in found])

    return VectorPlan(run)


def _bound(text: str) -> float | None:
    try:
        return float(text)
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
    counts = _rising(counts)
    if counts[-1] == 0 or math.isnan(counts[-1]):
        return math.nan
    rank = share * counts[-1]
    index = bisect_left(counts, rank, 0, len(counts) - 1)
    if index == len(counts) - 1:
        return bounds[-2]
    if index == 0 and bounds[0] <= 0:
        return bounds[0]
    lower, below = (bounds[index - 1], counts[index - 1]) if index else (0.0, 0.0)
    inside = counts[index] - below
    if inside == 0:
        return math.nan
    return lower + (bounds[index] - lower) * ((rank - below) / inside)


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


def _rising(counts: list[float]) -> list[float]:
    """Make the counts cumulative again where buckets were read at different instants."""
    rising = counts[:1]
    for count in counts[1:]:
        before = rising[-1]
        close = abs(count - before) < _SMALL_DIFFERENCE * (abs(count) + abs(before))
        rising.append(before if close or count < before else count)
    return rising
