"""Compiles the tree of a query to a plan. PromQL that is not supported here is rejected by name."""

from __future__ import annotations

import math
from typing import NamedTuple, NoReturn

from alerts.promql import operators, selectors
from alerts.promql.aggregations import REDUCTIONS, SELECTIONS, count_values, quantile, reduction, selection
from alerts.promql.function_plans import compile_function
from alerts.promql.instant_functions import check_name
from alerts.promql.labels import EvaluationError, Matcher, PromqlError, line_and_column
from alerts.promql.matching import SET_OPERATORS, set_operation, vector_operation
from alerts.promql.operators import Operand, OperatorRow
from alerts.promql.plan import (
    LOOKBACK_MS,
    EvaluationContext,
    LabelSpace,
    MatrixPlan,
    Plan,
    ScalarPlan,
    StringPlan,
    VectorPlan,
)
from alerts.promql.syntax import parse
from alerts.promql.syntax.scanner import FlawError
from alerts.promql.syntax.tree import (
    AggregateExpr,
    BinaryExpr,
    Expression,
    FunctionCall,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    Subquery,
    UnaryExpr,
    VectorSelector,
)

_NO_RESULT = "rule result is not a vector or scalar: give a range vector to a function such as rate()"
_LARGEST = 2.0**63
_NANOSECONDS = 1_000_000  # of a millisecond


class Compiled(NamedTuple):
    """The result of compiling."""

    plan: ScalarPlan | VectorPlan | StringPlan
    space: LabelSpace
    selectors: list[selectors.Selector]
    doom: tuple[str, ...]
    """Why each evaluation fails, if it does."""


def compile_text(text: str, default_step_ms: int) -> Compiled:
    """Parse a query and plan its evaluation."""
    tree = parse(text)
    compiler = Compiler(default_step_ms)
    try:
        plan = compiler.compile(tree)
        if isinstance(plan, StringPlan) and isinstance(tree, ParenExpr):
            plan = compiler.doomed(FlawError(tree.at, "a string in parentheses is not a result, as in Prometheus"))
        if isinstance(plan, MatrixPlan):
            plan = compiler.doomed(FlawError(tree.at, _NO_RESULT))
    except FlawError as flaw:
        raise PromqlError(flaw.problem, position=line_and_column(text, flaw.at)) from None
    doom = tuple(str(PromqlError(flaw.problem, position=line_and_column(text, flaw.at))) for flaw in compiler.dooms)
    return Compiled(plan, compiler.space, compiler.needs(), doom)


def timing_of(node: VectorSelector | Subquery) -> selectors.Timing:
    """Return a selector's offset, and the instant to which `@` binds it: a fixed one, or the query's."""
    offset_ms = _milliseconds(node.offset_ns)
    if node.bound is None:
        return selectors.Timing(offset_ms, at_query=False)
    if isinstance(node.bound.instant, str):
        return selectors.Timing(offset_ms, at_query=True)
    return selectors.Timing(offset_ms, at_query=False, fixed_ms=_whole_milliseconds(node.bound.instant))


def _whole_milliseconds(seconds: float) -> int:
    """Return the nearest millisecond, halves away from zero; out of 64 bits it is far in the past, as on x86-64."""
    scaled = seconds * 1000
    if not abs(scaled) < _LARGEST:
        return -int(_LARGEST)
    return int(math.copysign(math.floor(abs(scaled) + 0.5), scaled))


def _milliseconds(nanoseconds: int) -> int:
    """Return a duration in whole milliseconds, rounded towards zero."""
    return nanoseconds // _NANOSECONDS if nanoseconds >= 0 else -(-nanoseconds // _NANOSECONDS)


class _FailingVector(VectorPlan):
    """A query that Prometheus accepts, but fails to evaluate every time."""

    __slots__ = ("_flaw",)

    def __init__(self, flaw: FlawError) -> None:
        self._flaw = flaw

    def run(self, moment: EvaluationContext) -> NoReturn:  # noqa: ARG002 - at any moment
        raise EvaluationError(self._flaw.problem)


