"""Values as a narrow column shows them. What is absent is a dash, and zero is a value."""

from __future__ import annotations

from agent.commands.top.screen.text_layout import ABSENT

_PREFIXES = ("", "k", "M", "G", "T", "P")


def percent(share: float | None) -> str:
    return ABSENT if share is None else f"{share:.0%}"


def plain(value: float | None, factor: float = 1.0, digits: int = 0, unit: str = "") -> str:
    """Return a value times a factor."""
    return ABSENT if value is None else f"{value * factor:.{digits}f}{unit}"


def of(value: float | None, most: float | None, factor: float = 1.0, unit: str = "") -> str:
    """Return a value, of the most that there can be where that is known: 641/700W."""
    if value is None:
        return ABSENT
    return f"{value * factor:.0f}{unit}" if most is None else f"{value * factor:.0f}/{most * factor:.0f}{unit}"


def scaled(value: float | None, unit: str = "") -> str:
    """Three digits and a decimal prefix: 12.3M."""
    if value is None:
        return ABSENT
    rest, steps = abs(value), 0
    while rest >= 999.5 and steps < len(_PREFIXES) - 1:
        rest, steps = rest / 1000.0, steps + 1
    digits = 0 if rest >= 99.5 or steps == 0 else 1
    return f"{'-' if value < 0 else ''}{rest:.{digits}f}{_PREFIXES[steps]}{unit}"


def rate(value: float | None) -> str:
    """Return bytes per second: 12.3GB/s."""
    return scaled(value, "B/s")


def gigabits(value: float | None) -> str:
    """Return bytes per second in the unit of networks, Gb/s, without it."""
    if value is None:
        return ABSENT
    shown = value * 8e-9
    return f"{shown:.0f}" if shown >= 99.5 or shown == 0 else f"{shown:.1f}"


def kilowatts(value: float | None) -> str:
    return ABSENT if value is None else f"{value / 1000.0:.1f}"
