"""Parses the tokens of a query into a tree: recursive descent, with the operators by their precedence.

Syntax errors are raised where they occur; of the semantic errors, such as wrong types, the first one is
raised if the syntax is correct, as in Prometheus.
"""

from msgspec.structs import replace

from agent.lib.wording import nearest
from alerts.promql.aggregations import Grouping
from alerts.promql.labels import METRIC_NAME, Matcher
from alerts.promql.syntax import tree_checks
from alerts.promql.syntax.clauses import (
    METRIC_NAMES,
    Cursor,
    read_grouping,
    read_instant,
    read_matchers,
    read_matching,
    read_number,
    read_offset,
    read_span,
    read_string,
)
from alerts.promql.syntax.scanner import AGGREGATIONS, DEEPEST, FlawError, Scanner
from alerts.promql.syntax.tree import (
    AggregateExpr,
    BinaryExpr,
    Expression,
    FunctionCall,
    MatrixSelector,
    NumberLiteral,
    ParenExpr,
    StringLiteral,
    Subquery,
    UnaryExpr,
    ValueType,
    VectorSelector,
)

_PRECEDENCE = {
    "or": 1, "and": 2, "unless": 2, "==": 3, "!=": 3, "<": 3, ">": 3, "<=": 3, ">=": 3, "+": 4, "-": 4,
    "*": 5, "/": 5, "%": 5, "atan2": 5, "^": 6,
}  # fmt: skip
_SIGN_PRECEDENCE = _PRECEDENCE["^"]  # an operator that binds as tightly belongs to a sign's operand: -1 ^ 2 is -1


