"""When rules are evaluated: with each new snapshot, and without one where none comes for a while.

The daemon waits by these; a backtest goes by them in the time of a recording, and so evaluates at the same moments.
"""

from __future__ import annotations

PROMPT = 0.9
"""Share of the interval after which a new snapshot begins a round."""
PATIENT = 1.25
"""Share of the interval after which a round begins without one, where snapshots come at least as often."""


def prompt_time(began: float, interval: float) -> float:
    """The earliest time for the round after one that began then; all in monotonic seconds."""
    return began + PROMPT * interval


def patient_time(began: float, interval: float, period: float) -> float:
    """The time at which that round begins without a new snapshot; `period` is the time between two of them."""
    return began + (PATIENT if period <= interval else 1.0) * interval
