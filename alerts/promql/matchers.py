"""Matchers: which series a selector selects.

Prometheus matches with RE2, always against the whole value, and a dot also matches a newline (see `alerts.regex`).
"""

from __future__ import annotations

from collections.abc import Callable

from alerts.promql.labels import METRIC_NAME, Labels, label_value
from alerts.promql.query_errors import LimitError, PromqlError
from alerts.regex import RegexError, TextTooLongError, compile_regex


class Matcher:
    """One matcher of a selector: a label's name, `=`, `!=`, `=~` or `!~`, and a value or regular expression."""

    __slots__ = ("_hash", "matches", "name", "operator", "value")

    def __init__(self, name: str, operator: str, value: str) -> None:
        self.name = name
        self.operator = operator
        self.value = value
        self._hash = hash((name, operator, value))
        self.matches: Callable[[str], bool] = _predicate(operator, value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Matcher):
            return NotImplemented
        return (self.name, self.operator, self.value) == (other.name, other.operator, other.value)

    def __repr__(self) -> str:
        return f"{self.name}{self.operator}{self.value!r}"


def _predicate(operator: str, value: str) -> Callable[[str], bool]:
    if operator == "=":
        return value.__eq__
    if operator == "!=":
        return value.__ne__
    if operator == "=~":
        return _expression(value)
    if operator == "!~":
        is_whole = _expression(value)
        return lambda text: not is_whole(text)
    raise ValueError(f"unknown matcher {operator!r}: use one of = != =~ !~")


def _expression(pattern: str) -> Callable[[str], bool]:
    try:
        is_whole = compile_regex(pattern).predicate()
    except RegexError as error:
        raise PromqlError(f"regular expression {pattern!r}: {error}") from None

    def matches(text: str) -> bool:
        try:
            return is_whole(text)
        except TextTooLongError as error:
            raise LimitError(f"regular expression {pattern!r}: {error}") from None

    return matches


def wanted_name(matchers: tuple[Matcher, ...]) -> str | None:
    """Return the one metric name that can match, or None if the name is left open."""
    for matcher in matchers:
        if matcher.name == METRIC_NAME and matcher.operator == "=":
            return matcher.value
    return None


def match_all(matchers: tuple[Matcher, ...], labels: Labels) -> bool:
    """Return whether a label set satisfies every matcher; a missing label reads as empty."""
    return all(matcher.matches(label_value(labels, matcher.name)) for matcher in matchers)
