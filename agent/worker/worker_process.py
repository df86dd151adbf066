"""The worker as a process: start, pipes, memory, signals, and its log. Nothing here waits for it.

The only place in the agent that starts a process. What the worker writes to its standard error, its log and whatever a
library writes there, is relayed to ours. A broken library may write gigabytes, and a journal or a container's log file
would store them: only a limited amount is relayed, in whole lines, with a note that lines were dropped. The worker's
end of the pipe does not block: what does not fit is lost, because a GPU must not wait for a log reader.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

from agent.worker.worker_messages import MAX_LINE

log = logging.getLogger("coldplate.worker")

ROOM = 64 * 2**10
"""Bytes that may come in a burst: a traceback of every thread, and a page of log lines."""
RATE = 256.0
"""Bytes a second that may come permanently: 22 MB a day."""
LINE = 8 * 2**10
"""A longer line is passed on in pieces."""
CHUNK = 2**16
"""Bytes that a pipe holds (pipe(7))."""
_UNPRINTABLE = bytes.maketrans(bytes([*range(9), *range(10, 32), 127]), b"?" * 32)


class LogRelay:
    """Passes lines from one descriptor on to another, within a bound. Never blocks on the source."""

    def __init__(self, source: IO[bytes], target: int) -> None:
        self._source = source
        self._target = target
        self._buffer = b""
        self._room = float(ROOM)
        self._filled_at: float | None = None
        self._left_out = 0

    def pass_on(self, now: float) -> None:
        """Read what there is, and pass on what there is room for. `now` in monotonic seconds."""
        if self._filled_at is not None:
            self._room = min(self._room + RATE * (now - self._filled_at), ROOM)
        self._filled_at = now
        data = self._read()
        if not data:
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        if len(self._buffer) > LINE:
            lines.append(self._buffer[:LINE])
            self._buffer = b""
        self._hand_on(lines)

    def close(self) -> None:
        """Pass on the last output of a writer that is gone."""
        self._hand_on([self._buffer] if self._buffer else [])
        if self._left_out:
            self._log_dropped()
        self._source.close()

    def _hand_on(self, lines: list[bytes]) -> None:
        out = []
        for line in lines:
            # Once lines are being dropped, they are until there is room for more than a few again.
            if self._room < (ROOM / 4 if self._left_out else len(line) + 1):
                self._left_out += 1
                continue
            if self._left_out:
                self._log_dropped()
            self._room -= len(line) + 1
            out.append(line.translate(_UNPRINTABLE) + b"\n")
        if out:
            with contextlib.suppress(OSError):
                os.write(self._target, b"".join(out))

    def _log_dropped(self) -> None:
        log.warning("the device worker logs too much: at least %d lines were dropped", self._left_out)
        self._left_out = 0

    def _read(self) -> bytes:
        try:
            return os.read(self._source.fileno(), CHUNK)
        except OSError:
            return b""


ROOT = str(Path(__file__).resolve().parents[2])


def boot_of(module: str) -> str:
    """Return a program that runs a module of this very package, where `python -m` looks into the current directory."""
    return f"import sys, runpy; sys.path.insert(0, {ROOT!r}); runpy.run_module({module!r}, run_name='__main__')"


MOST_AT_ONCE = 2**18
"""Bytes read from the worker at once: one that writes faster than we read must not keep us here."""
READ_BYTES = 2**16
"""Bytes of one read, as many as a pipe holds."""
STANDARD_ERROR = 2


def run_module(module: str, stdin: bytes, seconds: float) -> tuple[int, bytes, bytes]:
    """Run a module of this package to its end, `stdin` on its standard input.

    Returns its exit status, standard output and standard error.

    Raises TimeoutError if it takes longer, and OSError.
    """
    process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-I", "-c", boot_of(module)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        output, error = process.communicate(stdin, seconds)
    except subprocess.TimeoutExpired:
        process.kill()  # not waited for: a process that hangs in the kernel does not end
        raise TimeoutError from None
    return process.returncode, output, error


class ChildProcess:
    """A worker in a process of its own. Raises OSError when none can be started; no method blocks or raises."""

    def __init__(self, argument: str) -> None:
        command = [sys.executable, "-I", "-c", boot_of("agent.worker"), argument]
        pipe = subprocess.PIPE
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, bufsize=0
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._orders, self._messages = process.stdin, process.stdout
        for stream in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
        self._relay = LogRelay(process.stderr, STANDARD_ERROR)
        self._buffer = b""
        self.pid = process.pid
        self.descriptor: int | None = process.stdout.fileno()
        """The descriptor to poll for messages."""

    def status(self) -> int | None:
        """Return how it ended, as subprocess.Popen.returncode; None while it runs."""
        return self._process.poll()

    def order(self, line: bytes) -> bool:
        """Send an order; False if it accepts none."""
        if self.descriptor is None:
            return False
        try:
            os.write(self._orders.fileno(), line)
        except OSError:
            return False  # full or broken pipe: the silence that follows will show it
        return True

    def lines(self, now: float) -> list[bytes]:
        """Return the complete lines that have come, without their ends, and what was read of one that is too long."""
        self._relay.pass_on(now)
        if self.descriptor is None:
            return []
        parts, byte_count = [self._buffer], 0
        while byte_count < MOST_AT_ONCE:
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                break
            parts.append(data)
            byte_count += len(data)
            if len(data) < READ_BYTES:
                break  # the pipe is empty
        *lines, self._buffer = b"".join(parts).split(b"\n")
        if len(self._buffer) > MAX_LINE:
            lines.append(self._buffer[:MAX_LINE])
            self._buffer = b""
        return lines

    def resident(self) -> int | None:
        """Return bytes of resident memory; None if not known."""
        # proc(5): the second number of statm is the resident pages. Reading the file takes no lock of the memory map,
        # so that we do not hang with a process that hangs in the kernel.
        try:
            return int(Path(f"/proc/{self.pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, ValueError, IndexError):
            return None

    def signal(self, *numbers: int) -> None:
        for number in numbers:
            self._process.send_signal(number)

    def close(self, now: float) -> None:
        self._relay.pass_on(now)
        self._relay.close()
        self.descriptor = None
        self._orders.close()
        self._messages.close()


def exit_text(status: int) -> str:
    """Return a text that says how a process ended."""
    if status < 0:
        return f"was killed by signal {-status} ({signal.strsignal(-status) or 'unknown'})"
    return f"ended with status {status}"
