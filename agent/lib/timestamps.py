"""Writes wall-clock times as people read them."""

from __future__ import annotations

import time


def utc(wall: float) -> str:
    """Seconds since the epoch as a UTC time to the second; the bare number for one that no calendar has."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall))
    except (ValueError, OverflowError, OSError):
        return f"{wall:.0f} s"
