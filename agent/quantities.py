"""Quantities as people write them in a configuration: `250ms`, `15s`, `40.8kW`, `1GiB`."""

from __future__ import annotations

import re

_DURATIONS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_POWERS = {"W": 1.0, "kW": 1e3, "MW": 1e6}
_SIZES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_SHAPE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def _parse(value: object, units: dict[str, float], what: str, example: str) -> float:
    known = ", ".join(units)
    match = _SHAPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{value!r} is no {what}; write a number with one of the units {known}, such as {example}")
    number, unit = match.groups()
    if unit not in units:
        raise ValueError(f"{unit!r} is no unit of {what}; use one of {known}, such as {example}")
    return float(number) * units[unit]


def duration(value: object) -> float:
    """Seconds. Raises ValueError with the remedy."""
    return _parse(value, _DURATIONS, "duration", "15s")


def power(value: object) -> float:
    """Watts. Raises ValueError with the remedy."""
    return _parse(value, _POWERS, "power", "40.8kW")


def size(value: object) -> float:
    """Bytes. Raises ValueError with the remedy."""
    return _parse(value, _SIZES, "size", "1GiB")


def numbers(value: object) -> dict[float, float]:
    """A mapping from numbers to numbers; YAML takes `1e8` for a text. Raises ValueError with the remedy."""
    if not isinstance(value, dict):
        raise ValueError("must be a mapping from one number to another, such as {0.5: 0.4}")
    return {_number(before): _number(after) for before, after in value.items()}


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{value!r} is no number")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{value!r} is no number") from None
