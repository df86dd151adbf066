"""Durations as templates parse them, with Prometheus's errors for invalid ones."""

from __future__ import annotations

import re

from alerts.durations import LONGEST, UNITS
from alerts.template.quoting import quoted
from alerts.template.template_errors import RenderError

_ORDER = list(UNITS)
_PART = re.compile(r"([0-9]+)([^0-9]+)")
_LONGEST_NUMBER = 20


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
        if match[2] not in UNITS:
            raise RenderError(f"unknown unit {quoted(match[2])} in duration {quoted(text)}")
        if _ORDER.index(match[2]) <= last:
            raise invalid
        last = _ORDER.index(match[2])
        total += int(match[1]) * UNITS[match[2]]
        if total > LONGEST:
            raise RenderError("duration out of range")
        at = match.end()
    return total / 1000
