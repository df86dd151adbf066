"""The process that measures: started, read and ended. Whatever it does, nobody waits for it longer than asked."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

LONGEST_LINE = 2**16
"""Bytes; what measures writes lines of a few hundred."""


class MeasuringProcess:
    """A program in a session of its own, so that it can be ended with all that it started."""

    def __init__(self, words: Sequence[str], order: bytes, environment: Mapping[str, str]) -> None:
        """Start it with this on its standard input, which fits into a pipe. Raises OSError."""
        order_out, order_in = os.pipe2(os.O_CLOEXEC)
        self._out, messages = os.pipe2(os.O_CLOEXEC)
        nothing = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, order_out, 0), (os.POSIX_SPAWN_DUP2, messages, 1),
                   (os.POSIX_SPAWN_DUP2, nothing, 2)]  # fmt: skip
        try:
            os.set_blocking(order_in, False)
            if os.write(order_in, order) < len(order):
                raise OSError(7, "the order is too long")
            self.pid = os.posix_spawn(words[0], list(words), dict(environment), file_actions=actions, setsid=True)
        except OSError:
            os.close(self._out)
            raise
        finally:
            for each in (order_out, order_in, messages, nothing):
                os.close(each)
        os.set_blocking(self._out, False)
        self._buffer = b""
        self.is_open = True
        self.status: int | None = None

    def lines(self, seconds: float) -> list[bytes]:
        """The lines that come within so many seconds, as soon as there are any; none if there are none."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        if not self.is_open or not poll.poll(max(seconds, 0.0) * 1000):
            return []
        data = os.read(self._out, LONGEST_LINE)
        self.is_open = bool(data)
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > LONGEST_LINE:
            self.is_open = False  # nothing of ours writes such a line
        return lines

    def resident(self) -> int:
        """Bytes of resident memory; 0 where it cannot be told."""
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return 0

    def ended(self) -> int | None:
        """How it ended, as subprocess.Popen.returncode; None while it runs."""
        if self.status is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status

    def end(self) -> None:
        """Kill it and its children. One that a driver holds in the kernel ends when the driver lets go of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        os.close(self._out)
        self.is_open = False
        self.ended()
