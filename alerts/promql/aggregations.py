"""Aggregation operators: a vector divided into groups, and each group reduced to one element or a few."""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from agent.lib.wording import format_value
from alerts.promql import numbers
from alerts.promql.labels import METRIC_NAME, EvaluationError, Labels, drop_labels, keep_labels, set_labels
from alerts.promql.numbers import Floats, Iterate
from alerts.promql.plan import Derivation, Element, Elements, EvaluationContext, LabelSpace, ScalarPlan, VectorPlan

Reduction = Callable[[Floats, Iterate], float]
"""Reduces the values of a group to one number, using `Iterate` if that takes a loop."""

REDUCTIONS: dict[str, Reduction] = {
    "sum": numbers.kahan_sum,
    "avg": numbers.mean,
    "min": lambda values, _iterate: numbers.smallest(values),
    "max": lambda values, _iterate: numbers.largest(values),
    "count": lambda values, _iterate: float(len(values)),
    "group": lambda _values, _iterate: 1.0,
    "stddev": lambda values, iterate: numbers.square_root(numbers.variance(values, iterate)),
    "stdvar": numbers.variance,
}
SELECTIONS = ("topk", "bottomk")
AGGREGATIONS = (*REDUCTIONS, *SELECTIONS, "quantile", "count_values")

_LARGEST_COUNT = 2.0**63


class Grouping(NamedTuple):
    """`by` or `without` some labels; without a clause everything is one group."""

    without: bool
    labels: tuple[str, ...]

    def group(self, labels: Labels) -> Labels:
        """Return the labels of the group to which an element belongs."""
        if self.without:
            return drop_labels(labels, frozenset(self.labels) | {METRIC_NAME})
        return keep_labels(labels, frozenset(self.labels))


class ReductionPlan(VectorPlan):
    """An aggregation that reduces the values of each group to one number; a quantile's share comes before them.

    Without `_grouping` everything is one group. The elements are released: the groups have only the values.
    """

    _space: LabelSpace
    _inner: VectorPlan
    _grouping: Derivation | None
    _reduce: Callable[..., float]
    _share: ScalarPlan | None = None

    @property
    def certain(self) -> bool:
        return self._share is None and self._inner.certain

    def is_barren(self, context: EvaluationContext) -> bool:
        return self._share is None and self._inner.is_barren(context)

    def run(self, context: EvaluationContext) -> Elements:
        budget = context.budget
        reduce = self._reduce if self._share is None else partial(self._reduce, self._share.run(context))
        before = budget.held
        elements = budget.iterate(self._inner.run(context))
        groups: dict[int, tuple[Labels, list[float]]] = {}
        if self._grouping is not None:
            derive = self._grouping.derive
            for labels, value in elements:
                group = derive(labels)
                members = groups.get(id(group))
                if members is None:
                    groups[id(group)] = (group, [value])
                else:
                    members[1].append(value)
        elif values := [value for _, value in elements]:
            groups[0] = (self._space.canonical(()), values)
        budget.hold_result(before, len(groups))
        return [(labels, reduce(values, budget.iterate)) for labels, values in groups.values()]


def smallest_first(element: Element) -> tuple[bool, float]:
    """Return the sort key that puts the smallest elements first, NaN last."""
    value = element[1]
    return (True, 0.0) if value != value else (False, value)


def largest_first(element: Element) -> tuple[bool, float]:
    """Return the sort key that puts the largest elements first, NaN last."""
    value = element[1]
    return (True, 0.0) if value != value else (False, -value)


class SelectionPlan(VectorPlan):
    """`topk` and `bottomk`: the first elements of each group, ranked by their values with NaN last."""

    _inner: VectorPlan
    _count: ScalarPlan
    _grouping: Derivation
    _rank: Callable[[Element], tuple[bool, float]]

    def run(self, context: EvaluationContext) -> Elements:
        number = self._count.run(context)
        elements = self._inner.run(context)  # even if the count is 0: it may fail
        if number < 1 or not elements:
            return []
        if math.isnan(number) or number >= _LARGEST_COUNT:
            raise EvaluationError(f"Scalar value {'NaN' if math.isnan(number) else f'{number:g}'} overflows int64")
        count = int(number)
        groups: dict[int, Elements] = {}
        derive = self._grouping.derive
        for element in context.budget.iterate(elements):
            groups.setdefault(id(derive(element[0])), []).append(element)
        iterate, rank = context.budget.iterate, self._rank
        return [
            element for group in iterate([*groups.values()]) for element in sorted(iterate(group), key=rank)[:count]
        ]


class CountValuesPlan(VectorPlan):
    """`count_values`: one element for each different value of each group, the value being a label.

    `_grouping` has that label, if it is one by labels.
    """

    _space: LabelSpace
    _inner: VectorPlan
    _label: str
    _grouping: Grouping

    def run(self, context: EvaluationContext) -> Elements:
        counts: dict[Labels, int] = {}
        for labels, value in context.budget.iterate(self._inner.run(context)):
            # The label is set before labels are grouped, so `without` may remove it again.
            with_value = set_labels(labels, [(self._label, format_value(value))])
            group = self._space.canonical(self._grouping.group(with_value))
            counts[group] = counts.get(group, 0) + 1
        return [(labels, float(count)) for labels, count in counts.items()]