class Grammar:
    """Reads one query."""

    def __init__(self, text: str) -> None:
        self._cursor = Cursor(Scanner(text))
        self._depth = 0
        self._context = ""  # the context of errors: Prometheus only says if it is an aggregation
        self._flaw: FlawError | None = None

    def query(self) -> Expression:
        """Return the tree of the whole text. Raises FlawError."""
        cursor = self._cursor
        if cursor.kind == "end of input":
            raise FlawError(0, "no expression found in input")
        tree = self._expression(1)
        if cursor.kind != "end of input":
            cursor.unexpected()
        if self._flaw is not None:
            raise self._flaw
        return tree

    def _record_flaw(self, flaw: FlawError | None) -> None:
        if self._flaw is None:
            self._flaw = flaw

    def _expression(self, weakest: int) -> Expression:
        """Read operands and the operators between them that bind at least as tightly as `weakest`."""
        cursor = self._cursor
        self._depth += 1
        if self._depth > DEEPEST:
            raise FlawError(
                cursor.at, f"the query is nested more than {DEEPEST} levels deep; use recording rules for parts"
            )
        lhs = self._operand()
        while (strength := _PRECEDENCE.get(cursor.kind, 0)) >= weakest:
            operator, operator_at = cursor.kind, cursor.at
            cursor.advance()
            as_bool, matching = read_matching(cursor)
            rhs = self._expression(strength if operator == "^" else strength + 1)
            are_scalars = lhs.value_type is ValueType.SCALAR and rhs.value_type is ValueType.SCALAR
            value_type = ValueType.SCALAR if are_scalars else ValueType.VECTOR
            lhs = BinaryExpr(operator, lhs, rhs, matching, as_bool, lhs.at, operator_at, value_type)
            self._record_flaw(tree_checks.check_binary(lhs))
        self._depth -= 1
        return lhs

    def _operand(self) -> Expression:
        """Read an operand with its sign, or with what follows a selector."""
        cursor = self._cursor
        if cursor.kind in ("+", "-"):
            return self._signed()
        operand = self._named() if cursor.kind == "{" or cursor.kind in METRIC_NAMES else self._unnamed()
        while cursor.kind in ("[", "offset", "@"):
            if cursor.kind == "[":
                operand = self._ranged(operand)
            else:
                operand = self._offset(operand) if cursor.kind == "offset" else self._bound(operand)
        return operand

    def _signed(self) -> Expression:
        cursor = self._cursor
        sign, at = cursor.kind, cursor.at
        cursor.advance()
        operand = self._expression(_SIGN_PRECEDENCE)
        if isinstance(operand, NumberLiteral):
            return NumberLiteral(-operand.value if sign == "-" else operand.value, at)
        node = UnaryExpr(sign, operand, at, operand.value_type)
        self._record_flaw(tree_checks.check_unary(node))
        return node

    def _unnamed(self) -> Expression:
        """Read a literal, or something in parentheses."""
        cursor = self._cursor
        kind, at = cursor.kind, cursor.at
        if kind in ("number", "duration"):
            return NumberLiteral(read_number(cursor), at)
        if kind == "string":
            return StringLiteral(read_string(cursor), at)
        if kind != "(":
            cursor.unexpected(self._context)
        cursor.advance()
        inner = self._expression(1)
        if not cursor.skip(")"):
            cursor.unexpected(self._context)
        return ParenExpr(inner, at, inner.value_type)

    def _named(self) -> Expression:
        """Read what begins with a name or an opening brace: a call, an aggregation, a selector."""
        cursor = self._cursor
        kind, name, at = cursor.kind, cursor.text, cursor.at
        matchers: list[Matcher] = []
        if kind == "{":
            name = ""
        else:
            cursor.advance()
            if kind in AGGREGATIONS and cursor.kind in ("(", "by", "without"):
                return self._aggregation(kind, at)
            if kind == "identifier" and cursor.kind == "(":
                return self._call(name, at)
            matchers.append(Matcher(METRIC_NAME, "=", name))
        if cursor.kind == "{":
            matchers += read_matchers(cursor)
        node = VectorSelector(name, tuple(matchers), at)
        self._record_flaw(tree_checks.check_selector(node))
        return node

    def _aggregation(self, operator: str, at: int) -> Expression:
        cursor = self._cursor
        outside, self._context = self._context, "aggregation"
        grouping = read_grouping(cursor)
        if cursor.kind != "(":
            cursor.unexpected("aggregation")
        arguments = self._arguments()
        self._context = outside
        if grouping is None:
            grouping = read_grouping(cursor)
        if not arguments:
            raise FlawError(at, "no arguments for aggregate expression provided")
        if operator in tree_checks.EXPERIMENTAL_AGGREGATIONS:
            flag = "--enable-feature=promql-experimental-functions"
            raise FlawError(
                at, f"{operator}() is experimental and must be enabled with {flag}, which is not supported here"
            )
        count = 2 if operator in tree_checks.WITH_PARAMETER else 1
        if len(arguments) != count:
            problem = "wrong number of arguments for aggregate expression provided"
            raise FlawError(at, f"{problem}, expected {count}, got {len(arguments)}")
        parameter = arguments[0] if count == 2 else None
        node = AggregateExpr(operator, parameter, arguments[-1], grouping or Grouping(without=False, labels=()), at)
        self._record_flaw(tree_checks.check_aggregate(node))
        return node

    def _call(self, name: str, at: int) -> Expression:
        arguments = self._arguments()
        if name in tree_checks.EXPERIMENTAL_FUNCTIONS:
            raise FlawError(
                at, f'function "{name}" is not enabled: it is experimental in Prometheus, and not supported here'
            )
        if name not in tree_checks.SIGNATURES:
            raise FlawError(at, f'unknown function with name "{name}"{nearest(name, tree_checks.SIGNATURES)}')
        node = FunctionCall(name, tuple(arguments), at, tree_checks.SIGNATURES[name].gives)
        self._record_flaw(tree_checks.check_call(node))
        return node

    def _arguments(self) -> list[Expression]:
        """Read arguments with their parentheses."""
        cursor = self._cursor
        cursor.advance()
        arguments: list[Expression] = []
        while cursor.kind != ")":
            arguments.append(self._expression(1))
            comma = cursor.at
            if cursor.skip(","):
                if cursor.kind in (")", ","):
                    raise FlawError(comma, "trailing commas not allowed in function call args")
            elif cursor.kind != ")":
                cursor.unexpected(self._context)
        cursor.advance()
        return arguments

    def _ranged(self, operand: Expression) -> Expression:
        """Read a range, and a step if it is a subquery's."""
        cursor = self._cursor
        bracket = cursor.at
        cursor.advance()
        range_ns = read_span(cursor, "number or duration")
        if cursor.skip("]"):
            return self._matrix(operand, range_ns, bracket)
        if not cursor.skip(":"):
            cursor.unexpected("subquery or range", '":" or "]"')
        step_at, step_ns = cursor.at, None
        if cursor.kind != "]":
            step_ns = read_span(cursor, 'number or duration or "]"')
        if not cursor.skip("]"):
            cursor.unexpected("subquery selector", '"]"')
        node = Subquery(operand, range_ns, step_ns, operand.at, step_at)
        self._record_flaw(tree_checks.check_subquery(node))
        return node

    def _matrix(self, operand: Expression, range_ns: int, bracket: int) -> Expression:
        if not isinstance(operand, VectorSelector):
            raise FlawError(bracket, "ranges only allowed for vector selectors")
        if operand.offset_ns:
            raise FlawError(bracket, "no offset modifiers allowed before range")
        if isinstance(operand.bound, float):
            raise FlawError(bracket, "no @ modifiers allowed before range")
        return MatrixSelector(operand, range_ns, operand.at)

    def _offset(self, operand: Expression) -> Expression:
        cursor = self._cursor
        cursor.advance()
        offset_ns = read_offset(cursor)
        moved = _moved(operand, "offset")
        if moved.offset_ns:
            raise FlawError(operand.at, "offset may not be set multiple times")
        return _with(operand, replace(moved, offset_ns=offset_ns))

    def _bound(self, operand: Expression) -> Expression:
        """Read `@`."""
        bound = read_instant(self._cursor, operand.at)
        moved = _moved(operand, "@")
        if moved.bound is not None:
            raise FlawError(operand.at, "@ <timestamp> may not be set multiple times")
        return _with(operand, replace(moved, bound=bound))


def _moved(operand: Expression, modifier: str) -> VectorSelector | Subquery:
    """Return the part of an operand that a modifier changes."""
    if isinstance(operand, MatrixSelector):
        return operand.selector
    if not isinstance(operand, (VectorSelector, Subquery)):
        preceded = "must be preceded by an instant vector selector or range vector selector or a subquery"
        raise FlawError(operand.at, f"{modifier} modifier {preceded}")
    return operand


def _with(operand: Expression, moved: VectorSelector | Subquery) -> Expression:
    if isinstance(operand, MatrixSelector):
        assert isinstance(moved, VectorSelector), "a range is that of a selector"
        return replace(operand, selector=moved)
    return moved
