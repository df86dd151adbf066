"""What /proc/PID/stat says of a process (proc(5))."""

from msgspec import Struct


class ProcStat(Struct, frozen=True):
    """The parts that are used: `started` in clock ticks after boot, `ticks` of processor time, `pages` of memory.

    `flags` are the kernel's PF_* (include/linux/sched.h).
    """

    pid: int
    command: str
    state: str
    parent: int
    session: int
    flags: int
    started: int
    ticks: int
    pages: int


def parse_stat(data: bytes) -> ProcStat:
    """Parse the text of /proc/PID/stat. Raises ValueError."""
    head, _, tail = data.rpartition(b")")  # the command may hold parentheses and blanks
    pid, _, command = head.partition(b"(")
    fields = tail.split()
    if len(fields) < 22:
        raise ValueError(f"{len(fields)} fields after the command")
    state, parent, session, flags, user, system, started, pages = (
        fields[place] for place in (0, 1, 3, 6, 11, 12, 19, 21)
    )
    if not 0 <= int(started) < 2**63:
        raise ValueError(f"started {int(started)} ticks after boot")
    return ProcStat(
        int(pid), command.decode("utf-8", "replace"), state.decode("ascii", "replace"), int(parent), int(session),
        int(flags), int(started), int(user) + int(system), int(pages),
    )  # fmt: skip


def parse_run_delay(data: bytes) -> float:
    """Return for how many seconds a thread has waited for a processor, by its schedstat. Raises ValueError.

    Its second field, in nanoseconds (Documentation/scheduler/sched-stats.rst).
    """
    fields = data.split()
    if len(fields) < 2:
        raise ValueError(f"{len(fields)} fields, expected 3")
    return int(fields[1]) / 1e9
