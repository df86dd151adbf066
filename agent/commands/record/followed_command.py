"""The command whose run is recorded: started as it would be without us, and its end is ours.

Signals that somebody sends to us are passed on. Those that a terminal sends (Ctrl-C) go to the command directly,
because it is in the terminal's foreground like us, and are not sent twice.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

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
        found = not isinstance(error, FileNotFoundError)
        reason = error.strerror if found else "there is no such program, or not its interpreter"
        super().__init__(f"cannot run {word!r}: {reason}")
        self.status = NOT_RUNNABLE if found else NOT_FOUND


def become(words: Sequence[str]) -> int:
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


class Waker:
    """Wakes the main thread for signals: a handler may run anywhere in it, and only notes what came."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._came: list[int] = []
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in numbers:
            signal.signal(number, self._note)
        signal.set_wakeup_fd(self._in, warn_on_full_buffer=False)

    def wait(self, seconds: float) -> list[int]:
        """The signals that came, at most after so many seconds."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if poll.poll(max(seconds, 0.0) * 1000):
            os.read(self._out, 4096)
        came, self._came = self._came, []
        return came

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._came.append(number)


class FollowedCommand:
    """A command that runs. Orphans of it become our children, so that they are still found."""

    def __init__(self, words: Sequence[str]) -> None:
        """Starts it. Raises StartError."""
        adopt_orphans()
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
        """Its exit status as a shell gives it; None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else SIGNALLED - code


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends; on a kernel that does not offer it, they are lost."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def bury(pids: Sequence[int]) -> None:
    """Take the exit status of adopted children that have ended, which nobody else will."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _on_terminal() -> bool:
    """Whether a terminal's signals come to us and our command at once."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
