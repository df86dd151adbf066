"""Lists of labels: matchers between braces, grouping, and how an operator matches its operands."""

from __future__ import annotations

from alerts.promql.aggregations import Grouping
from alerts.promql.labels import METRIC_NAME
from alerts.promql.matchers import Matcher
from alerts.promql.matching import Matching
from alerts.promql.query_errors import PromqlError
from alerts.promql.syntax.cursor import Cursor
from alerts.promql.syntax.flaw import FlawError
from alerts.promql.syntax.literals import is_text, quoted, unquoted
from alerts.promql.syntax.scanner import AGGREGATIONS

_MATCH_OPERATORS = ("=", "!=", "=~", "!~")
_LABEL_KINDS = AGGREGATIONS | {
    "identifier", "metric identifier", "and", "or", "unless", "atan2", "bool", "by", "group_left", "group_right",
    "ignoring", "offset", "on", "start", "end",
}  # fmt: skip
_ONE_TO_ONE = Matching(on=False, labels=(), many="", include=())


def read_string(cursor: Cursor) -> str:
    """Read a quoted text."""
    text, at = cursor.text, cursor.at
    cursor.advance()
    try:
        return unquoted(text)
    except ValueError as error:
        raise FlawError(at, str(error)) from None


def read_matchers(cursor: Cursor) -> list[Matcher]:
    """Read the matchers of a selector with their braces."""
    cursor.advance()
    matchers: list[Matcher] = []
    while cursor.kind != "}":
        matchers.append(_matcher(cursor))
        if cursor.kind != "}" and not cursor.skip(","):
            cursor.unexpected("label matching", '"," or "}"')
    cursor.advance()
    return matchers


def _matcher(cursor: Cursor) -> Matcher:
    if cursor.kind == "string":
        name = read_string(cursor)
        if cursor.kind not in _MATCH_OPERATORS:
            return Matcher(METRIC_NAME, "=", name)
    elif cursor.kind == "identifier":
        name = cursor.text
        cursor.advance()
        if cursor.kind not in _MATCH_OPERATORS:
            cursor.unexpected("label matching", "label matching operator")
    else:
        cursor.unexpected("label matching", 'identifier or "}"')
    operator = cursor.kind
    cursor.advance()
    if cursor.kind != "string":
        cursor.unexpected("label matching", "string")
    at = cursor.at
    value = read_string(cursor)
    try:
        return Matcher(name, operator, value)
    except PromqlError as error:
        raise FlawError(at, error.problem) from None


def read_labels(cursor: Cursor) -> tuple[str, ...]:
    """Read a list of labels with its parentheses."""
    if not cursor.skip("("):
        cursor.unexpected("grouping opts", '"("')
    labels: list[str] = []
    while cursor.kind != ")":
        labels.append(_label(cursor))
        if cursor.kind != ")" and not cursor.skip(","):
            cursor.unexpected("grouping opts", '"," or ")"')
    cursor.advance()
    return tuple(labels)


def _label(cursor: Cursor) -> str:
    at = cursor.at
    if cursor.kind == "string":
        label = read_string(cursor)
        if not label or not is_text(label):
            raise FlawError(at, f"invalid label name for grouping: {quoted(label)}")
        return label
    if cursor.kind not in _LABEL_KINDS:
        cursor.unexpected("grouping opts", "label")
    label = cursor.text
    cursor.advance()
    return label


def read_grouping(cursor: Cursor) -> Grouping | None:
    """Read `by (...)` or `without (...)`, if one is there."""
    if cursor.kind not in ("by", "without"):
        return None
    without = cursor.kind == "without"
    cursor.advance()
    return Grouping(without, read_labels(cursor))


def read_matching(cursor: Cursor) -> tuple[bool, Matching]:
    """Read what may come between an operator and its right operand: `bool`, `on` or `ignoring`, and a grouping."""
    as_bool = cursor.skip("bool")
    if cursor.kind not in ("on", "ignoring"):
        return as_bool, _ONE_TO_ONE
    on = cursor.kind == "on"
    cursor.advance()
    labels = read_labels(cursor)
    many = ""
    include: tuple[str, ...] = ()
    if cursor.kind in ("group_left", "group_right"):
        many = "left" if cursor.kind == "group_left" else "right"
        cursor.advance()
        if cursor.kind == "(":
            include = read_labels(cursor)
    return as_bool, Matching(on, labels, many, include)
