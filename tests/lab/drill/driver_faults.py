"""Faults of GPUs, of their driver and its library, and of the worker that calls it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.lab.drill.drilled_daemon import GPUS, Drill, Page
from tests.lab.drill.fault import Fault, Seen, down, either, grown, shrunk

EVERYBODY = tuple(f"hang {number}" for number in range(GPUS))
ALL_DOWN = down(*range(GPUS))
ONE_DOWN = "GPU 3 is down, the others are sampled on"
NONE_UP = "all GPUs are down, everything else is served on"
REPLACED = "a new worker in seconds; everything else is served on"
RESTARTED = grown("coldplate_worker_restarts_total")
NOT_RUNNING = shrunk("coldplate_worker_up")


def _heal(drill: Drill) -> None:
    drill.driver()


def _driver(title: str, expected: str, noticed: Seen | None, *commands: str, device: bool = True) -> Fault:
    return Fault(title, expected, lambda drill: drill.driver(*commands), _heal, noticed, device=device)


def _signalled(title: str, number: signal.Signals, noticed: Seen) -> Fault:
    return Fault(
        title,
        REPLACED,
        lambda drill: os.kill(drill.worker, number),
        noticed=noticed,
        back=RESTARTED,
        device=True,
        holds=False,
    )


def _all_are_up(before: Page, now: Page) -> bool:
    return now.total("coldplate_gpu_up") == GPUS


def _backend_down(before: Page, now: Page) -> bool:
    return not now.family("coldplate_backend_up", "backend").get("nvml")


def _from_the_start(title: str, expected: str, noticed: Seen, cure: Callable[[Drill], object] = _heal) -> Fault:
    return Fault(title, expected, lambda drill: None, cure, noticed, _all_are_up, device=True)


GPU_FAULTS = (
    _driver("one GPU hangs", ONE_DOWN, down(3), "hang 3"),
    _driver("one GPU is lost", ONE_DOWN, down(3), "lost 3"),
    _driver("all GPUs hang", NONE_UP, ALL_DOWN, *EVERYBODY),
    _driver("the wait for events hangs", "all GPUs are sampled on", None, "hang-events", device=False),
    _driver("the driver is unloaded", NONE_UP, ALL_DOWN, "unloaded"),
    _driver("the driver is upgraded, its library is not", NONE_UP, ALL_DOWN, "mismatch"),
)
WORKER_FAULTS = (
    _signalled("the worker is stopped", signal.SIGSTOP, either(ALL_DOWN, NOT_RUNNING)),
    _signalled("the worker is killed", signal.SIGKILL, either(RESTARTED, NOT_RUNNING)),
    _driver("the library crashes the worker", REPLACED, either(RESTARTED, NOT_RUNNING), "segv"),
    _driver("the library takes memory without end", REPLACED, either(RESTARTED, NOT_RUNNING), "balloon 4"),
    _driver("the library chatters on standard error", "nothing is held up", None, "chatter", device=False),
    _driver(
        "garbage in the worker's output",
        "what is no reading is rejected and counted",
        either(grown("coldplate_readings_rejected_total", cause="garbage"), RESTARTED),
        "babble",
    ),
)
STARTS = (
    (_from_the_start("a GPU is silent when the driver is opened", ONE_DOWN, down(3)), ("hang 3",)),
    (_from_the_start("the driver hangs while it is opened", NONE_UP, _backend_down), ("hang-init",)),
    (_from_the_start("the driver is not loaded at the start", NONE_UP, _backend_down), ("unloaded",)),
)
"""Each with what the driver is told before the daemon starts."""
