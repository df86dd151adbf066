"""What may follow a selector or subquery: ranges, steps, offsets and `@`."""

from __future__ import annotations

import math

from alerts.promql.syntax.cursor import Cursor
from alerts.promql.syntax.flaw import FlawError
from alerts.promql.syntax.literals import duration_value, nanoseconds, number_value
from alerts.promql.syntax.tree import AtModifier

_SIGNS = ("+", "-")
_ARITHMETIC = ("+", "-", "*", "/", "%", "^")
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
    at, signs = cursor.at, _signs(cursor)
    seconds = _signed_seconds(cursor, signs, at, "offset", "number or duration")
    if len(signs) > 1:
        _refuse_arithmetic(cursor, at)
    return _checked(seconds, at)


def read_span(cursor: Cursor, expected: str) -> int:
    """Read a range or step between square brackets, in nanoseconds."""
    at, signs = cursor.at, _signs(cursor)
    seconds = _signed_seconds(cursor, signs, at, "subquery selector", expected)
    _refuse_arithmetic(cursor, at)
    duration = _checked(seconds, at)
    if seconds <= 0:
        raise FlawError(at, "duration must be greater than 0")
    return duration


def read_instant(cursor: Cursor, selector_at: int) -> AtModifier:
    """Read `@` and what follows it."""
    at = cursor.at
    cursor.advance()
    if cursor.kind in ("start", "end"):
        preprocessor = cursor.kind
        cursor.advance()
        if not cursor.skip("(") or not cursor.skip(")"):
            cursor.unexpected("@", "timestamp")
        return AtModifier(preprocessor, at)
    negative = cursor.kind == "-"
    if cursor.kind in _SIGNS:
        cursor.advance()
    if cursor.kind not in ("number", "duration"):
        cursor.unexpected("@", "timestamp")
    seconds = read_number(cursor)
    if not -_LARGEST_TIME < seconds < _LARGEST_TIME:
        shown = f"{seconds:.6f}" if math.isfinite(seconds) else "NaN" if seconds != seconds else "+Inf"
        raise FlawError(selector_at, f"timestamp out of bounds for @ modifier: {shown}")
    return AtModifier(-seconds if negative else seconds, at)


def _signs(cursor: Cursor) -> str:
    signs = []
    while cursor.kind in _SIGNS:
        signs.append(cursor.kind)
        cursor.advance()
    return "".join(signs)


def _signed_seconds(cursor: Cursor, signs: str, at: int, context: str, expected: str) -> float:
    if cursor.kind == "(":
        raise _arithmetic(at)
    if cursor.kind not in ("number", "duration"):
        cursor.unexpected(context, expected)
    seconds = read_number(cursor)
    return -seconds if signs.count("-") % 2 else seconds


def _refuse_arithmetic(cursor: Cursor, at: int) -> None:
    if cursor.kind in _ARITHMETIC:
        raise _arithmetic(at)


def _arithmetic(at: int) -> FlawError:
    return FlawError(at, "experimental duration expression is not enabled; write the result, such as 10m")


def _checked(seconds: float, at: int) -> int:
    try:
        return nanoseconds(seconds)
    except ValueError as error:
        raise FlawError(at, str(error)) from None
