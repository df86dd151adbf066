"""Prometheus's checks of a tree beyond its syntax: types, numbers of arguments, matchers that match something.

Each check looks at one node, whose parts have already been checked, and returns the first flaw or None. The functions
are those of Prometheus 3.5, with the types of their arguments and results, and whether a feature flag hides them.
"""

from typing import NamedTuple

from alerts.promql.labels import METRIC_NAME
from alerts.promql.matching import SET_OPERATORS
from alerts.promql.operators import COMPARISONS
from alerts.promql.syntax.literals import quoted
from alerts.promql.syntax.scanner import FlawError
from alerts.promql.syntax.tree import (
    AggregateExpr,
    BinaryExpr,
    Expression,
    FunctionCall,
    Subquery,
    UnaryExpr,
    ValueType,
    VectorSelector,
)

_SCALAR, _STRING, _VECTOR, _MATRIX = ValueType.SCALAR, ValueType.STRING, ValueType.VECTOR, ValueType.MATRIX


class Signature(NamedTuple):
    """The types of a function's arguments, and of its result.

    `least` arguments are required; without `most`, the last type may be repeated any number of times.
    """

    takes: tuple[ValueType, ...]
    gives: ValueType
    least: int
    most: int | None


def _fixed(*takes: ValueType, gives: ValueType = _VECTOR) -> Signature:
    return Signature(takes, gives, len(takes), len(takes))


def _optional(*takes: ValueType) -> Signature:
    return Signature(takes, _VECTOR, len(takes) - 1, len(takes))


_OF_VECTOR = """
abs absent acos acosh asin asinh atan atanh ceil cos cosh deg exp floor histogram_avg histogram_count histogram_stddev
histogram_stdvar histogram_sum ln log10 log2 rad sgn sin sinh sort sort_desc sqrt tan tanh timestamp
"""
_OF_MATRIX = """
absent_over_time avg_over_time changes count_over_time delta deriv idelta increase irate last_over_time max_over_time
min_over_time present_over_time rate resets stddev_over_time stdvar_over_time sum_over_time
"""
_OF_TIME = "day_of_month day_of_week day_of_year days_in_month hour minute month year"

SIGNATURES: dict[str, Signature] = {
    **dict.fromkeys(_OF_VECTOR.split(), _fixed(_VECTOR)),
    **dict.fromkeys(_OF_MATRIX.split(), _fixed(_MATRIX)),
    **dict.fromkeys(_OF_TIME.split(), _optional(_VECTOR)),
    "clamp": _fixed(_VECTOR, _SCALAR, _SCALAR),
    "clamp_max": _fixed(_VECTOR, _SCALAR),
    "clamp_min": _fixed(_VECTOR, _SCALAR),
    "histogram_fraction": _fixed(_SCALAR, _SCALAR, _VECTOR),
    "histogram_quantile": _fixed(_SCALAR, _VECTOR),
    "label_join": Signature((_VECTOR, _STRING, _STRING, _STRING), _VECTOR, least=3, most=None),
    "label_replace": _fixed(_VECTOR, _STRING, _STRING, _STRING, _STRING),
    "pi": _fixed(gives=_SCALAR),
    "predict_linear": _fixed(_MATRIX, _SCALAR),
    "quantile_over_time": _fixed(_SCALAR, _MATRIX),
    "round": _optional(_VECTOR, _SCALAR),
    "scalar": _fixed(_VECTOR, gives=_SCALAR),
    "time": _fixed(gives=_SCALAR),
    "vector": _fixed(_SCALAR),
}

EXPERIMENTAL_FUNCTIONS = (
    "double_exponential_smoothing", "info", "mad_over_time", "sort_by_label", "sort_by_label_desc",
    "ts_of_last_over_time", "ts_of_max_over_time", "ts_of_min_over_time",
)  # fmt: skip
EXPERIMENTAL_AGGREGATIONS = ("limitk", "limit_ratio")
WITH_PARAMETER = ("topk", "bottomk", "quantile", "count_values")


_NUMERIC = (ValueType.SCALAR, ValueType.VECTOR)


