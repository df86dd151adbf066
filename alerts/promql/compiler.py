"""From a query's text to a plan: the only module that knows the parser library's tree.

The library has checked the types by the time a tree arrives. What it accepts beyond Prometheus 3 or beyond what is
evaluated here (fill modifiers, alternative matchers, experimental functions) is refused by name.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import promql_parser as parser

from alerts.promql import operators, selectors
from alerts.promql.aggregations import REDUCTIONS, SELECTIONS, count_values, quantile, reduction, selection
from alerts.promql.errors import PromqlError
from alerts.promql.functions import compile_function
from alerts.promql.matchers import Matcher
from alerts.promql.matching import SET_OPERATORS, set_operation, vector_operation
from alerts.promql.modifiers import grouping_of, matchers_of, matching_of, milliseconds, refuse_fill, timing_of
from alerts.promql.plan import LOOKBACK_MS, LabelSpace, MatrixPlan, Plan, ScalarPlan, StringPlan, VectorPlan
from alerts.promql.position import find_open_bracket, find_syntax_error, find_token

_SYNTAX = "invalid promql query"
# How the library's complaints about the shape of a text begin; others are about the meaning of a text that has a shape.
_BROKEN = (_SYNTAX, "invalid syntax", "unclosed", "unexpected", "unterminated", "unknown escape", "bad number")


class Compiled(NamedTuple):
    """What compiling gives."""

    plan: ScalarPlan | VectorPlan | StringPlan
    space: LabelSpace
    selectors: list[selectors.Selector]


def compile_text(text: str, *, default_step_ms: int) -> Compiled:
    """Parse a query and plan its evaluation."""
    tree = _parse(text)
    compiler = Compiler(default_step_ms)
    try:
        plan = compiler.compile(tree)
        if isinstance(plan, MatrixPlan):
            raise PromqlError("a range vector is no result: give it to a function such as rate()", construct="[")
    except PromqlError as error:
        raise PromqlError(
            error.problem, construct=error.construct, position=find_token(text, error.construct)
        ) from None
    return Compiled(plan, compiler.space, compiler.needs())


def _parse(text: str) -> parser.Expr:
    try:
        return parser.parse(text)
    except ValueError as error:
        problem = str(error)
    if problem == _SYNTAX:
        raise PromqlError("syntax error", position=find_syntax_error(text, _has_shape))
    if problem.startswith(("unclosed", "unexpected end")):
        raise PromqlError(problem, position=find_open_bracket(text))
    named = problem.split("'")[1] if problem.count("'") >= 2 else re.split(": | for ", problem)[-1]
    raise PromqlError(problem, construct=named, position=find_token(text, named))


def _has_shape(text: str) -> bool:
    try:
        parser.parse(text)
    except ValueError as error:
        return not str(error).startswith(_BROKEN)
    return True


class Compiler:
    """Compiles the nodes of one query, and notes what its selectors read."""

    def __init__(self, default_step_ms: int) -> None:
        self.space: LabelSpace = LabelSpace()
        self._default_step_ms = default_step_ms
        self._reach_ms: dict[tuple[Matcher, ...], tuple[int, int]] = {}  # and the history, see `Selector`
        self._outer_ms = 0  # how far back the subqueries around the current node already look

    def needs(self) -> list[selectors.Selector]:
        """Return each different selector with how far back it reads."""
        return [
            selectors.Selector(matchers, reach / 1000, history / 1000)
            for matchers, (reach, history) in self._reach_ms.items()
        ]

    def compile(self, node: parser.Expr | None) -> Plan:
        """Plan a node of any kind."""
        if isinstance(node, parser.ParenExpr):
            return self.compile(node.expr)
        if isinstance(node, parser.NumberLiteral):
            return operators.constant(node.val)
        if isinstance(node, parser.StringLiteral):
            return StringPlan(node.val)
        if isinstance(node, parser.VectorSelector):
            return selectors.instant_selector(self.space, *self.instant(node))
        if isinstance(node, parser.MatrixSelector):
            return self._range(node)
        if isinstance(node, parser.SubqueryExpr):
            return self._subquery(node)
        if isinstance(node, parser.UnaryExpr):
            return self._negative(node)
        if isinstance(node, parser.BinaryExpr):
            return self._binary(node)
        if isinstance(node, parser.AggregateExpr):
            return self._aggregate(node)
        if isinstance(node, parser.Call):
            return compile_function(self, node)
        raise PromqlError(f"{type(node).__name__} {node} is not supported", construct=str(node))

    def vector(self, node: parser.Expr) -> VectorPlan:
        """Plan a node that the parser found to be an instant vector."""
        plan = self.compile(node)
        if not isinstance(plan, VectorPlan):
            raise PromqlError(f"{node} is not an instant vector", construct=str(node))
        return plan

    def matrix(self, node: parser.Expr) -> MatrixPlan:
        """Plan a node that the parser found to be a range vector."""
        plan = self.compile(node)
        if not isinstance(plan, MatrixPlan):
            raise PromqlError(f"{node} is not a range vector", construct=str(node))
        return plan

    def scalar(self, node: parser.Expr | None) -> ScalarPlan:
        """Plan a node that the parser found to be a number."""
        plan = self.compile(node)
        if not isinstance(plan, ScalarPlan):
            raise PromqlError(f"{node} is not a scalar", construct=str(node))
        return plan

    def string(self, node: parser.Expr | None) -> str:
        """Return the text of a node that the parser found to be a string."""
        plan = self.compile(node)
        if not isinstance(plan, StringPlan):
            raise PromqlError(f"{node} is not a string", construct=str(node))
        return plan.text

    def instant(self, node: parser.VectorSelector) -> tuple[tuple[Matcher, ...], selectors.Timing]:
        """Return matchers and timing of an instant selector, and note that it reads its look-back."""
        matchers, timing = matchers_of(node), timing_of(node)
        self._note(matchers, timing, LOOKBACK_MS, 0)
        return matchers, timing

    def _range(self, node: parser.MatrixSelector) -> MatrixPlan:
        matchers, timing = matchers_of(node.vector_selector), timing_of(node.vector_selector)
        range_ms = milliseconds(node.range)
        self._note(matchers, timing, range_ms, range_ms)
        return selectors.range_selector(self.space, matchers, timing, range_ms)

    def _note(self, matchers: tuple[Matcher, ...], timing: selectors.Timing, reach_ms: int, range_ms: int) -> None:
        ago = (0 if timing.at_query else self._outer_ms) + timing.offset_ms
        reach, history = self._reach_ms.get(matchers, (0, 0))
        self._reach_ms[matchers] = (max(reach, ago + reach_ms), max(history, ago + range_ms))

    def _subquery(self, node: parser.SubqueryExpr) -> MatrixPlan:
        timing, range_ms = timing_of(node), milliseconds(node.range)
        step_ms = self._default_step_ms if node.step is None else milliseconds(node.step)
        outer = self._outer_ms
        self._outer_ms = (0 if timing.at_query else outer) + timing.offset_ms + range_ms
        inner = self.vector(node.expr)
        self._outer_ms = outer
        return selectors.subquery(inner.run, timing, range_ms, step_ms)

    def _negative(self, node: parser.UnaryExpr) -> Plan:
        plan = self.compile(node.expr)
        if isinstance(plan, ScalarPlan):
            return operators.negate_scalar(plan)
        if isinstance(plan, VectorPlan):
            return operators.negate_vector(self.space, plan)
        raise PromqlError("only a scalar or an instant vector has a negative", construct="-")

    def _binary(self, node: parser.BinaryExpr) -> Plan:
        name = str(node.op)
        modifier = node.modifier
        as_bool = modifier is not None and modifier.return_bool
        refuse_fill(modifier)
        left, right = self.compile(node.lhs), self.compile(node.rhs)
        if name not in operators.ARITHMETIC and name not in operators.COMPARISONS and name not in SET_OPERATORS:
            raise PromqlError(f"operator {name} is not supported", construct=name)
        if isinstance(left, ScalarPlan) and isinstance(right, ScalarPlan):
            return operators.scalar_operation(name, left, right)
        if isinstance(left, VectorPlan) and isinstance(right, ScalarPlan):
            return operators.vector_with_scalar(self.space, name, left, right, swapped=False, as_bool=as_bool)
        if isinstance(left, ScalarPlan) and isinstance(right, VectorPlan):
            return operators.vector_with_scalar(self.space, name, right, left, swapped=True, as_bool=as_bool)
        if not isinstance(left, VectorPlan) or not isinstance(right, VectorPlan):
            raise PromqlError(f"operator {name} takes scalars and instant vectors", construct=name)
        matching = matching_of(modifier)
        if name in SET_OPERATORS:
            return set_operation(self.space, name, left, right, matching)
        return vector_operation(self.space, name, left, right, matching, as_bool=as_bool)

    def _aggregate(self, node: parser.AggregateExpr) -> VectorPlan:
        name = str(node.op)
        grouping = grouping_of(node.modifier)
        vector = self.vector(node.expr)
        if name in REDUCTIONS:
            return reduction(self.space, REDUCTIONS[name], vector, grouping)
        if name in SELECTIONS:
            return selection(self.space, vector, self.scalar(node.param), grouping, largest=name == "topk")
        if name == "quantile":
            return quantile(self.space, self.scalar(node.param), vector, grouping)
        if name == "count_values":
            label = self.string(node.param)
            if not label:
                raise PromqlError("count_values needs a label name, not an empty text", construct=name)
            return count_values(self.space, vector, label, grouping)
        raise PromqlError(f"aggregation {name} is not supported", construct=name)
