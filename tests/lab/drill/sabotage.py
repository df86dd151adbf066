"""Runs `coldplate` and does its threads harm from within: `python -m tests.lab.drill.sabotage PLAN run ...`.

PLAN is JSON: `fall` names threads (with `*` all but the main one) in which an exception is raised, wherever they are,
when the process gets SIGUSR1; `refuse` is for how many seconds the system has no thread to give, counted from the first
that is asked for. `told` names a file with a plan of its own, which is read at each SIGUSR1. `settled` is for how many
seconds a thread that fell has to work until it is well.
"""

from __future__ import annotations

import ctypes
import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from agent.lib import threads


class Sabotage(BaseException):
    """Nothing that a careful `except Exception` would catch."""


def strike(names: list[str]) -> None:
    """Raise an exception in each of these threads, at the next instruction that it comes to."""
    for thread in threading.enumerate():
        if thread.name in names or ("*" in names and thread is not threading.main_thread()):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Sabotage))


def refuse_threads(seconds: float) -> None:
    """Have the system give no thread for so many seconds from when it is first asked: a slow start must not miss it."""
    until: list[float] = []
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if not until:
            until.append(time.monotonic() + seconds)
        if time.monotonic() < until[0]:
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = refused  # type: ignore[method-assign, assignment]


def obey(plan: dict[str, Any]) -> None:
    if "told" in plan:
        plan = json.loads(Path(plan["told"]).read_text())
        refuse_threads(plan.get("refuse", 0.0))
    strike(plan.get("fall", []))


def main() -> None:
    plan = json.loads(sys.argv[1])
    del sys.argv[1]
    threads.SETTLED_SECONDS = plan.get("settled", 0.2)
    signal.signal(signal.SIGUSR1, lambda *_: obey(plan))
    if plan.get("refuse"):
        refuse_threads(plan["refuse"])
    from agent.cli import entry

    entry()


if __name__ == "__main__":
    main()
