"""The wall clock is set, and the whole agent stands still, as on a machine that is suspended."""

from __future__ import annotations

import os
import signal

from tests.lab.drill.drilled_daemon import Drill
from tests.lab.drill.fault import Fault

HOUR = 3600


def _stepped(title: str, seconds: int) -> Fault:
    return Fault(
        title,
        "samples, ages, windows and alerts go on",
        lambda drill: drill.firmware.command(f"clock {seconds}"),
        lambda drill: drill.firmware.command(),
    )


def _signal_both(drill: Drill, number: signal.Signals) -> None:
    for pid in (drill.pid, drill.worker):
        os.kill(pid, number)


CLOCK_FAULTS = (
    _stepped("the clock is set forward by an hour", HOUR),
    _stepped("the clock is set back by an hour", -HOUR),
    Fault(
        "both processes stand still, as on a suspended machine",
        "it goes on where it was",
        lambda drill: _signal_both(drill, signal.SIGSTOP),
        lambda drill: _signal_both(drill, signal.SIGCONT),
        answers=False,
    ),
)
