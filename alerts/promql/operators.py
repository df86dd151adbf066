"""Arithmetic and comparison between numbers, and between a vector and a number."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from alerts.promql import numbers
from alerts.promql.labels import drop_metadata
from alerts.promql.plan import Elements, EvaluationContext, LabelSpace, ScalarPlan, VectorPlan, refuse_same_labels

ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": numbers.divide,
    "%": numbers.modulo,
    "^": numbers.power,
    "atan2": math.atan2,
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def constant(value: float) -> ScalarPlan:
    """Plan a number literal."""
    return ScalarPlan(lambda _moment: value, value)


def scalar_operation(name: str, left: ScalarPlan, right: ScalarPlan) -> ScalarPlan:
    """Plan an operation of two numbers; a comparison gives 1 or 0."""
    function = _as_number(COMPARISONS[name]) if name in COMPARISONS else ARITHMETIC[name]
    if left.constant is not None and right.constant is not None:
        return constant(function(left.constant, right.constant))
    left_run, right_run = left.run, right.run
    return ScalarPlan(lambda moment: function(left_run(moment), right_run(moment)))


def _as_number(compare: Callable[[float, float], bool]) -> Callable[[float, float], float]:
    return lambda left, right: 1.0 if compare(left, right) else 0.0


def vector_with_scalar(
    space: LabelSpace, name: str, vector: VectorPlan, scalar: ScalarPlan, *, swapped: bool, as_bool: bool
) -> VectorPlan:
    """Plan an operation of a vector and a number; `swapped` where the number stands on the left."""
    if name in COMPARISONS and not as_bool:
        return _filter(COMPARISONS[name], vector, scalar, swapped=swapped)
    function = _as_number(COMPARISONS[name]) if name in COMPARISONS else ARITHMETIC[name]
    nameless = space.derivation(drop_metadata)
    vector_run, scalar_run = vector.run, scalar.run

    def run(moment: EvaluationContext) -> Elements:
        number = scalar_run(moment)
        elements = moment.budget.each(vector_run(moment))
        if swapped:
            found = [(nameless(labels), function(number, value)) for labels, value in elements]
        else:
            found = [(nameless(labels), function(value, number)) for labels, value in elements]
        return refuse_same_labels(found)

    return VectorPlan(run)


def _filter(
    compare: Callable[[float, float], bool], vector: VectorPlan, scalar: ScalarPlan, *, swapped: bool
) -> VectorPlan:
    """Keep the elements, with their own values and names, for which the comparison holds."""
    vector_run, scalar_run = vector.run, scalar.run

    def run(moment: EvaluationContext) -> Elements:
        number = scalar_run(moment)
        elements = moment.budget.each(vector_run(moment))
        if swapped:
            return [element for element in elements if compare(number, element[1])]
        return [element for element in elements if compare(element[1], number)]

    return VectorPlan(run)


def negate_scalar(plan: ScalarPlan) -> ScalarPlan:
    """Plan the negative of a number."""
    if plan.constant is not None:
        return constant(-plan.constant)
    inner = plan.run
    return ScalarPlan(lambda moment: -inner(moment))


def negate_vector(space: LabelSpace, plan: VectorPlan) -> VectorPlan:
    """Plan the negative of a vector, which loses the metric's name."""
    nameless = space.derivation(drop_metadata)
    inner = plan.run

    def run(moment: EvaluationContext) -> Elements:
        found = []
        for labels, value in moment.budget.each(inner(moment)):
            made = nameless(labels)
            if moment.steps is not None:
                moment.steps.refuse_clash(nameless, labels, made, moment.budget)
            found.append((made, -value))
        return refuse_same_labels(found)

    return VectorPlan(run)
