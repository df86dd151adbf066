"""What the unit survives: a daemon that hangs or dies, a worker that crashes or eats all memory."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from inside.checks import check
from inside.lost_gpu import all_up, lost
from inside.people import CGROUPS
from inside.tools import (
    SLOWNESS,
    CheckError,
    active,
    command,
    drop_in,
    journal,
    main_pid,
    ready,
    restart,
    series,
    sh,
    show,
    total,
    until,
    worker_pid,
)  # fmt: skip

COLDPLATE = "/opt/coldplate/bin/coldplate"
WORKER_RESTARTS = "coldplate_worker_restarts_total"


@check("state")
def alerts_and_inventory_survive() -> str:
    command("lost 3")
    until("GpuLost fires", lost, 40)
    began = lost()["activeAt"]
    restart()
    until("GpuLost is still firing", lost)
    if lost()["activeAt"] != began:
        raise CheckError(f"active since {lost()['activeAt']} after the restart, since {began} before")
    os.kill(main_pid(), signal.SIGKILL)
    until("it comes back", lambda: active() == "active" and total("coldplate_ticks_total") > 2, 40)
    until("GpuLost is still firing", lost)
    if lost()["activeAt"] != began:
        raise CheckError(f"active since {lost()['activeAt']} after kill -9, since {began} before")
    command("count 7")
    restart()
    until("GPU 7 is missed", lambda: total("coldplate_gpus_expected") == 8 and total("coldplate_gpu_up", gpu="7") == 0)
    command()
    restart()
    until("all are well", all_up, 60)
    return f"GpuLost, since {began[11:19]}, fires on after a restart and after kill -9; a GPU gone meanwhile is missed"


def has_worker() -> bool:
    try:
        return worker_pid() > 0
    except CheckError:
        return False


@check("pause")
def the_driver_is_released_on_request() -> str:
    said = sh(COLDPLATE, "pause", "--for", "1h").strip()
    if "released until" not in said or has_worker():
        raise CheckError(f"{said}; a worker holds the driver: {has_worker()}")
    until("no GPU is said to be up", lambda: not series("coldplate_gpu_up"))
    restart()
    if series("coldplate_gpu_up") or has_worker():
        raise CheckError("an agent that is restarted does not know of the pause")
    sh(COLDPLATE, "pause", "--end")
    took = until("all are up again", all_up, 30)
    return f"{said}, also for an agent that was restarted; all up {took:.1f} s after --end"


def crashed_by(told: str, happened: Callable[[], bool]) -> float:
    """Tell the stand-in for the driver to do away with the worker; seconds until another one has all GPUs up.

    That the page says "all up" is no sign of another worker: for a moment it says so of the one that went.
    """
    gone = worker_pid()
    command(told)
    until(f"{told!r} has its effect", happened, 60)
    command()
    return until("a new worker", lambda: worker_pid() != gone and all_up(), 90)


@check("worker killed")
def a_worker_that_dies_is_replaced() -> str:
    daemon, before = main_pid(), total(WORKER_RESTARTS)
    os.kill(worker_pid(), signal.SIGKILL)
    took = until("a new worker", lambda: total(WORKER_RESTARTS) > before and all_up(), 40)
    if main_pid() != daemon:
        raise CheckError("the daemon went along")
    again = crashed_by("segv", lambda: total(WORKER_RESTARTS) > before + 1)
    if main_pid() != daemon or active() != "active":
        raise CheckError(f"the daemon went along: {active()}")
    return f"GPUs are back {took:.1f} s after kill -9, {again:.1f} s after a crash in the library; the daemon stays"


def oom_kills() -> int:
    """How often the kernel killed for memory in the unit's cgroup (v2: memory.events, v1: memory.oom_control)."""
    group = show("ControlGroup").lstrip("/")
    for path in (CGROUPS / group / "memory.events", CGROUPS / "memory" / group / "memory.oom_control"):
        if path.exists():
            return int(dict(line.split() for line in path.read_text().splitlines())["oom_kill"])
    raise CheckError(f"no memory controller has {group}")


@check("worker that eats memory")
def out_of_memory_costs_the_worker_alone() -> str:
    daemon, before = main_pid(), oom_kills()
    took = crashed_by("balloon 400", lambda: oom_kills() > before)
    if main_pid() != daemon or active() != "active" or show("Result") != "success":
        raise CheckError(f"{active()}, {show('Result')}, process {daemon} became {main_pid()}")
    return f"killed at MemoryMax ({oom_kills() - before} times), back after {took:.1f} s; the daemon stays"


@check("watchdog")
def a_frozen_daemon_is_started_again() -> str:
    drop_in("watchdog", f"[Service]\nWatchdogSec={4 * SLOWNESS:.0f}s\n")
    restart()
    frozen = main_pid()
    os.kill(frozen, signal.SIGSTOP)
    result = until("its end", lambda: show("Result") == "watchdog", 40)
    took = result + until("another process", lambda: active() == "active" and main_pid() != frozen, 40)
    ready()
    drop_in("watchdog", "")
    restart()
    return f"SIGSTOP: running again after {took:.1f} s (with WatchdogSec={4 * SLOWNESS:.0f}s; 60 s as shipped)"


@check("dies again and again")
def it_is_never_given_up() -> str:
    drop_in("hurry", "[Service]\nRestartSec=100ms\n")
    restarts = int(show("NRestarts"))
    times = 8
    for _ in range(times):
        pid = until_process()
        os.kill(pid, signal.SIGKILL)
        until("the next process", lambda pid=pid: until_process() != pid, 30)
    ready()
    counted = int(show("NRestarts")) - restarts
    drop_in("hurry", "")
    restart()
    if counted < times or active() != "active":
        raise CheckError(f"{active()}, started {counted} times")
    return f"killed {times} times in a row, started {counted} times, {active()}: no limit is hit"


def until_process() -> int:
    until("a process", main_pid, 30)
    return main_pid()


@check("stop")
def stops_in_time() -> str:
    began = time.monotonic()
    sh("systemctl", "stop", "coldplate.service")
    took = time.monotonic() - began
    result = (active(), show("Result"), show("ExecMainStatus"))
    left = sh("pgrep", "-u", "coldplate", check=False)
    # Systemd's own words come after the agent's, in some versions two lines of them.
    if result != ("inactive", "success", "0") or left or "msg=stopped" not in "".join(journal().splitlines()[-4:]):
        raise CheckError(f"{result}, processes left: {left!r}: {journal()[-300:]}")
    if took > 20 * SLOWNESS:
        raise CheckError(f"{took:.1f} s")
    sh("systemctl", "start", "coldplate.service")
    ready()
    return f"after {took:.1f} s of the 20 s it has, status 0, no process left"
