"""A row of operators such as `a or b or c`, evaluated one after the other.

As nested closures they would need a call for each operator, and Python allows 1,000 nested calls,
while generated rules have rows of any length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Union

from alerts.promql.plan import Elements, EvaluationContext, ScalarPlan, VectorPlan

Operand = Union[ScalarPlan, VectorPlan]
_Result = TypeVar("_Result", float, Elements)


class OperatorRow:
    """Plans that are evaluated from left to right, each of which takes the result of the one before."""

    def __init__(self) -> None:
        self._steps: list[Callable[[EvaluationContext], None]] = []

    def hold(self, plan: Operand) -> Operand:
        """Have a plan evaluated, and return the plan that stands for its result in the next operation."""
        if isinstance(plan, VectorPlan):
            return VectorPlan(self._held(plan.run))
        return plan if plan.constant is not None else ScalarPlan(self._held(plan.run))

    def _held(self, run: Callable[[EvaluationContext], _Result]) -> Callable[[EvaluationContext], _Result]:
        results: list[_Result] = []

        def step(moment: EvaluationContext) -> None:
            results[:] = (run(moment),)  # in place of one that an error left there

        self._steps.append(step)
        return lambda _moment: results.pop()

    def close(self, plan: Operand) -> Operand:
        """Return the plan of the whole row, of which `plan` is the last operation."""
        if not self._steps:
            return plan
        if isinstance(plan, VectorPlan):
            return VectorPlan(self._whole(plan.run))
        return ScalarPlan(self._whole(plan.run), plan.constant)

    def _whole(self, last: Callable[[EvaluationContext], _Result]) -> Callable[[EvaluationContext], _Result]:
        steps = tuple(self._steps)

        def run(moment: EvaluationContext) -> _Result:
            for step in steps:
                step(moment)
            return last(moment)

        return run
