"""The machine's clock is set, and the machine is suspended: an alert that fires goes on, and nothing else begins to.

The time since which it is active moves with the clock (docs/rules.md), so that `for` is neither met nor missed by it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from inside.checks import NotHereError, check
from inside.lost_gpu import all_up, lost
from inside.tools import (
    EMULATED,
    SLOWNESS,
    CheckError,
    alerts,
    command,
    fetch,
    main_pid,
    ready,
    restart,
    total,
    until,
    worker_pid,
)

HOUR = 3600.0
ASLEEP = 60
MARGIN = 5.0
"""Seconds."""
ALARM, STATE = Path("/sys/class/rtc/rtc0/wakealarm"), Path("/sys/power/state")


def firing() -> frozenset[str]:
    listed = json.loads(fetch("/api/v1/alerts"))["data"]["alerts"]
    return frozenset(each["labels"]["alertname"] for each in listed if each["state"] == "firing")


@dataclass(frozen=True)
class Before:
    """What must stay: the processes, what fires, and since when (seconds of the clock as it then was)."""

    processes: tuple[int, int]
    firing: frozenset[str]
    since: float


def seen() -> Before:
    since = datetime.fromisoformat(lost()["activeAt"].replace("Z", "+00:00")).timestamp()
    return Before((main_pid(), worker_pid()), firing(), since)


def goes_on(what: str, before: Before, moved: float) -> float:
    """Seconds until new samples come. Raises CheckError where something has not stayed, or not moved with the clock."""
    sampled = total("coldplate_ticks_total")
    took = until(f"samples {what}", lambda: total("coldplate_ticks_total") > sampled + 3 and fetch("/-/ready"), 30)
    now = seen()
    others = now.firing - before.firing
    if others or now.processes != before.processes or abs(now.since - before.since - moved) > MARGIN:
        raise CheckError(f"{what}, {moved:+.0f} s: {before} became {now}")
    return took


def with_an_alert() -> Before:
    if not EMULATED:
        raise NotHereError("the clock is that of the machine around this one")
    command()
    restart()
    until("all are well", lambda: all_up() and not alerts("GpuLost"), 60)
    command("lost 3")
    until("GpuLost fires", lost, 40)
    time.sleep(3 * SLOWNESS)  # what else fires for it does so by then
    return seen()


def all_well_again() -> None:
    command()
    until("all are well", all_up, 60)
    ready()


@check("clock is set")
def the_clock_is_set() -> str:
    before = with_an_alert()
    took, moved = [], 0.0
    for what, seconds in (("an hour on", HOUR), ("two hours back", -2 * HOUR), ("as it was", HOUR)):
        time.clock_settime(time.CLOCK_REALTIME, time.clock_gettime(time.CLOCK_REALTIME) + seconds)
        moved += seconds
        took.append(goes_on(f"after the clock was set {what}", before, moved))
    all_well_again()
    samples = ", ".join(f"{each:.1f}" for each in took)
    return f"on, back and on again: samples after {samples} s, GpuLost fires on"


def slept() -> float:
    """Seconds that this machine has been suspended since it was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


@check("suspended")
def the_machine_is_suspended() -> str:
    if EMULATED and not (ALARM.exists() and "mem" in STATE.read_text().split()):
        raise NotHereError("no clock wakes this machine, or it cannot be suspended")
    before = with_an_alert()
    awake = slept()
    ALARM.write_text("0")
    ALARM.write_text(f"+{ASLEEP}")
    STATE.write_text("mem")
    asleep = slept() - awake
    if asleep < ASLEEP / 2:
        raise CheckError(f"suspended for {asleep:.1f} s only")
    took = goes_on("after the machine was suspended", before, asleep)
    all_well_again()
    return f"for {asleep:.0f} s: samples {took:.1f} s after it woke, GpuLost fires on, both processes stay"
