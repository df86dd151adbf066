"""Aggregation operators: a vector divided into groups, and each group reduced to one element or a few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from agent.lib.wording import format_value
from alerts.promql import numbers
from alerts.promql.labels import METRIC_NAME, EvaluationError, Labels, drop_labels, keep_labels, set_labels
from alerts.promql.numbers import Each, Floats
from alerts.promql.plan import Derivation, Element, Elements, EvaluationContext, LabelSpace, ScalarPlan, VectorPlan

Reduction = Callable[[Floats, Each], float]
"""Reduces the values of a group to one number, using `Each` if that takes a loop."""

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

    def group(self, labels: Labels) -> Labels:
        """Return the labels of the group to which an element belongs."""
        if self.without:
            return drop_labels(labels, frozenset(self.labels) | {METRIC_NAME})
        return keep_labels(labels, frozenset(self.labels))

    @property
    def single(self) -> bool:
        """Whether there is only one group."""
        return not self.without and not self.labels


class _Whole(Struct, eq=False):
    """A vector as one group. The elements are released: the group has only the values."""

    inner: VectorPlan
    _space: LabelSpace

    def of(self, moment: EvaluationContext) -> list[tuple[Labels, list[float]]]:
        before = moment.budget.held
        values = [value for _, value in moment.budget.each(self.inner.run(moment))]
        moment.budget.settle(before, 1)
        return [(self._space.canonical(()), values)] if values else []


class _Groups(Struct, eq=False):
    """A vector divided into groups, which have only the values as well."""

    inner: VectorPlan
    _derivation: Derivation

    def of(self, moment: EvaluationContext) -> list[tuple[Labels, list[float]]]:
        before = moment.budget.held
        found: dict[int, tuple[Labels, list[float]]] = {}
        derive = self._derivation.of
        for labels, value in moment.budget.each(self.inner.run(moment)):
            group = derive(labels)
            known = found.get(id(group))
            if known is None:
                found[id(group)] = (group, [value])
            else:
                known[1].append(value)
        moment.budget.settle(before, len(found))
        return list(found.values())


def groups_of(space: LabelSpace, vector: VectorPlan, grouping: Grouping) -> _Whole | _Groups:
    """Plan the division of a vector into groups."""
    return _Whole(vector, space) if grouping.single else _Groups(vector, Derivation(space, grouping.group))


class ReductionPlan(VectorPlan):
    """An aggregation that reduces the values of each group to one number."""

    _groups: _Whole | _Groups
    _reduce: Reduction

    @property
    def certain(self) -> bool:
        return self._groups.inner.certain

    def is_barren(self, moment: EvaluationContext) -> bool:
        return self._groups.inner.is_barren(moment)

    def run(self, moment: EvaluationContext) -> Elements:
        each, reduce = moment.budget.each, self._reduce
        return [(labels, reduce(values, each)) for labels, values in self._groups.of(moment)]


class QuantilePlan(VectorPlan):
    """The quantile of each group."""

    _groups: _Whole | _Groups
    _share: ScalarPlan

    def run(self, moment: EvaluationContext) -> Elements:
        share, each = self._share.run(moment), moment.budget.each
        return [(labels, numbers.quantile(share, values, each)) for labels, values in self._groups.of(moment)]


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

    def run(self, moment: EvaluationContext) -> Elements:
        asked = self._count.run(moment)
        elements = self._inner.run(moment)  # even if the count is 0: it may fail
        if asked < 1 or not elements:
            return []
        if math.isnan(asked) or asked >= _LARGEST_COUNT:
            raise EvaluationError(f"Scalar value {'NaN' if math.isnan(asked) else f'{asked:g}'} overflows int64")
        count = int(asked)
        groups: dict[int, Elements] = {}
        derive = self._grouping.of
        for element in moment.budget.each(elements):
            groups.setdefault(id(derive(element[0])), []).append(element)
        each, rank = moment.budget.each, self._rank
        return [element for group in each([*groups.values()]) for element in sorted(each(group), key=rank)[:count]]


class CountValuesPlan(VectorPlan):
    """`count_values`: one element for each different value of each group, the value being a label.

    `_grouping` has that label, if it is one by labels.
    """

    _space: LabelSpace
    _inner: VectorPlan
    _label: str
    _grouping: Grouping

    def run(self, moment: EvaluationContext) -> Elements:
        counts: dict[Labels, int] = {}
        for labels, value in moment.budget.each(self._inner.run(moment)):
            # The label is set before labels are grouped, so `without` may remove it again.
            own = set_labels(labels, [(self._label, format_value(value))])
            made = self._space.canonical(self._grouping.group(own))
            counts[made] = counts.get(made, 0) + 1
        return [(labels, float(count)) for labels, count in counts.items()]
