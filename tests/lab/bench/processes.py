"""Programs under measurement: started, looked at from outside through the kernel, and always ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self  # of typing only since Python 3.11

MIB = 2**20


class Program:
    """A process that ends with its `with` block. What it prints goes to a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path) -> None:
        self.log = log
        with log.open("w") as file:
            # A session of its own: ^C at the terminal reaches the benchmark alone, which then ends the others.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, cwd=cwd,
                start_new_session=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """SIGTERM, and SIGKILL for one that does not obey; its children as well."""
        if not self.alive:
            return
        family = children(self.pid)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
            for child in family:
                _kill(child, self.pid)


def _kill(pid: int, parent: int) -> None:
    """End an orphan, unless its number belongs to somebody else by now."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if int(stat[1]) in (1, parent):
            os.kill(pid, signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        pass


def children(pid: int) -> list[int]:
    """The children of a process, of all its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes, ended threads included, to the nanosecond (/proc/PID/stat counts in 10 ms)."""
    # The clock of another process's CPU time, as clock_getcpuclockid(3) gives it: CPUCLOCK_SCHED in the kernel.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def thread_cpu(pid: int) -> dict[int, float]:
    """Processor time of each thread in seconds."""
    return {
        int(task.name): int((task / "schedstat").read_text().split()[0]) * 1e-9
        for task in Path(f"/proc/{pid}/task").iterdir()
    }


def proportional_memory(pid: int) -> float:
    """PSS in bytes: pages that several processes use count for each with its share."""
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup").read_text(), "Pss:") * 1024


def memory_of_their_own(pids: Iterable[int]) -> float:
    """What PSS would be if no other process on the machine used the same files: in bytes, no lower than that.

    Other Python programs make a PSS look smaller than it would be on a node that runs none.
    """
    private, shared = 0, defaultdict[tuple[str, str], list[int]](list)
    for pid in pids:
        for name, offset, text in _mappings(Path(f"/proc/{pid}/smaps").read_text()):
            private += _kilobytes(text, "Private_Clean:") + _kilobytes(text, "Private_Dirty:")
            shared[name, offset].append(_kilobytes(text, "Shared_Clean:") + _kilobytes(text, "Shared_Dirty:"))
    return (private + sum(max(sizes) for sizes in shared.values())) * 1024


def _mappings(smaps: str) -> list[tuple[str, str, str]]:
    """File, offset and figures of each mapping."""
    found: list[tuple[str, str, list[str]]] = []
    for line in smaps.splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            found.append((words[5] if len(words) > 5 else "", words[2], []))
        elif found:
            found[-1][2].append(line)
    return [
        (name or f"anonymous {place}", offset, "\n".join(lines)) for place, (name, offset, lines) in enumerate(found)
    ]


def _kilobytes(text: str, key: str) -> int:
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(key))


PRIORITY = 5
"""Of the daemon, among real-time programs: a scraper is elsewhere, and does not take its processor."""


def prefer(pid: int, priority: int = PRIORITY) -> None:
    """Run a process whenever it wants to, where that is allowed."""
    with suppress(PermissionError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(priority))


class Peak:
    """The most memory that a process holds from now on, in bytes beyond what it holds now.

    The kernel keeps the mark (VmHWM of proc(5)), where it may be put back; elsewhere what `look` has seen counts.
    """

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        self.marked = True
        try:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        except OSError:
            self.marked = False
        self._before = self._highest = self._kilobytes("VmRSS:")

    def now(self) -> float:
        """What it holds now, beyond what it held."""
        return (self._kilobytes("VmRSS:") - self._before) * 1024

    def look(self) -> float:
        """The most up to now."""
        self._highest = max(self._highest, self._kilobytes("VmHWM:" if self.marked else "VmRSS:"))
        return (self._highest - self._before) * 1024

    def _kilobytes(self, key: str) -> int:
        return _kilobytes(self._status.read_text(), key)


def machine_times() -> tuple[float, float]:
    """Busy and total processor time of the machine, all processors, in clock ticks."""
    figures = [float(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return sum(figures) - figures[3] - figures[4], sum(figures)
