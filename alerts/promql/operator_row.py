"""Rows of operators such as `a + b + c`, evaluated one after the other.

As nested plans they would need a call for each operator, and Python allows 1,000 nested calls,
while generated rules have rows of any length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from alerts.promql.plan import Elements, EvaluationContext, ScalarPlan, VectorPlan

Operand = Union[ScalarPlan, VectorPlan]


@dataclass(slots=True, eq=False, repr=False)
class _HeldScalar(ScalarPlan):
    """A plan that is evaluated before its result is needed."""

    _plan: ScalarPlan
    _result: float = 0.0

    def take(self, moment: EvaluationContext) -> None:
        self._result = self._plan.run(moment)

    def run(self, moment: EvaluationContext) -> float:  # noqa: ARG002 - it is the moment of `take`
        return self._result


@dataclass(slots=True, eq=False, repr=False)
class _HeldVector(VectorPlan):
    """A plan that is evaluated before its result is needed, and releases it then."""

    _plan: VectorPlan
    _result: Elements | None = None
    _barren: bool = False

    def take(self, moment: EvaluationContext) -> None:
        self._result = self._plan.run(moment)

    def look(self, moment: EvaluationContext) -> None:
        """Find out in advance whether it is barren: the plans of a row do not ask each other."""
        self._barren = self._plan.is_barren(moment)

    def is_barren(self, moment: EvaluationContext) -> bool:
        del moment
        return self._barren

    def run(self, moment: EvaluationContext) -> Elements:  # noqa: ARG002 - it is the moment of `take`
        result, self._result = self._result, None
        assert result is not None, "the row takes it first, and asks once"
        return result


_Steps = tuple[Union[_HeldScalar, _HeldVector], ...]


@dataclass(slots=True, eq=False, repr=False)
class _ScalarRow(ScalarPlan):
    """Numbers from left to right."""

    _steps: _Steps
    _last: ScalarPlan

    def run(self, moment: EvaluationContext) -> float:
        for step in self._steps:
            step.take(moment)
        return self._last.run(moment)


@dataclass(slots=True, eq=False, repr=False)
class _VectorRow(VectorPlan):
    """Vectors, and numbers among them, from left to right."""

    _steps: _Steps
    _last: VectorPlan

    def is_barren(self, moment: EvaluationContext) -> bool:
        for step in self._steps:
            if isinstance(step, _HeldVector):
                step.look(moment)
        return self._last.is_barren(moment)

    def run(self, moment: EvaluationContext) -> Elements:
        for step in self._steps:
            step.take(moment)
        return self._last.run(moment)


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
