"""Aggregation operators: a vector divided into groups, and each group reduced to one element or a few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from alerts.promql import numbers
from alerts.promql.labels import METRIC_NAME, NO_LABELS, Labels, drop_labels, keep_labels, set_labels
from alerts.promql.numbers import Each, Floats
from alerts.promql.plan import Elements, EvaluationContext, LabelSpace, ScalarPlan, VectorPlan
from alerts.promql.query_errors import EvaluationError

Reduction = Callable[[Floats, Each], float]
"""Makes one number of the values of a group, going through them with `Each` where that takes a loop."""

REDUCTIONS: dict[str, Reduction] = {
    "sum": numbers.kahan_sum,
    "avg": numbers.mean,
    "min": lambda values, _each: numbers.smallest(values),
    "max": lambda values, _each: numbers.largest(values),
    "count": lambda values, _each: float(len(values)),
    "group": lambda _values, _each: 1.0,
    "stddev": lambda values, each: numbers.square_root(numbers.variance(values, each)),
    "stdvar": numbers.variance,
}
SELECTIONS = ("topk", "bottomk")
AGGREGATIONS = (*REDUCTIONS, *SELECTIONS, "quantile", "count_values")

_LARGEST_COUNT = 2.0**63


class Grouping(NamedTuple):
    """`by` or `without` some labels; without a clause everything is one group."""

    without: bool
    labels: tuple[str, ...]

    def derive(self, labels: Labels) -> Labels:
        """Return the labels of the group to which an element belongs."""
        if self.without:
            return drop_labels(labels, frozenset(self.labels) | {METRIC_NAME})
        return keep_labels(labels, frozenset(self.labels))

    @property
    def single(self) -> bool:
        """Whether there is only one group."""
        return not self.without and not self.labels


def reduction(
    space: LabelSpace,
    reduce: Reduction,
    vector: VectorPlan,
    grouping: Grouping,
) -> VectorPlan:
    """Plan an aggregation that makes one number of the values of each group."""
    groups = _grouped(space, vector, grouping)

    def run(moment: EvaluationContext) -> Elements:
        each = moment.budget.each
        return [(labels, reduce(values, each)) for labels, values in groups(moment)]

    return VectorPlan(run)


def quantile(space: LabelSpace, share: ScalarPlan, vector: VectorPlan, grouping: Grouping) -> VectorPlan:
    """Plan the quantile of each group."""
    groups = _grouped(space, vector, grouping)

    def run(moment: EvaluationContext) -> Elements:
        wanted = share.run(moment)
        each = moment.budget.each
        return [(labels, numbers.quantile(wanted, values, each)) for labels, values in groups(moment)]

    return VectorPlan(run)


def _grouped(
    space: LabelSpace, vector: VectorPlan, grouping: Grouping
) -> Callable[[EvaluationContext], list[tuple[Labels, list[float]]]]:
    """Return what divides a vector into groups. What it read is let go then: the groups have the values alone."""
    inner = vector.run
    if grouping.single:

        def one_group(moment: EvaluationContext) -> list[tuple[Labels, list[float]]]:
            before = moment.budget.held
            values = [value for _, value in moment.budget.each(inner(moment))]
            moment.budget.settle(before, 1)
            return [(space.canonical(NO_LABELS), values)] if values else []

        return one_group

    derive = space.derivation(grouping.derive)

    def groups(moment: EvaluationContext) -> list[tuple[Labels, list[float]]]:
        before = moment.budget.held
        found: dict[int, tuple[Labels, list[float]]] = {}
        for labels, value in moment.budget.each(inner(moment)):
            group = derive(labels)
            known = found.get(id(group))
            if known is None:
                found[id(group)] = (group, [value])
            else:
                known[1].append(value)
        moment.budget.settle(before, len(found))
        return list(found.values())

    return groups


def selection(
    space: LabelSpace, vector: VectorPlan, count: ScalarPlan, grouping: Grouping, *, largest: bool
) -> VectorPlan:
    """Plan `topk` or `bottomk`: the elements of each group with the largest or smallest values, NaN last."""
    derive = space.derivation(grouping.derive)
    inner = vector.run

    def rank(element: tuple[Labels, float]) -> tuple[bool, float]:
        value = element[1]
        return (True, 0.0) if value != value else (False, -value if largest else value)

    def run(moment: EvaluationContext) -> Elements:
        asked = count.run(moment)
        elements = inner(moment)  # also where none of them is wanted: it may fail
        if asked < 1 or not elements:
            return []
        wanted = _element_count(asked)
        groups: dict[int, Elements] = {}
        for element in moment.budget.each(elements):
            groups.setdefault(id(derive(element[0])), []).append(element)
        each = moment.budget.each
        return [element for group in each([*groups.values()]) for element in sorted(each(group), key=rank)[:wanted]]

    return VectorPlan(run)


def _element_count(value: float) -> int:
    if math.isnan(value) or value >= _LARGEST_COUNT:
        raise EvaluationError(f"Scalar value {'NaN' if math.isnan(value) else f'{value:g}'} overflows int64")
    return int(value)


def count_values(space: LabelSpace, vector: VectorPlan, label: str, grouping: Grouping) -> VectorPlan:
    """Plan `count_values`: one element for each different value of each group, the value being a label."""
    if not grouping.without:
        grouping = Grouping(without=False, labels=(*grouping.labels, label))
    inner = vector.run

    def run(moment: EvaluationContext) -> Elements:
        counts: dict[Labels, int] = {}
        for labels, value in moment.budget.each(inner(moment)):
            # The label is set before labels are grouped, so `without` may take it away again.
            made = space.canonical(grouping.derive(set_labels(labels, [(label, numbers.format_value(value))])))
            counts[made] = counts.get(made, 0) + 1
        return [(labels, float(count)) for labels, count in counts.items()]

    return VectorPlan(run)
