"""Threads of the daemon that end by an exception, and things of which the system has none left."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path

from tests.lab.drill.drilled_daemon import Drill
from tests.lab.drill.fault import Fault, either, grown, shrunk
from tests.lab.drill.file_faults import ADAPTER, port_missing


def _refuse_a_file(drill: Drill) -> None:
    """Wake every thread: a reload that is refused makes an alert, which is told and remembered."""
    drill.config.write_text("nonsense: 1\n")
    os.kill(drill.pid, signal.SIGHUP)


def _take_it_back(drill: Drill) -> None:
    drill.config.write_text(drill.good)
    os.kill(drill.pid, signal.SIGHUP)


def fallen(thread: str) -> Fault:
    """An exception in a thread of the daemon, at whatever it is doing."""

    def strike(drill: Drill) -> None:
        drill.sabotage(fall=[thread])
        _refuse_a_file(drill)

    begun_again = grown("coldplate_thread_restarts_total", thread=thread)
    return Fault(
        f"an exception in thread {thread}",
        "begun again, none of its work is lost",
        strike,
        _take_it_back,
        begun_again,
        begun_again,
        falls=thread,
    )


def _no_threads(drill: Drill) -> None:
    drill.sabotage(refuse=10.0)
    drill.firmware.hang(ADAPTER)


THREADS_SHORTAGE = Fault(
    "no thread to be had for 10 s, and a port hangs",
    "the port is missing, the others are read on",
    _no_threads,
    lambda drill: drill.firmware.hang(),
    either(port_missing, shrunk("coldplate_backend_up", backend="infiniband")),
    device=True,
)


class _Limit:
    """A limit of the process that is brought down to what it uses, and a little more."""

    def __init__(self, which: int, used: Callable[[Drill], int]) -> None:
        self._which = which
        self._used = used
        self._was = (0, 0)

    def provoke(self, drill: Drill) -> None:
        self._was = resource.prlimit(drill.pid, self._which)
        resource.prlimit(drill.pid, self._which, (self._used(drill), self._was[1]))
        _refuse_a_file(drill)

    def cure(self, drill: Drill) -> None:
        resource.prlimit(drill.pid, self._which, self._was)
        _take_it_back(drill)


def _descriptors(drill: Drill) -> int:
    return 1 + max(int(each.name) for each in Path(f"/proc/{drill.pid}/fd").iterdir())


def _address_space(drill: Drill) -> int:
    return int(Path(f"/proc/{drill.pid}/statm").read_text().split()[0]) * resource.getpagesize() + (256 << 10)


_NO_FILE, _NO_MEMORY = _Limit(resource.RLIMIT_NOFILE, _descriptors), _Limit(resource.RLIMIT_AS, _address_space)

LIMIT_FAULTS = (
    Fault("no file descriptor to be had", "what is open is read and served on", _NO_FILE.provoke, _NO_FILE.cure),
    Fault("no more memory to be had", "what fails is tried again", _NO_MEMORY.provoke, _NO_MEMORY.cure),
)
