"""Selects the plan for a function call, by the types of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

from alerts.promql import instant_functions as instant
from alerts.promql import range_functions as ranges
from alerts.promql.histogram import histogram_fraction, histogram_quantile
from alerts.promql.instant_functions import label_join, label_replace, replace_regex
from alerts.promql.labels import Matcher, PromqlError
from alerts.promql.numbers import DATE_FUNCTIONS
from alerts.promql.operators import Constant
from alerts.promql.plan import LabelSpace, MatrixPlan, Plan, ScalarPlan, VectorPlan
from alerts.promql.selectors import Timing, timestamp_selector
from alerts.promql.syntax.scanner import FlawError
from alerts.promql.syntax.tree import Expression, FunctionCall, MatrixSelector, ParenExpr, VectorSelector
from alerts.regex import RegexLimitError

Arguments = Sequence[Expression]


class Operands(Protocol):
    """Compiles the arguments of a function; `doomed` plans one that fails in every evaluation."""

    space: LabelSpace

    def compile(self, node: Expression) -> Plan: ...
    def vector(self, node: Expression) -> VectorPlan: ...
    def matrix(self, node: Expression) -> MatrixPlan: ...
    def scalar(self, node: Expression) -> ScalarPlan: ...
    def string(self, node: Expression) -> str: ...
    def instant(self, node: VectorSelector) -> tuple[tuple[Matcher, ...], Timing]: ...
    def doomed(self, flaw: FlawError) -> VectorPlan: ...


def compile_function(compiler: Operands, call: FunctionCall) -> Plan:
    """Plan a function call."""
    name, arguments = call.name, call.arguments
    space = compiler.space
    if name in ranges.RANGE_FUNCTIONS:
        keep_name = name in ranges.NAME_KEEPERS
        matrix = compiler.matrix(arguments[0])
        return ranges.range_function(space, ranges.RANGE_FUNCTIONS[name], matrix, keep_name=keep_name)
    if name in instant.VALUE_FUNCTIONS:
        return instant.each_value(space, instant.VALUE_FUNCTIONS[name], compiler.vector(arguments[0]))
    if name in instant.BOUNDED_FUNCTIONS:
        bounds = [compiler.scalar(each) for each in arguments[1:]]
        return instant.with_bounds(space, instant.BOUNDED_FUNCTIONS[name], compiler.vector(arguments[0]), bounds)
    if name in DATE_FUNCTIONS:
        vector = compiler.vector(arguments[0]) if arguments else instant.VectorOf(space, instant.TimePlan())
        return instant.each_value(space, DATE_FUNCTIONS[name], vector)
    if name not in _SPECIAL:
        raise FlawError(call.at, f"function {name}() is not supported here; a Prometheus server evaluates it")
    try:
        return _SPECIAL[name](compiler, arguments)
    except PromqlError as error:
        return compiler.doomed(FlawError(call.at, error.problem))


def _quantile_over_time(compiler: Operands, arguments: Arguments) -> Plan:
    share, matrix = compiler.scalar(arguments[0]), compiler.matrix(arguments[1])
    return ranges.range_function(compiler.space, ranges.quantile_over_time, matrix, share)


def _predict_linear(compiler: Operands, arguments: Arguments) -> Plan:
    matrix, ahead = compiler.matrix(arguments[0]), compiler.scalar(arguments[1])
    return ranges.range_function(compiler.space, ranges.predict_linear, matrix, ahead)


def _absent(compiler: Operands, arguments: Arguments) -> Plan:
    argument = _unwrapped(arguments[0])
    matchers: tuple[Matcher, ...] = ()
    if isinstance(argument, VectorSelector):
        matchers = argument.matchers
    elif isinstance(argument, MatrixSelector):
        matchers = argument.selector.matchers
    plan = compiler.compile(argument)
    assert isinstance(plan, (VectorPlan, MatrixPlan)), "the types have been checked"
    return instant.absent(compiler.space, matchers, plan)


def _timestamp(compiler: Operands, arguments: Arguments) -> Plan:
    argument = _unwrapped(arguments[0])
    if isinstance(argument, VectorSelector):
        return timestamp_selector(compiler.space, *compiler.instant(argument))
    return instant.timestamps(compiler.space, compiler.vector(argument))


def _label_replace(compiler: Operands, arguments: Arguments) -> Plan:
    target, replacement, source, pattern = (compiler.string(each) for each in arguments[1:])
    try:
        regex = replace_regex(pattern)
    except RegexLimitError as error:
        raise FlawError(arguments[4].at, f"regular expression in label_replace(): {error}") from None
    vector = compiler.vector(arguments[0])
    return label_replace(compiler.space, vector, target=target, replacement=replacement, source=source, regex=regex)


def _label_join(compiler: Operands, arguments: Arguments) -> Plan:
    target, separator, *sources = (compiler.string(each) for each in arguments[1:])
    return label_join(compiler.space, compiler.vector(arguments[0]), target, separator, sources)


def _histogram_quantile(compiler: Operands, arguments: Arguments) -> Plan:
    return histogram_quantile(compiler.space, compiler.scalar(arguments[0]), compiler.vector(arguments[1]))


def _histogram_fraction(compiler: Operands, arguments: Arguments) -> Plan:
    lower, upper = compiler.scalar(arguments[0]), compiler.scalar(arguments[1])
    return histogram_fraction(compiler.space, lower, upper, compiler.vector(arguments[2]))


def _unwrapped(node: Expression) -> Expression:
    while isinstance(node, ParenExpr):
        node = node.inner
    return node


_SPECIAL: dict[str, Callable[[Operands, Arguments], Plan]] = {
    "absent": _absent,
    "absent_over_time": _absent,
    "histogram_fraction": _histogram_fraction,
    "histogram_quantile": _histogram_quantile,
    "label_join": _label_join,
    "label_replace": _label_replace,
    "pi": lambda _compiler, _arguments: Constant(math.pi),
    "predict_linear": _predict_linear,
    "quantile_over_time": _quantile_over_time,
    "scalar": lambda compiler, arguments: instant.ScalarOf(compiler.vector(arguments[0])),
    "sort": lambda compiler, arguments: instant.sorted_vector(compiler.vector(arguments[0]), descending=False),
    "sort_desc": lambda compiler, arguments: instant.sorted_vector(compiler.vector(arguments[0]), descending=True),
    "time": lambda _compiler, _arguments: instant.TimePlan(),
    "timestamp": _timestamp,
    "vector": lambda compiler, arguments: instant.VectorOf(compiler.space, compiler.scalar(arguments[0])),
}
