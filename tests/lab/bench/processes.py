"""Programs under measurement: started, looked at from outside through the kernel, and always ended."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.lab.bench.report import CannotRunError

MIB = 2**20
SERVING = re.compile(r"https?://127\.0\.0\.1:(\d+)/")
START_PATIENCE = 30.0
"""Seconds within which a program serves."""


class Program(psutil.Popen):
    """A process with its log. A session of its own: ^C at the terminal reaches the benchmark alone, which ends it."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path) -> None:
        self.log = log
        with log.open("w") as file:
            super().__init__(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=environment,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self.poll() is None

    def wait_for(self, name: str, serves: Callable[[str], object], within: float = START_PATIENCE) -> None:
        """Return once what the log says by then shows that it serves. Raises CannotRunError."""
        until = time.monotonic() + within
        while not serves(self.log.read_text()):
            if not self.alive or time.monotonic() > until:
                raise CannotRunError(f"{name} does not serve:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)

    def wait_for_port(self) -> int:
        """Return the port of a daemon on the loopback interface once it serves. Raises CannotRunError."""
        self.wait_for("coldplate", SERVING.search)
        found = SERVING.search(self.log.read_text())
        assert found is not None
        return int(found[1])


@contextmanager
def started(command: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path) -> Iterator[Program]:
    """A program that ends with the block: by SIGTERM, or by SIGKILL with its children if it does not obey."""
    program = Program(command, log, environment, cwd)
    try:
        yield program
    finally:
        family: list[psutil.Process] = []
        try:
            with suppress(psutil.NoSuchProcess):  # it may have ended just now
                family = program.children()
                program.terminate()
            program.wait(10)
        except psutil.TimeoutExpired:
            for each in (program, *family):
                with suppress(psutil.NoSuchProcess):  # psutil knows a number that another process has by now
                    each.kill()
            program.wait(10)


def children(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children()]


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of processes, ended threads included, to the nanosecond (/proc/PID/stat counts in 10 ms)."""
    # The clock of another process's CPU time, as clock_getcpuclockid(3) gives it: CPUCLOCK_SCHED in the kernel.
    return sum(time.clock_gettime((~pid << 3) | 2) for pid in pids)


def thread_cpu(pid: int) -> dict[int, float]:
    return {
        int(task.name): int((task / "schedstat").read_text().split()[0]) * 1e-9
        for task in Path(f"/proc/{pid}/task").iterdir()
    }


def proportional_memory(pid: int) -> float:
    """PSS in bytes: pages that several processes use count for each with its share."""
    return kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") * 1024


def kilobytes(file: Path, key: str) -> int:
    return next(int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(key))


PRIORITY = 5
"""Of the daemon, among real-time programs: a scraper is elsewhere, and does not take its processor."""


def prefer(pid: int, priority: int = PRIORITY) -> None:
    """Run a process whenever it wants to, where that is allowed."""
    with suppress(PermissionError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(task.name), os.SCHED_FIFO, os.sched_param(priority))


class Peak:
    """The most memory that a process holds from now on, in bytes beyond what it holds now.

    The kernel keeps the mark (VmHWM of proc(5)), and puts it back.
    """

    def __init__(self, pid: int) -> None:
        self._status = Path(f"/proc/{pid}/status")
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        self._before = kilobytes(self._status, "VmRSS:")

    def now(self) -> float:
        return (kilobytes(self._status, "VmRSS:") - self._before) * 1024

    def highest(self) -> float:
        return (kilobytes(self._status, "VmHWM:") - self._before) * 1024
