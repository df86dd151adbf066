"""Compiles the tree of a query to a plan. PromQL that is not supported here is rejected by name."""

import math
from collections.abc import Callable
from functools import partial
from typing import NoReturn

from msgspec import Struct

from alerts.promql import instant_functions as instant
from alerts.promql import operators, selectors
from alerts.promql import range_functions as ranges
from alerts.promql.aggregations import (
    REDUCTIONS,
    SELECTIONS,
    CountValuesPlan,
    Grouping,
    ReductionPlan,
    SelectionPlan,
    largest_first,
    smallest_first,
)
from alerts.promql.histogram import HistogramFunction, bucket_fraction, bucket_quantile, drop_bucket_bound
from alerts.promql.labels import EvaluationError, Matcher, PromqlError, drop_metadata
from alerts.promql.matching import SET_OPERATORS, set_operation, vector_operation
from alerts.promql.numbers import DATE_FUNCTIONS, quantile
from alerts.promql.operators import Operand, OperatorRow
from alerts.promql.plan import (
    Derivation,
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
from alerts.regex import RegexLimitError

_LARGEST = 2.0**63
_NANOSECONDS = 1_000_000  # of a millisecond


def compile_text(
    text: str, default_step_ms: int
) -> tuple[ScalarPlan | VectorPlan, LabelSpace, list[selectors.Selector], str]:
    """Parse a query; return the plan of its evaluation, what it reads, and why each evaluation fails, if it does."""
    tree = parse(text)
    compiler = _Compiler(default_step_ms)
    try:
        plan = compiler.compile(tree)
        if isinstance(plan, (StringPlan, MatrixPlan)):
            remedy = ": give a range vector to a function such as rate()" if isinstance(plan, MatrixPlan) else ""
            plan = compiler.plan_failure(FlawError(tree.at, f"rule result is not a vector or scalar{remedy}"))
    except FlawError as flaw:
        raise flaw.in_query(text) from None
    first_flaw = compiler.first_failure
    inevitable_error = "" if first_flaw is None else str(first_flaw.in_query(text))
    reads = [selectors.Selector(matchers, history_ms / 1000) for matchers, history_ms in compiler.history_ms.items()]
    return plan, compiler.space, reads, inevitable_error


def _timing_of(node: VectorSelector | Subquery) -> selectors.Timing:
    """Return a selector's offset, and the instant to which `@` binds it: a fixed one, or the query's."""
    offset_ms = _milliseconds(node.offset_ns)
    if node.bound is None:
        return selectors.Timing(offset_ms, at_query=False)
    if isinstance(node.bound, str):
        return selectors.Timing(offset_ms, at_query=True)
    return selectors.Timing(offset_ms, at_query=False, fixed_ms=_whole_milliseconds(node.bound))


def _whole_milliseconds(seconds: float) -> int:
    """Return the nearest millisecond, halves away from zero; out of 64 bits it is far in the past, as on x86-64."""
    scaled = seconds * 1000
    if not abs(scaled) < _LARGEST:
        return -int(_LARGEST)
    return int(math.copysign(math.floor(abs(scaled) + 0.5), scaled))


def _milliseconds(nanoseconds: int) -> int:
    """Return a duration in whole milliseconds, rounded towards zero."""
    return nanoseconds // _NANOSECONDS if nanoseconds >= 0 else -(-nanoseconds // _NANOSECONDS)


class _Failing(Struct, eq=False):
    """A plan that fails every time: Prometheus accepts the query, but never evaluates it."""

    problem: str

    def run(self, context: EvaluationContext) -> NoReturn:  # noqa: ARG002 - at any moment
        raise EvaluationError(self.problem)


class _FailingVector(_Failing, VectorPlan):
    pass


class _FailingMatrix(_Failing, MatrixPlan):
    pass


class _Compiler:
    """Compiles the nodes of one query, and records what its selectors read."""

    def __init__(self, default_step_ms: int) -> None:
        self.space: LabelSpace = LabelSpace()
        self._default_step_ms = default_step_ms
        self.history_ms: dict[tuple[Matcher, ...], int] = {}  # of each selector
        self.first_failure: FlawError | None = None
        self._outer_ms = 0  # how far back the subqueries around the current node already look
        self._fixed = False  # whether one of them looks at a fixed time

    def plan_failure(self, flaw: FlawError) -> VectorPlan:
        """Plan a query that Prometheus accepts, but fails to evaluate every time."""
        self.first_failure = self.first_failure or flaw
        return _FailingVector(flaw.problem)

    def compile(self, node: Expression) -> Plan:
        """Plan a node of any kind."""
        if isinstance(node, VectorSelector):
            return selectors.InstantSelector(*self._instant(node))
        if isinstance(node, NumberLiteral):
            return operators.Constant(node.value)
        if isinstance(node, BinaryExpr):
            return self._row(node)
        if isinstance(node, AggregateExpr):
            return self._aggregate(node)
        if isinstance(node, FunctionCall):
            return self._function(node)
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

    def _instant(self, node: VectorSelector) -> tuple[tuple[Matcher, ...], selectors.Timing]:
        """Return matchers and timing of an instant selector, and record that it reads its look-back."""
        timing, matchers = self._selected(_timing_of(node)), node.matchers
        self._record_selector(matchers, timing, 0)
        return matchers, timing

    def _selected(self, timing: selectors.Timing) -> selectors.Timing:
        """Return a selector's timing, with whether its samples may be older than all that is kept."""
        of_fixed = timing.fixed_ms is not None or (self._fixed and not timing.at_query)
        return timing._replace(of_fixed=of_fixed)

    def _range(self, node: MatrixSelector) -> MatrixPlan:
        matchers, timing = node.selector.matchers, self._selected(_timing_of(node.selector))
        range_ms = _milliseconds(node.range_ns)
        self._record_selector(matchers, timing, range_ms)
        return selectors.RangeSelector(matchers, timing, range_ms)

    def _record_selector(self, matchers: tuple[Matcher, ...], timing: selectors.Timing, range_ms: int) -> None:
        # A fixed time has no distance from now: nothing is kept for it.
        ago = 0 if timing.of_fixed else (0 if timing.at_query else self._outer_ms) + timing.offset_ms
        self.history_ms[matchers] = max(self.history_ms.get(matchers, 0), ago + range_ms)

    def _subquery(self, node: Subquery) -> MatrixPlan:
        timing, range_ms = _timing_of(node), _milliseconds(node.range_ns)
        step_ms = _milliseconds(node.step_ns) if node.step_ns else self._default_step_ms
        outer, fixed = self._outer_ms, self._fixed
        self._outer_ms = (0 if timing.at_query else outer) + timing.offset_ms + range_ms
        self._fixed = timing.fixed_ms is not None or (fixed and not timing.at_query)
        inner = self.compile(node.inner)  # not `vector`, which would be another nested call
        assert isinstance(inner, VectorPlan), "the types have been checked"
        self._outer_ms, self._fixed = outer, fixed
        if step_ms < 1:
            flaw = FlawError(node.step_at, "the step of a subquery must be at least 1ms: Prometheus divides by zero")
            self.first_failure = self.first_failure or flaw
            return _FailingMatrix(flaw.problem)
        return selectors.SubqueryPlan(inner, timing, range_ms, step_ms)

    def _signed(self, node: UnaryExpr) -> Plan:
        plan = self.compile(node.operand)
        if node.operator == "+":
            return plan
        if isinstance(plan, ScalarPlan):
            return operators.scalar_operation("*", operators.Constant(-1.0), plan)
        assert isinstance(plan, VectorPlan), "the types have been checked"
        return instant.Relabelled(plan, self._nameless(), True)

    def _row(self, node: BinaryExpr) -> Plan:
        """Plan a row of operators, the leftmost of which is innermost in the tree."""
        operations = [node]
        while isinstance(lhs := operations[-1].lhs, BinaryExpr):
            operations.append(lhs)
        row = OperatorRow()
        plan = self._operand(operations[-1].lhs)
        for count, operation in enumerate(reversed(operations)):
            lhs_plan = row.hold(plan) if count else plan
            plan = self._operation(operation, lhs_plan, self._operand(operation.rhs))
        return row.close(plan)

    def _operand(self, node: Expression) -> Operand:
        plan = self.compile(node)
        assert isinstance(plan, (ScalarPlan, VectorPlan)), "the types have been checked"
        return plan

    def _operation(self, node: BinaryExpr, lhs: Operand, rhs: Operand) -> Operand:
        name, as_bool = node.operator, node.as_bool
        if isinstance(lhs, ScalarPlan) and isinstance(rhs, ScalarPlan):
            return operators.scalar_operation(name, lhs, rhs)
        if isinstance(lhs, VectorPlan) and isinstance(rhs, ScalarPlan):
            return operators.vector_with_scalar(self.space, name, lhs, rhs, swapped=False, as_bool=as_bool)
        if isinstance(lhs, ScalarPlan):
            assert isinstance(rhs, VectorPlan), "two scalars have been dealt with"
            return operators.vector_with_scalar(self.space, name, rhs, lhs, swapped=True, as_bool=as_bool)
        assert isinstance(rhs, VectorPlan), "a scalar has been dealt with"
        matching = node.matching
        if name in SET_OPERATORS:
            return set_operation(self.space, name, lhs, rhs, matching)
        return vector_operation(self.space, name, lhs, rhs, matching, as_bool=as_bool)

    def _aggregate(self, node: AggregateExpr) -> VectorPlan:
        name, parameter, grouping = node.operator, node.parameter, node.grouping
        vector = self.vector(node.operand)
        groups = Derivation(self.space, grouping.group) if grouping.without or grouping.labels else None
        if name in REDUCTIONS:
            return ReductionPlan(self.space, vector, groups, REDUCTIONS[name])
        assert parameter is not None, "the parser asks for it"
        if name in SELECTIONS:
            rank = largest_first if name == "topk" else smallest_first
            return SelectionPlan(vector, self.scalar(parameter), Derivation(self.space, grouping.group), rank)
        if name == "quantile":
            return ReductionPlan(self.space, vector, groups, quantile, self.scalar(parameter))
        label = self.string(parameter)
        try:
            instant.check_name(label, "label name")
        except PromqlError as error:
            return self.plan_failure(FlawError(node.at, error.problem))
        self.space.lasting = False
        by = grouping if grouping.without else Grouping(without=False, labels=(*grouping.labels, label))
        return CountValuesPlan(self.space, vector, label, by)

    def _nameless(self) -> Derivation:
        return Derivation(self.space, drop_metadata)

    def _each_value(
        self, function: Callable[..., instant.ValueFunction | None], vector: VectorPlan, *numbers: ScalarPlan
    ) -> VectorPlan:
        return instant.EachValue(function, vector, numbers, self._nameless())

    def of_windows(
        self, function: ranges.RangeFunction, matrix: MatrixPlan, argument: ScalarPlan | None = None
    ) -> VectorPlan:
        nameless = None if function is ranges.last_over_time else self._nameless()
        return ranges.OfWindows(function, matrix, argument, nameless)

    def _function(self, call: FunctionCall) -> Plan:
        """Plan a function call, by the function's name and the types of its arguments."""
        name, arguments = call.name, call.arguments
        if name in ranges.RANGE_FUNCTIONS:
            return self.of_windows(ranges.RANGE_FUNCTIONS[name], self.matrix(arguments[0]))
        function = instant.VALUE_FUNCTIONS.get(name) or DATE_FUNCTIONS.get(name)
        if function is not None:
            vector = self.vector(arguments[0]) if arguments else instant.VectorOf(self.space, instant.TimePlan())
            return self._each_value(lambda: function, vector)
        if name in instant.NUMBERED_FUNCTIONS:
            numbers = map(self.scalar, arguments[1:])
            return self._each_value(instant.NUMBERED_FUNCTIONS[name], self.vector(arguments[0]), *numbers)
        if name not in _PLANS:
            raise FlawError(call.at, f"function {name}() is not supported here; a Prometheus server evaluates it")
        try:
            return _PLANS[name](self, *arguments)
        except PromqlError as error:
            return self.plan_failure(FlawError(call.at, error.problem))

    def absent(self, argument: Expression) -> Plan:
        argument = _unwrapped(argument)
        selector = argument.selector if isinstance(argument, MatrixSelector) else argument
        matchers = selector.matchers if isinstance(selector, VectorSelector) else ()
        plan = self.compile(argument)
        assert isinstance(plan, (VectorPlan, MatrixPlan)), "the types have been checked"
        return instant.Absent(self.space, instant.fixed_labels(matchers), plan)

    def timestamp(self, argument: Expression) -> Plan:
        argument = _unwrapped(argument)
        if isinstance(argument, VectorSelector):
            return selectors.TimestampSelector(*self._instant(argument), self._nameless())
        return self._each_value(lambda now: lambda _value: now, self.vector(argument), instant.TimePlan())

    def label_replace(self, vector: Expression, *arguments: Expression) -> Plan:
        target, replacement, source, pattern = map(self.string, arguments)
        try:
            regex = instant.replace_regex(pattern)
        except RegexLimitError as error:
            raise FlawError(arguments[-1].at, f"regular expression in label_replace(): {error}") from None
        return instant.label_replace(
            self.space, self.vector(vector), target=target, replacement=replacement, source=source, regex=regex
        )

    def label_join(self, vector: Expression, *arguments: Expression) -> Plan:
        target, separator, *sources = map(self.string, arguments)
        return instant.label_join(self.space, self.vector(vector), target, separator, sources)

    def histogram_function(self, *arguments: Expression, function: Callable[..., float]) -> Plan:
        *numbers, vector = arguments
        parameters, plan = tuple(map(self.scalar, numbers)), self.vector(vector)
        return HistogramFunction(
            function, parameters, plan, Derivation(self.space, drop_bucket_bound), self._nameless()
        )


def _unwrapped(node: Expression) -> Expression:
    while isinstance(node, ParenExpr):
        node = node.inner
    return node


_PLANS: dict[str, Callable[..., Plan]] = {
    "absent": _Compiler.absent,
    "absent_over_time": _Compiler.absent,
    "histogram_fraction": partial(_Compiler.histogram_function, function=bucket_fraction),
    "histogram_quantile": partial(_Compiler.histogram_function, function=bucket_quantile),
    "label_join": _Compiler.label_join,
    "label_replace": _Compiler.label_replace,
    "pi": lambda _compiler: operators.Constant(math.pi),
    "predict_linear": lambda compiler, matrix, ahead: compiler.of_windows(
        ranges.predict_linear, matrix=compiler.matrix(matrix), argument=compiler.scalar(ahead)
    ),
    "quantile_over_time": lambda compiler, share, matrix: compiler.of_windows(
        ranges.quantile_over_time, argument=compiler.scalar(share), matrix=compiler.matrix(matrix)
    ),
    "scalar": lambda compiler, vector: instant.ScalarOf(compiler.vector(vector)),
    "sort": lambda compiler, vector: instant.SortedVector(compiler.vector(vector), smallest_first),
    "sort_desc": lambda compiler, vector: instant.SortedVector(compiler.vector(vector), largest_first),
    "time": lambda _compiler: instant.TimePlan(),
    "timestamp": _Compiler.timestamp,
    "vector": lambda compiler, number: instant.VectorOf(compiler.space, compiler.scalar(number)),
}
