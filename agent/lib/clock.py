"""The clocks: only the top-level packages read them; all other code takes the time as an argument."""

import time

from agent.model import Instant

_PROCESS, _THREAD = 2, 6
"""Linux makes the number of a CPU clock from the complement of an id, shifted by three bits: 2 asks the scheduler for
the exact time, and 4 says that the id is a thread's (include/linux/posix-timers_types.h, CPUCLOCK_SCHED and
CPUCLOCK_PERTHREAD_MASK; clock_getcpuclockid(3) makes it in the same way)."""


def clock() -> Instant:
    """Return the current moment, on both clocks."""
    return Instant(time.monotonic(), time.time())


def cpu_of_process(pid: int) -> float | None:
    """Return seconds of processor time of all threads of a process; None if there is no such process."""
    return _cpu(pid, _PROCESS)


def cpu_of_thread(tid: int) -> float | None:
    """Return the same of one thread of this process, by its native id.

    It passes the id to the kernel, which reports an ended thread as an error; `pthread_getcpuclockid` would read freed
    memory then.
    """
    return _cpu(tid, _THREAD)


def _cpu(number: int, kind: int) -> float | None:
    try:
        return time.clock_gettime((~number << 3) | kind)
    except OSError:
        return None
