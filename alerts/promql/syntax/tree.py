"""The nodes of a parsed query, in Prometheus's terms.

Each knows its offset in the text (`at`), and the type of what it evaluates to. Durations are in nanoseconds, as
Prometheus keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import ClassVar, Union

from msgspec import Struct

from alerts.promql.aggregations import Grouping
from alerts.promql.labels import Matcher
from alerts.promql.matching import Matching


class ValueType(Enum):
    """What a part of a query evaluates to, in the words of Prometheus's errors."""

    SCALAR = "scalar"
    STRING = "string"
    VECTOR = "instant vector"
    MATRIX = "range vector"


class NumberLiteral(Struct, frozen=True, eq=False):
    """A number with its sign; a duration such as `5m` is a number of seconds."""

    value: float
    at: int
    value_type: ClassVar[ValueType] = ValueType.SCALAR


class StringLiteral(Struct, frozen=True, eq=False):
    """A quoted text with its escapes resolved."""

    value: str
    at: int
    value_type: ClassVar[ValueType] = ValueType.STRING


Bound = Union[str, float]
"""The instant to which `@` binds a selector or subquery: "start", "end", or seconds since the epoch."""


class VectorSelector(Struct, frozen=True, eq=False):
    """A metric's name, matchers between braces, or both; the name is the first matcher as well."""

    name: str
    matchers: tuple[Matcher, ...]
    at: int
    offset_ns: int = 0
    bound: Bound | None = None
    value_type: ClassVar[ValueType] = ValueType.VECTOR


class MatrixSelector(Struct, frozen=True, eq=False):
    """A selector with a range, whose offset and `@` are those of the selector within."""

    selector: VectorSelector
    range_ns: int
    at: int
    value_type: ClassVar[ValueType] = ValueType.MATRIX


class Subquery(Struct, frozen=True, eq=False):
    """A query evaluated at the steps of a range; `step_ns`: None if the text gives no step."""

    inner: Expression
    range_ns: int
    step_ns: int | None
    at: int
    step_at: int
    offset_ns: int = 0
    bound: Bound | None = None
    value_type: ClassVar[ValueType] = ValueType.MATRIX


class UnaryExpr(Struct, frozen=True, eq=False):
    """A sign before anything but a number."""

    operator: str
    operand: Expression
    at: int
    value_type: ValueType


class BinaryExpr(Struct, frozen=True, eq=False):
    """An operator between two operands. In a row of operators, `lhs` is everything before the last one."""

    operator: str
    lhs: Expression
    rhs: Expression
    matching: Matching
    as_bool: bool
    at: int
    operator_at: int
    value_type: ValueType


class ParenExpr(Struct, frozen=True, eq=False):
    """Something in parentheses."""

    inner: Expression
    at: int
    value_type: ValueType


class AggregateExpr(Struct, frozen=True, eq=False):
    """An aggregation operator with its grouping; `parameter` for those that take one."""

    operator: str
    parameter: Expression | None
    operand: Expression
    grouping: Grouping
    at: int
    value_type: ClassVar[ValueType] = ValueType.VECTOR


class FunctionCall(Struct, frozen=True, eq=False):
    """A function by name, with its arguments."""

    name: str
    arguments: tuple[Expression, ...]
    at: int
    value_type: ValueType


Expression = Union[
    NumberLiteral,
    StringLiteral,
    VectorSelector,
    MatrixSelector,
    Subquery,
    UnaryExpr,
    BinaryExpr,
    ParenExpr,
    AggregateExpr,
    FunctionCall,
]


def parts_of(tree: Expression) -> Iterator[Expression]:
    """Yield every node of a tree, mostly in the order of the text; without recursion, since trees may be deep."""
    waiting: list[Expression] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(_within(node)))


def _within(node: Expression) -> list[Expression]:
    if isinstance(node, BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, AggregateExpr):
        return [*([] if node.parameter is None else [node.parameter]), node.operand]
    if isinstance(node, FunctionCall):
        return [*node.arguments]
    if isinstance(node, (Subquery, ParenExpr)):
        return [node.inner]
    if isinstance(node, UnaryExpr):
        return [node.operand]
    return [node.selector] if isinstance(node, MatrixSelector) else []