class _FailingMatrix(MatrixPlan):
    """The same for a range vector."""

    __slots__ = ("_flaw",)

    def __init__(self, flaw: FlawError) -> None:
        self._flaw = flaw

    def run(self, moment: EvaluationContext) -> NoReturn:  # noqa: ARG002 - at any moment
        raise EvaluationError(self._flaw.problem)


class Compiler:
    """Compiles the nodes of one query, and records what its selectors read."""

    def __init__(self, default_step_ms: int) -> None:
        self.space: LabelSpace = LabelSpace()
        self._default_step_ms = default_step_ms
        self._reach_ms: dict[tuple[Matcher, ...], tuple[int, int]] = {}  # and the history, see `Selector`
        self.dooms: list[FlawError] = []
        self._outer_ms = 0  # how far back the subqueries around the current node already look
        self._fixed = False  # whether one of them looks at a fixed time

    def doomed(self, flaw: FlawError) -> VectorPlan:
        """Plan a query that Prometheus accepts, but fails to evaluate every time."""
        return _FailingVector(self._note_doom(flaw))

    def _note_doom(self, flaw: FlawError) -> FlawError:
        self.dooms.append(flaw)
        return flaw

    def needs(self) -> list[selectors.Selector]:
        """Return each different selector with how far back it reads."""
        return [
            selectors.Selector(matchers, reach / 1000, history / 1000)
            for matchers, (reach, history) in self._reach_ms.items()
        ]

    def compile(self, node: Expression) -> Plan:
        """Plan a node of any kind."""
        if isinstance(node, VectorSelector):
            return selectors.instant_selector(self.space, *self.instant(node))
        if isinstance(node, NumberLiteral):
            return operators.Constant(node.value)
        if isinstance(node, BinaryExpr):
            return self._row(node)
        if isinstance(node, AggregateExpr):
            return self._aggregate(node)
        if isinstance(node, FunctionCall):
            return compile_function(self, node)
        if isinstance(node, MatrixSelector):
            return self._range(node)
        if isinstance(node, Subquery):
            return self._subquery(node)
        if isinstance(node, ParenExpr):
            return self.compile(node.inner)
        if isinstance(node, UnaryExpr):
            return self._signed(node)
        return StringPlan(node.value)

    def vector(self, node: Expression) -> VectorPlan:
        """Plan a node that evaluates to an instant vector."""
        plan = self.compile(node)
        assert isinstance(plan, VectorPlan), "the types have been checked"
        return plan

    def matrix(self, node: Expression) -> MatrixPlan:
        """Plan a node that evaluates to a range vector."""
        plan = self.compile(node)
        assert isinstance(plan, MatrixPlan), "the types have been checked"
        return plan

    def scalar(self, node: Expression) -> ScalarPlan:
        """Plan a node that evaluates to a number."""
        plan = self.compile(node)
        assert isinstance(plan, ScalarPlan), "the types have been checked"
        return plan

    def string(self, node: Expression) -> str:
        """Return the text of a node that is a string."""
        plan = self.compile(node)
        assert isinstance(plan, StringPlan), "the types have been checked"
        return plan.text

    def instant(self, node: VectorSelector) -> tuple[tuple[Matcher, ...], selectors.Timing]:
        """Return matchers and timing of an instant selector, and record that it reads its look-back."""
        timing, matchers = self._selected(timing_of(node)), node.matchers
        self._note(matchers, timing, LOOKBACK_MS, 0)
        return matchers, timing

    def _selected(self, timing: selectors.Timing) -> selectors.Timing:
        """Return a selector's timing, with whether its samples may be older than all that is kept."""
        of_fixed = timing.fixed_ms is not None or (self._fixed and not timing.at_query)
        return timing._replace(of_fixed=of_fixed)

    def _range(self, node: MatrixSelector) -> MatrixPlan:
        matchers, timing = node.selector.matchers, self._selected(timing_of(node.selector))
        range_ms = _milliseconds(node.range_ns)
        self._note(matchers, timing, range_ms, range_ms)
        return selectors.RangeSelector(matchers, timing, range_ms)

    def _note(self, matchers: tuple[Matcher, ...], timing: selectors.Timing, reach_ms: int, range_ms: int) -> None:
        # A fixed time has no distance from now: nothing is kept for it.
        ago = 0 if timing.of_fixed else (0 if timing.at_query else self._outer_ms) + timing.offset_ms
        reach, history = self._reach_ms.get(matchers, (0, 0))
        self._reach_ms[matchers] = (max(reach, ago + reach_ms), max(history, ago + range_ms))

    def _subquery(self, node: Subquery) -> MatrixPlan:
        timing, range_ms = timing_of(node), _milliseconds(node.range_ns)
        step_ms = _milliseconds(node.step_ns) if node.step_ns else self._default_step_ms
        outer, fixed = self._outer_ms, self._fixed
        self._outer_ms = (0 if timing.at_query else outer) + timing.offset_ms + range_ms
        self._fixed = timing.fixed_ms is not None or (fixed and not timing.at_query)
        inner = self.compile(node.inner)
        assert isinstance(inner, VectorPlan), "the types have been checked"
        self._outer_ms, self._fixed = outer, fixed
        if step_ms < 1:
            flaw = FlawError(node.step_at, "the step of a subquery must be at least 1ms: Prometheus divides by zero")
            return _FailingMatrix(self._note_doom(flaw))
        return selectors.SubqueryPlan(inner, timing, range_ms, step_ms)

    def _signed(self, node: UnaryExpr) -> Plan:
        plan = self.compile(node.operand)
        if node.operator == "+":
            return plan
        if isinstance(plan, ScalarPlan):
            return operators.negate_scalar(plan)
        assert isinstance(plan, VectorPlan), "the types have been checked"
        return operators.negate_vector(self.space, plan)

    def _row(self, node: BinaryExpr) -> Plan:
        """Plan a row of operators, the leftmost of which is innermost in the tree."""
        operations = [node]
        while isinstance(left := operations[-1].left, BinaryExpr):
            operations.append(left)
        row = OperatorRow()
        plan = self._operand(operations[-1].left)
        for count, operation in enumerate(reversed(operations)):
            left_plan = row.hold(plan) if count else plan
            plan = self._operation(operation, left_plan, self._operand(operation.right))
        return row.close(plan)

    def _operand(self, node: Expression) -> Operand:
        plan = self.compile(node)
        assert isinstance(plan, (ScalarPlan, VectorPlan)), "the types have been checked"
        return plan

    def _operation(self, node: BinaryExpr, left: Operand, right: Operand) -> Operand:
        name, as_bool = node.operator, node.as_bool
        if isinstance(left, ScalarPlan) and isinstance(right, ScalarPlan):
            return operators.scalar_operation(name, left, right)
        if isinstance(left, VectorPlan) and isinstance(right, ScalarPlan):
            return operators.vector_with_scalar(self.space, name, left, right, swapped=False, as_bool=as_bool)
        if isinstance(left, ScalarPlan):
            assert isinstance(right, VectorPlan), "two scalars have been dealt with"
            return operators.vector_with_scalar(self.space, name, right, left, swapped=True, as_bool=as_bool)
        assert isinstance(right, VectorPlan), "a scalar has been dealt with"
        matching = node.matching
        if name in SET_OPERATORS:
            return set_operation(self.space, name, left, right, matching)
        return vector_operation(self.space, name, left, right, matching, as_bool=as_bool)

    def _aggregate(self, node: AggregateExpr) -> VectorPlan:
        name, parameter, grouping = node.operator, node.parameter, node.grouping
        vector = self.vector(node.operand)
        if name in REDUCTIONS:
            return reduction(self.space, REDUCTIONS[name], vector, grouping)
        assert parameter is not None, "the parser asks for it"
        if name in SELECTIONS:
            return selection(self.space, vector, self.scalar(parameter), grouping, largest=name == "topk")
        if name == "quantile":
            return quantile(self.space, self.scalar(parameter), vector, grouping)
        label = self.string(parameter)
        try:
            check_name(label, "label name")
        except PromqlError as error:
            return self.doomed(FlawError(node.at, error.problem))
        return count_values(self.space, vector, label, grouping)