def check_selector(node: VectorSelector) -> FlawError | None:
    """Check that a selector names a metric once, or has a matcher that rejects the empty text and so not everything."""
    if not node.name:
        if any(not matcher.matches("") for matcher in node.matchers):
            return None
        return FlawError(node.at, "vector selector must contain at least one non-empty matcher")
    for matcher in node.matchers[1:]:
        if matcher.name == METRIC_NAME:
            names = f"{quoted(node.name)} or {quoted(matcher.value)}"
            return FlawError(node.at, f"metric name must not be set twice: {names}")
    return None


def check_subquery(node: Subquery) -> FlawError | None:
    """Check that a subquery evaluates an instant vector."""
    inner_type = node.inner.value_type
    if inner_type is ValueType.VECTOR:
        return None
    return FlawError(node.at, f"subquery is only allowed on instant vector, got {inner_type.value} instead")


def check_unary(node: UnaryExpr) -> FlawError | None:
    """Check that only numbers have a sign."""
    if node.value_type in _NUMERIC:
        return None
    expected = "unary expression only allowed on expressions of type scalar or instant vector"
    return FlawError(node.at, f'{expected}, got "{node.value_type.value}"')


def check_binary(node: BinaryExpr) -> FlawError | None:
    """Check the operands: scalars and instant vectors; `bool`, matching and grouping only where they mean something."""
    lhs_type, rhs_type = node.lhs.value_type, node.rhs.value_type
    scalars = lhs_type is ValueType.SCALAR and rhs_type is ValueType.SCALAR
    vectors = lhs_type is ValueType.VECTOR and rhs_type is ValueType.VECTOR
    compares, matching = node.operator in COMPARISONS, node.matching
    if node.as_bool and not compares:
        return FlawError(node.operator_at, "bool modifier can only be used on comparison operators")
    if compares and not node.as_bool and scalars:
        return FlawError(node.operator_at, "comparisons between scalars must use BOOL modifier")
    twice = set(matching.labels).intersection(matching.include) if matching.on and matching.include else ()
    if twice:
        return FlawError(node.operator_at, f"label {quoted(min(twice))} must not occur in ON and GROUP clause at once")
    for side, side_type in ((node.lhs, lhs_type), (node.rhs, rhs_type)):
        if side_type not in _NUMERIC:
            return FlawError(side.at, "binary expression must contain only scalar and instant vector types")
    if not vectors and matching.labels:
        return FlawError(node.at, "vector matching only allowed between instant vectors")
    if node.operator in SET_OPERATORS:
        if not vectors:
            return FlawError(node.at, f'set operator "{node.operator}" not allowed in binary scalar expression')
        if matching.many:
            return FlawError(node.at, f'no grouping allowed for "{node.operator}" operation')
    return None


def check_aggregate(node: AggregateExpr) -> FlawError | None:
    """Check that an aggregation takes an instant vector; its parameter is a number, or a text for `count_values`."""
    required = ValueType.STRING if node.operator == "count_values" else ValueType.SCALAR
    flaw = _wrong_type(node.operand, ValueType.VECTOR, "aggregation expression")
    if flaw is None and node.parameter is not None:
        flaw = _wrong_type(node.parameter, required, "aggregation parameter")
    return flaw


def check_call(node: FunctionCall) -> FlawError | None:
    """Check that a call has the function's number of arguments, of the right types."""
    takes, _, least, most = SIGNATURES[node.name]
    count = len(node.arguments)
    if count < least or (most is not None and count > most):
        expected = f"{least}" if least == most else _missed_bound(count, least, most)
        return FlawError(node.at, f'expected {expected} argument(s) in call to "{node.name}", got {count}')
    for position, argument in enumerate(node.arguments):
        required = takes[min(position, len(takes) - 1)]
        flaw = _wrong_type(argument, required, f'call to function "{node.name}"')
        if flaw is not None:
            return flaw
    return None


def _missed_bound(count: int, least: int, most: int | None) -> str:
    return f"at least {least}" if count < least else f"at most {most}"


def _wrong_type(node: Expression, required: ValueType, context: str) -> FlawError | None:
    if node.value_type is required:
        return None
    return FlawError(node.at, f"expected type {required.value} in {context}, got {node.value_type.value}")
