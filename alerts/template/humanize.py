"""Numbers for people, exactly as Prometheus's template functions print them."""

from __future__ import annotations

import math

from alerts.template.floats import shortest, special
from alerts.template.moments import Moment, Span, to_moment
from alerts.template.numbering import parse_float
from alerts.template.template_errors import RenderError
from alerts.template.template_values import Typed, Value, type_name

_LARGE = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL = ("", "m", "u", "n", "p", "f", "a", "z", "y")


def number(value: Value) -> float:
    """The argument of a function for numbers as a float; it may be given as text."""
    if type(value) is str:
        try:
            return parse_float(value)
        except ValueError as error:
            raise RenderError(str(error)) from None
    if isinstance(value, Span) and not value.is_pointer:
        return value.nanoseconds / 1e9
    is_number = type(value) in (int, float) or (isinstance(value, Typed) and value.kind == "int64")
    if is_number and isinstance(value, (int, float)):
        return float(value)
    raise RenderError(f"can't convert {type_name(value)} to float")


def _four(value: float) -> str:
    """Four significant digits."""
    return special(value) or f"{value:.4g}"


def _scaled_up(value: float, base: float, prefixes: tuple[str, ...]) -> str:
    prefix = ""
    for prefix in prefixes:
        if abs(value) < base:
            break
        if prefix != prefixes[-1]:
            value /= base
    return f"{_four(value)}{prefix}"


def _scaled_down(value: float) -> str:
    prefix = ""
    for prefix in _SMALL:
        if abs(value) >= 1:
            break
        if prefix != _SMALL[-1]:
            value *= 1000
    return f"{_four(value)}{prefix}"


def _plain(value: float) -> bool:
    return value == 0 or not math.isfinite(value)


def humanize(given: Value) -> str:
    """1234567 is 1.235M, 0.00123 is 1.23m."""
    value = number(given)
    if _plain(value):
        return _four(value)
    return _scaled_up(value, 1000, _LARGE) if abs(value) >= 1 else _scaled_down(value)


def humanize1024(given: Value) -> str:
    """2048 is 2ki."""
    value = number(given)
    if abs(value) <= 1 or _plain(value):
        return _four(value)
    return _scaled_up(value, 1024, _BINARY)


def humanize_duration(given: Value) -> str:
    """3661 is 1h 1m 1s, 0.25 is 250ms."""
    value = number(given)
    if not math.isfinite(value):
        return _four(value)
    if value == 0:
        return f"{_four(value)}s"
    if abs(value) < 1:
        return f"{_scaled_down(value)}s"
    sign = "-" if value < 0 else ""
    value = abs(value)
    minutes, seconds = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    if minutes:
        return f"{sign}{minutes}m {seconds}s"
    return f"{sign}{_four(value)}s"


def humanize_percentage(given: Value) -> str:
    """0.123 is 12.3%."""
    return f"{_four(number(given) * 100)}%"


def humanize_timestamp(given: Value) -> str:
    """Seconds since the epoch as a date in UTC, in Go's notation."""
    value = number(given)
    return str(moment(value)) if math.isfinite(value) else _four(value)


def moment(seconds: float) -> Moment:
    """The time at this many seconds after the epoch."""
    try:
        return to_moment(seconds)
    except OverflowError:
        problem = f"{shortest(seconds)} cannot be represented as a nanoseconds timestamp since it overflows int64"
    except ValueError as error:
        problem = str(error)
    raise RenderError(problem)
