"""Arithmetic and comparison between numbers, and between a vector and a number; and rows of such operators.

A row such as `a + b + c` is evaluated one after the other: as nested plans it would need a call for each operator, and
Python allows 1,000 nested calls, while generated rules have rows of any length.
"""

import math
import operator
from collections.abc import Callable
from typing import Union

from alerts.promql import numbers
from alerts.promql.labels import drop_metadata
from alerts.promql.plan import (
    Derivation,
    Elements,
    EvaluationContext,
    LabelSpace,
    ScalarPlan,
    VectorPlan,
    refuse_same_labels,
)

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


class Constant(ScalarPlan):
    """A number literal, or an expression of number literals."""

    value: float

    @property
    def constant(self) -> float:
        return self.value

    def run(self, context: EvaluationContext) -> float:  # noqa: ARG002 - the same at any moment
        return self.value


class _OfNumbers(ScalarPlan):
    """A function of two numbers."""

    _function: Callable[[float, float], float]
    _lhs: ScalarPlan
    _rhs: ScalarPlan

    def run(self, context: EvaluationContext) -> float:
        return self._function(self._lhs.run(context), self._rhs.run(context))


def scalar_operation(name: str, lhs: ScalarPlan, rhs: ScalarPlan) -> ScalarPlan:
    """Plan an operation of two numbers; a comparison gives 1 or 0."""
    function = NUMBER_FUNCTIONS[name]
    if lhs.constant is not None and rhs.constant is not None:
        return Constant(function(lhs.constant, rhs.constant))
    return _OfNumbers(function, lhs, rhs)


def _as_number(compare: Callable[[float, float], bool]) -> Callable[[float, float], float]:
    return lambda lhs, rhs: 1.0 if compare(lhs, rhs) else 0.0


NUMBER_FUNCTIONS = {**ARITHMETIC, **{name: _as_number(compare) for name, compare in COMPARISONS.items()}}
"""Operators as functions that give a number: a comparison gives 1 or 0."""


def vector_with_scalar(
    space: LabelSpace, name: str, vector: VectorPlan, scalar: ScalarPlan, *, swapped: bool, as_bool: bool
) -> VectorPlan:
    """Plan an operation of a vector and a number; `swapped` if the number is on the left."""
    if name in COMPARISONS and not as_bool:
        return _Filter(vector, scalar, swapped, COMPARISONS[name])
    function = NUMBER_FUNCTIONS[name]
    return _WithNumber(vector, scalar, swapped, function, Derivation(space, drop_metadata))


class _VectorAndNumber(VectorPlan):
    """A vector and a number; `_swapped` if the number is on the left."""

    _vector: VectorPlan
    _scalar: ScalarPlan
    _swapped: bool

    @property
    def certain(self) -> bool:
        return self._vector.certain and self._scalar.constant is not None

    def is_barren(self, context: EvaluationContext) -> bool:
        return self._scalar.constant is not None and self._vector.is_barren(context)


class _WithNumber(_VectorAndNumber):
    """A function of each value and one number."""

    _function: Callable[[float, float], float]
    _nameless: Derivation

    def run(self, context: EvaluationContext) -> Elements:
        number = self._scalar.run(context)
        operands = context.budget.iterate(self._vector.run(context))
        function, nameless = self._function, self._nameless.derive
        if self._swapped:
            elements = [(nameless(labels), function(number, value)) for labels, value in operands]
        else:
            elements = [(nameless(labels), function(value, number)) for labels, value in operands]
        return refuse_same_labels(elements)


class _Filter(_VectorAndNumber):
    """The elements for which the comparison holds, with their own values and names."""

    _compare: Callable[[float, float], bool]

    def run(self, context: EvaluationContext) -> Elements:
        number = self._scalar.run(context)
        elements = context.budget.iterate(self._vector.run(context))
        compare = self._compare
        if self._swapped:
            return [element for element in elements if compare(number, element[1])]
        return [element for element in elements if compare(element[1], number)]


Operand = Union[ScalarPlan, VectorPlan]


class _HeldScalar(ScalarPlan):
    """A plan that is evaluated before its result is needed."""

    _plan: ScalarPlan
    _result: float = 0.0

    def evaluate(self, context: EvaluationContext) -> None:
        self._result = self._plan.run(context)

    def run(self, context: EvaluationContext) -> float:  # noqa: ARG002 - `evaluate` had it
        return self._result


class _HeldVector(VectorPlan):
    """A plan that is evaluated before its result is needed, and releases it then."""

    _plan: VectorPlan
    _result: Elements | None = None
    _barren: bool = False

    def evaluate(self, context: EvaluationContext) -> None:
        self._result = self._plan.run(context)

    def check_barren(self, context: EvaluationContext) -> None:
        """Find out in advance whether it is barren: the plans of a row do not ask each other."""
        self._barren = self._plan.is_barren(context)

    def is_barren(self, context: EvaluationContext) -> bool:
        del context
        return self._barren

    def run(self, context: EvaluationContext) -> Elements:  # noqa: ARG002 - `evaluate` had it
        result, self._result = self._result, None
        assert result is not None, "the row takes it first, and asks once"
        return result


_Steps = tuple[Union[_HeldScalar, _HeldVector], ...]


class _ScalarRow(ScalarPlan):
    """Numbers from left to right."""

    _steps: _Steps
    _last: ScalarPlan

    def run(self, context: EvaluationContext) -> float:
        for step in self._steps:
            step.evaluate(context)
        return self._last.run(context)


class _VectorRow(VectorPlan):
    """Vectors, and numbers among them, from left to right."""

    _steps: _Steps
    _last: VectorPlan

    def is_barren(self, context: EvaluationContext) -> bool:
        for step in self._steps:
            if isinstance(step, _HeldVector):
                step.check_barren(context)
        return self._last.is_barren(context)

    def run(self, context: EvaluationContext) -> Elements:
        for step in self._steps:
            step.evaluate(context)
        return self._last.run(context)


class OperatorRow:
    """Makes one plan of operations from left to right, each of which takes the previous result."""

    def __init__(self) -> None:
        self._steps: list[_HeldScalar | _HeldVector] = []

    def hold(self, plan: Operand) -> Operand:
        """Add a plan to the row, and return the plan that stands for its result in the next operation."""
        if isinstance(plan, ScalarPlan) and plan.constant is not None:
            return plan
        held = _HeldVector(plan) if isinstance(plan, VectorPlan) else _HeldScalar(plan)
        self._steps.append(held)
        return held

    def close(self, plan: Operand) -> Operand:
        """Return the plan of the whole row, of which `plan` is the last operation."""
        if not self._steps or (isinstance(plan, ScalarPlan) and plan.constant is not None):
            return plan
        steps = tuple(self._steps)
        return _VectorRow(steps, plan) if isinstance(plan, VectorPlan) else _ScalarRow(steps, plan)
