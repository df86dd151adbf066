"""The one clock: the roof reads it, and passes it down as an argument."""

from __future__ import annotations

import time

from agent.model import Instant


def clock() -> Instant:
    """The current moment, on both clocks."""
    return Instant(time.monotonic(), time.time())
