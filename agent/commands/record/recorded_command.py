"""Run the command that `coldplate record` records, and count its processes and what they use.

The recorder exits with its status. Signals that processes send are passed on; those that a terminal sends (Ctrl-C)
reach the command directly, and are not sent twice.
"""

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from agent.backends.protocol import GpuProcess
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.proc_stat import ProcStat, parse_stat
from agent.model import EMPTY_FRAME, Frame, Gpu, Instant

NOT_FOUND, NOT_RUNNABLE, SIGNALLED = 127, 126, 128
"""Exit statuses as shells give them."""

PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT, signal.SIGQUIT)
OF_TERMINAL = frozenset({signal.SIGINT, signal.SIGQUIT})
DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and the command should not."""
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h


class StartError(Exception):
    """The command cannot be started; the text says why, and `status` is what a shell would exit with."""

    def __init__(self, word: str, error: OSError) -> None:
        exists = not isinstance(error, FileNotFoundError)
        reason = error.strerror if exists else "there is no such program, or its interpreter is missing"
        super().__init__(f"cannot run {word!r}: {reason}")
        self.status = NOT_RUNNABLE if exists else NOT_FOUND


def exec_command(words: Sequence[str]) -> int:
    """Replace this process by the command. Returns only if that cannot be done; the exit status."""
    from agent.commands.record import complain

    if not words:
        return 0
    for number in DEFAULTS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(words[0], list(words))  # noqa: S606 the user's own command
    except OSError as error:
        failed = StartError(words[0], error)
    complain(str(failed))
    return failed.status


class RecordedCommand:
    """A command that runs. Orphans of it become our children, so that they are still found."""

    def __init__(self, words: Sequence[str]) -> None:
        """Start the command. Raises StartError."""
        with contextlib.suppress(OSError, AttributeError):  # on a kernel that does not offer it, orphans are lost
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            self.pid = os.posix_spawnp(words[0], list(words), os.environ, setsigmask=(), setsigdef=DEFAULTS)
        except OSError as error:
            raise StartError(words[0], error) from None
        except ValueError as error:  # an argument with a NUL
            raise StartError(words[0], OSError(0, str(error))) from None
        self._on_terminal = _on_terminal()

    def pass_on(self, number: int) -> None:
        """Send it a signal that we got."""
        if not (self._on_terminal and number in OF_TERMINAL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def status(self) -> int | None:
        """Return its exit status as a shell gives it; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else SIGNALLED - code


def _on_terminal() -> bool:
    """Return True if a terminal sends its signals to this process and to the command."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


LOOK_SECONDS = 15.0
"""Seconds between two looks through /proc, which has thousands of processes on a large node."""
FIRST_SECONDS = 3.0
"""The same in the beginning, in which a command starts most of its processes."""
BEGINNING_SECONDS = 30.0

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class CommandProcesses:
    """Follows the descendants of a process. `ours` gives those that are not the command's, such as our worker."""

    def __init__(
        self,
        root: int,
        ours: Callable[[], set[int]],
        on_gpus: Callable[[], Mapping[Gpu, Sequence[GpuProcess] | None]],
        procfs: Path = Path("/proc"),
    ) -> None:
        self._root, self._ours, self._on_gpus, self._procfs = root, ours, on_gpus, procfs
        self._own = os.getpid()
        self._next = self._began = 0.0
        self._last: dict[int, ProcStat] = {}
        """The processes that were there at the last look, by id."""
        self._ended = 0
        """Clock ticks of processes that have ended since."""
        self._series = OwnSeries()
        self._frame = EMPTY_FRAME

    def frame(self, now: Instant) -> Frame:
        """Return what is known of them; looks through /proc when it is time."""
        if not self._began:
            self._began = now.mono
        if now.mono >= self._next:
            early = now.mono - self._began < BEGINNING_SECONDS
            self._next = now.mono + (FIRST_SECONDS if early else LOOK_SECONDS)
            self._frame = self._series.frame(self._readings())
        return self._frame

    def _readings(self) -> Iterator[OwnReading]:
        descendants = self._descendants()
        for process in descendants:  # adopted children that have exited; no other code waits for them
            if process.state == "Z" and process.parent == self._own and process.pid != self._root:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        running = [process for process in descendants if process.state != "Z"]
        before, self._last = self._last, {process.pid: process for process in descendants}
        for process in before.values():
            after = self._last.get(process.pid)
            if after is None or after.started != process.started:
                self._ended += process.ticks
        yield OwnReading("coldplate_recorded_processes", len(running))
        cpu = (self._ended + sum(process.ticks for process in descendants)) / _TICK
        yield OwnReading("coldplate_recorded_process_cpu_seconds_total", cpu)
        memory = sum(process.pages for process in running) * _PAGE
        yield OwnReading("coldplate_recorded_process_resident_memory_bytes", memory)
        pids = {process.pid for process in running}
        for gpu, processes in self._on_gpus().items():
            if processes is None:
                continue  # it is not known which of them are the command's
            count = sum(process.pid in pids for process in processes)
            yield OwnReading("coldplate_gpu_recorded_processes", count, entity=gpu)

    def _descendants(self) -> list[ProcStat]:
        """Return the command's processes and their descendants; orphans become children of this process."""
        children: dict[int, list[ProcStat]] = {}
        for process in self._all():
            children.setdefault(process.parent, []).append(process)
        ours = self._ours()
        descendants = [process for process in children.get(self._own, ()) if process.pid not in ours]
        for process in descendants:  # grows while it is gone through
            descendants += children.get(process.pid, ())
        return descendants

    def _all(self) -> Iterator[ProcStat]:
        """Yield every process; one that cannot be read now as it was at the last look: it has not ended."""
        for process in self._procfs.iterdir():
            if process.name.isdigit():
                try:
                    yield parse_stat((process / "stat").read_bytes())
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it has ended meanwhile
                except (OSError, ValueError):
                    if (before := self._last.get(int(process.name))) is not None:
                        yield before
