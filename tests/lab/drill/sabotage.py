"""Runs `coldplate` and does its threads harm from within: `python -m tests.lab.drill.sabotage PLAN run ...`.

PLAN names a file of JSON, which is read whenever the process gets SIGUSR1: `fall` names a thread in which an exception
is raised, wherever it is, and `refuse` is for how many seconds the system has no thread to give, counted from the first
that is asked for.
"""

import ctypes
import json
import signal
import sys
import threading
import time
from pathlib import Path

from agent.lib import threads

SETTLED = 2.0
"""Seconds that a thread which fell has to work until it is well."""


class Sabotage(BaseException):
    """Nothing that a careful `except Exception` would catch."""


def strike(name: str) -> None:
    """Raise an exception in a thread, at the next instruction that it comes to."""
    for thread in threading.enumerate():
        if thread.name == name:
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


def main() -> None:
    plan = Path(sys.argv.pop(1))

    def obey(*_: object) -> None:
        told = json.loads(plan.read_text())
        if "fall" in told:
            strike(told["fall"])
        else:
            refuse_threads(told["refuse"])

    threads.SETTLED_SECONDS = SETTLED
    signal.signal(signal.SIGUSR1, obey)
    from agent.cli import entry

    entry()


if __name__ == "__main__":
    main()
