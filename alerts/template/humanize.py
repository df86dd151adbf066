"""Numbers for people, exactly as Prometheus's template functions print them."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone

from alerts.template.errors import RenderError
from alerts.template.values import Value, shortest, special, type_name

_LARGE = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("", "ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_SMALL = ("", "m", "u", "n", "p", "f", "a", "z", "y")
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def number(value: Value) -> float:
    """The float that a function for numbers was given, also as text."""
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            raise RenderError(f"{value!r} is no number")
        return float(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
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
    if not math.isfinite(value):
        return _four(value)
    if not -(2**63) <= value * 1e9 < 2**63:
        raise RenderError(
            f"{shortest(value)} cannot be represented as a nanoseconds timestamp since it overflows int64"
        )
    moment = _EPOCH + timedelta(milliseconds=_toward_zero(int(value * 1e9), 1_000_000))
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction} +0000 UTC"


def _toward_zero(value: int, divisor: int) -> int:
    return -(-value // divisor) if value < 0 else value // divisor
