"""Parses what is not an expression: matchers, grouping, how operands match, ranges, steps, offsets and `@`.

It begins with the position among the tokens that all parsing moves along, and the error for an unexpected token.
"""

from __future__ import annotations

import math
from typing import NoReturn

from alerts.promql.aggregations import Grouping
from alerts.promql.labels import METRIC_NAME, Labels, Matcher, PromqlError, make_labels
from alerts.promql.matching import SET_OPERATORS, Matching
from alerts.promql.operators import ARITHMETIC, COMPARISONS
from alerts.promql.syntax.literals import duration_value, is_text, nanoseconds, number_value, quoted, unquoted
from alerts.promql.syntax.scanner import AGGREGATIONS, FlawError, Scanner
from alerts.promql.syntax.tree import Bound

_SIGNS = ("+", "-")
_DURATION_OPERATORS = ("+", "-", "*", "/", "%", "^")
_LARGEST_TIME = 2.0**63


def read_number(cursor: Cursor) -> float:
    """Read a number or duration without a sign, in seconds."""
    kind, text, at = cursor.kind, cursor.text, cursor.at
    cursor.advance()
    try:
        return number_value(text) if kind == "number" else duration_value(text)
    except ValueError as error:
        raise FlawError(at, str(error)) from None


def read_offset(cursor: Cursor) -> int:
    """Read what follows `offset`, in nanoseconds. An operator after it applies to the selector, not to the offset."""
    return _read_duration(cursor, "offset", "number or duration")[1]


def read_span(cursor: Cursor, expected: str) -> int:
    """Read a range or step between square brackets, in nanoseconds."""
    at = cursor.at
    seconds, duration = _read_duration(cursor, "subquery selector", expected)
    if seconds <= 0:
        raise FlawError(at, "duration must be greater than 0")
    return duration


def _read_duration(cursor: Cursor, context: str, expected: str) -> tuple[float, int]:
    """Read a number or duration with its signs, in seconds and in nanoseconds."""
    at, signs = cursor.at, ""
    while cursor.kind in _SIGNS:
        signs += cursor.kind
        cursor.advance()
    if cursor.kind not in ("number", "duration", "("):
        cursor.unexpected(context, expected)
    is_arithmetic = cursor.kind == "("
    seconds = 0.0 if is_arithmetic else read_number(cursor) * (-1) ** signs.count("-")
    if is_arithmetic or (cursor.kind in _DURATION_OPERATORS and (context != "offset" or len(signs) > 1)):
        raise FlawError(at, "experimental duration expression is not enabled; write the result, such as 10m")
    try:
        return seconds, nanoseconds(seconds)
    except ValueError as error:
        raise FlawError(at, str(error)) from None


def read_instant(cursor: Cursor, selector_at: int) -> Bound:
    """Read `@` and what follows it."""
    cursor.advance()
    if cursor.kind in ("start", "end"):
        preprocessor = cursor.kind
        cursor.advance()
        if not cursor.skip("(") or not cursor.skip(")"):
            cursor.unexpected("@", "timestamp")
        return preprocessor
    negative = cursor.kind == "-"
    if cursor.kind in _SIGNS:
        cursor.advance()
    if cursor.kind not in ("number", "duration"):
        cursor.unexpected("@", "timestamp")
    seconds = read_number(cursor)
    if not -_LARGEST_TIME < seconds < _LARGEST_TIME:
        raise FlawError(selector_at, f"timestamp out of bounds for @ modifier: {_format_seconds(seconds)}")
    return -seconds if negative else seconds


def _format_seconds(seconds: float) -> str:
    if math.isfinite(seconds):
        return f"{seconds:.6f}"
    return "NaN" if seconds != seconds else "+Inf"


_OPERATORS = (*COMPARISONS, *ARITHMETIC, *SET_OPERATORS, "=~", "!~")
_KEYWORDS = ("bool", "by", "without", "on", "ignoring", "group_left", "group_right", "offset")
_MAX_QUOTED_CHARACTERS = 10


class Cursor:
    """The current token: its kind, its text, and its offset `at`."""

    __slots__ = ("_next", "_tokens", "at", "kind", "text")

    def __init__(self, tokens: Scanner) -> None:
        self._tokens = tokens
        self._next = 0
        self.kind = self.text = ""
        self.at = 0
        self.advance()

    def advance(self) -> None:
        """Go on to the next token; after the end comes another end."""
        tokens, position = self._tokens, self._next
        self.kind, self.text, self.at = tokens.kinds[position], tokens.texts[position], tokens.starts[position]
        if position + 1 < len(tokens.kinds):
            self._next += 1

    def skip(self, kind: str) -> bool:
        """Go past the current token if it is of this kind, and say whether it was."""
        if self.kind != kind:
            return False
        self.advance()
        return True

    def unexpected(self, context: str = "", expected: str = "") -> NoReturn:
        """Reject the current token, as Prometheus does; if it is not a token at all, its text says what is wrong."""
        if self.kind == "error":
            raise FlawError(self.at, self.text)
        where = f" in {context}" if context else ""
        hint = f", expected {expected}" if expected else ""
        raise FlawError(self.at, f"unexpected {self._description()}{where}{hint}")

    def _description(self) -> str:
        kind, text = self.kind, self.text
        if kind == "end of input":
            return kind
        if kind in ("identifier", "metric identifier"):
            return f"{kind} {quoted(text)}"
        if kind in ("number", "duration", "string"):
            beginning = (
                f"{quoted(text[:_MAX_QUOTED_CHARACTERS])}..." if len(text) > _MAX_QUOTED_CHARACTERS else quoted(text)
            )
            return f"{kind} {beginning}"
        if kind in _OPERATORS:
            return f"<op:{text}>"
        if kind in AGGREGATIONS:
            return f"<aggr:{text}>"
        return f"<{text}>" if kind in _KEYWORDS else quoted(text)


_MATCH_OPERATORS = ("=", "!=", "=~", "!~")
_LABEL_KINDS = AGGREGATIONS | {
    "identifier", "metric identifier", "and", "or", "unless", "atan2", "bool", "by", "group_left", "group_right",
    "ignoring", "offset", "on", "start", "end",
}  # fmt: skip
METRIC_NAMES = AGGREGATIONS | {
    "identifier", "metric identifier", "and", "or", "unless", "by", "without", "offset", "start", "end",
}  # fmt: skip
"""The kinds of tokens that may name a metric."""
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


def read_metric(tokens: Scanner) -> Labels:
    """Read a whole text: a name, labels in braces, or both. The name before the braces is the one that counts."""
    cursor = Cursor(tokens)
    name = cursor.text if cursor.kind in METRIC_NAMES else ""
    if name:
        cursor.advance()
    labels: dict[str, str] = {}
    for matcher in read_matchers(cursor) if cursor.kind == "{" else ():
        if matcher.operator != "=":
            raise FlawError(0, f'unexpected <op:{matcher.operator}> in label set, expected "="')
        if matcher.name in labels:
            raise FlawError(0, f"label name {quoted(matcher.name)} is not unique")
        labels[matcher.name] = matcher.value
    if cursor.kind != "end of input":
        cursor.unexpected("label set")
    return make_labels(labels, name)


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
