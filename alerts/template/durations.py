"""Durations as templates read them, with Prometheus's words where they are none."""

from __future__ import annotations

import re

from alerts.template.errors import RenderError
from alerts.template.quoting import quoted

_UNITS = {"y": 31_536_000_000, "w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
"""Milliseconds, from the longest to the shortest: in that order they have to stand."""
_ORDER = list(_UNITS)
_PART = re.compile(r"([0-9]+)([^0-9]+)")
_LONGEST_NUMBER = 20
_LONGEST = 2**63 // 1_000_000


def span_of(text: str) -> float:
    """Seconds of a duration. Raises RenderError."""
    if text == "0":
        return 0.0
    if not text:
        raise RenderError("empty duration string")
    invalid = RenderError(f"not a valid duration string: {quoted(text)}")
    total, at, last = 0, 0, -1
    while at < len(text):
        match = _PART.match(text, at)
        if match is None or len(match[1]) > _LONGEST_NUMBER or int(match[1]) >= 2**64:
            raise invalid
        if match[2] not in _UNITS:
            raise RenderError(f"unknown unit {quoted(match[2])} in duration {quoted(text)}")
        if _ORDER.index(match[2]) <= last:
            raise invalid
        last = _ORDER.index(match[2])
        total += int(match[1]) * _UNITS[match[2]]
        if total > _LONGEST:
            raise RenderError("duration out of range")
        at = match.end()
    return total / 1000
