"""Numbers and durations in templates, as Go reads and writes them, and as Prometheus shows them to people."""

import math

from agent.lib.wording import format_value, with_exponent
from alerts.go_literals import character, milliseconds, parse_float, whole
from alerts.template.values import LONGEST_NANOSECONDS, Moment, RenderError, Span, Typed, Value, type_name


def constant(text: str) -> int | float | None:
    """Return a constant's value. Raises ValueError.

    A whole number that does not fit into Go's int has the value None: using it is an error of the rendering.
    """
    if text.startswith("'"):
        return character(text)
    number = whole(text)
    if number is not None and -(2**63) <= number < 2**64:
        if text.startswith("+") and number >= 2**63:
            raise ValueError(f"{text} overflows a 64-bit integer; write a float")
        return number if number < 2**63 else None
    try:
        real = parse_float(text)
    except ValueError as error:
        is_large = "out of range" in str(error)
        raise ValueError(f"{text} overflows a 64-bit float" if is_large else f"{text!r} is not a number") from None
    if not any(mark in text for mark in ".eEpP") or number is not None:
        raise ValueError(f"{text} overflows a 64-bit integer; write a float")
    return real


def shortest(value: float) -> str:
    """Write as Go's %v and %g: the fewest digits that identify it, with an exponent from 1e+06 on or below 1e-04."""
    is_plain = value == 0 or not math.isfinite(value) or 1e-4 <= abs(value) < 1e6
    return format_value(value) if is_plain else with_exponent(value)


_LARGE = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL = ("", "m", "u", "n", "p", "f", "a", "z", "y")


def number(value: Value) -> float:
    """Return the argument of a function for numbers as a float; it may be given as text."""
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
    """Return four significant digits."""
    return f"{value:.4g}" if math.isfinite(value) else format_value(value)


def _scaled_up(value: float, base: float, prefixes: tuple[str, ...]) -> str:
    place = 0
    while abs(value) >= base and place < len(prefixes) - 1:
        value /= base
        place += 1
    return f"{_four(value)}{prefixes[place]}"


def _scaled_down(value: float) -> str:
    place = 0
    while abs(value) < 1 and place < len(_SMALL) - 1:
        value *= 1000
        place += 1
    return f"{_four(value)}{_SMALL[place]}"


def _plain(value: float) -> bool:
    return value == 0 or not math.isfinite(value)


def humanize(argument: Value) -> str:
    """Return a number with its prefix: 1234567 is 1.235M, 0.00123 is 1.23m."""
    value = number(argument)
    if _plain(value):
        return _four(value)
    return _scaled_up(value, 1000, _LARGE) if abs(value) >= 1 else _scaled_down(value)


def humanize1024(argument: Value) -> str:
    """Return a number with its binary prefix: 2048 is 2ki."""
    value = number(argument)
    if abs(value) <= 1 or _plain(value):
        return _four(value)
    return _scaled_up(value, 1024, _BINARY)


def humanize_duration(argument: Value) -> str:
    """Return seconds with their units: 3661 is 1h 1m 1s, 0.25 is 250ms."""
    value = number(argument)
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
    if not (days or hours or minutes):
        return f"{sign}{_four(value)}s"
    days_and_hours = (f"{days}d " if days else "") + (f"{hours}h " if days or hours else "")
    return f"{sign}{days_and_hours}{minutes}m {seconds}s"


def humanize_percentage(argument: Value) -> str:
    """Return a ratio in per cent: 0.123 is 12.3%."""
    return f"{_four(number(argument) * 100)}%"


def humanize_timestamp(argument: Value) -> str:
    """Return seconds since the epoch as a date in UTC, in Go's notation."""
    value = number(argument)
    return str(moment(value)) if math.isfinite(value) else _four(value)


def span_of(text: str) -> float:
    """Return seconds of a duration. Raises RenderError."""
    if text == "0":
        return 0.0
    if not text:
        raise RenderError("empty duration string")
    try:
        return milliseconds(text) / 1000
    except ValueError as error:
        raise RenderError(str(error)) from None


_MILLION = 1_000_000


def moment(seconds: float) -> Moment:
    """Return the time at this many seconds after the epoch, to the millisecond. Raises RenderError."""
    if not math.isfinite(seconds):
        raise RenderError("value is NaN or Inf")
    if not -LONGEST_NANOSECONDS <= seconds * 1e9 <= LONGEST_NANOSECONDS:
        problem = "cannot be represented as a nanoseconds timestamp since it overflows int64"
        raise RenderError(f"{shortest(seconds)} {problem}")
    nanoseconds = min(max(int(seconds * 1e9), -LONGEST_NANOSECONDS), LONGEST_NANOSECONDS - 1)
    milliseconds = -(-nanoseconds // _MILLION) if nanoseconds < 0 else nanoseconds // _MILLION
    return Moment(milliseconds * _MILLION)
