"""Relays the worker's standard error to ours: its log, and whatever a library writes there.

A broken library may write gigabytes, and a journal or a container's log file would store them. So only a limited
amount is relayed, in whole lines, with a note that lines were dropped. The worker's end of the pipe does not
block: what does not fit is lost, because a GPU must not wait for a log reader.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import IO

log = logging.getLogger("coldplate.worker")

ROOM = 64 * 2**10
"""Bytes that may come in a burst: a traceback of every thread, and a page of log lines."""
RATE = 256.0
"""Bytes a second that may come permanently: 22 MB a day."""
LINE = 8 * 2**10
"""A longer line is passed on in pieces."""
CHUNK = 2**16
"""What a pipe holds (pipe(7))."""
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
        """The writer is gone: pass on its last output."""
        self._hand_on([self._buffer] if self._buffer else [])
        if self._left_out:
            self._tell()
        self._source.close()

    def _hand_on(self, lines: list[bytes]) -> None:
        out = []
        for line in lines:
            # Once lines are being dropped, they are until there is room for more than a few again.
            if self._room < (ROOM / 4 if self._left_out else len(line) + 1):
                self._left_out += 1
                continue
            if self._left_out:
                self._tell()
            self._room -= len(line) + 1
            out.append(line.translate(_UNPRINTABLE) + b"\n")
        if out:
            with contextlib.suppress(OSError):
                os.write(self._target, b"".join(out))

    def _tell(self) -> None:
        log.warning("the device worker logs too much: at least %d lines were dropped", self._left_out)
        self._left_out = 0

    def _read(self) -> bytes:
        try:
            return os.read(self._source.fileno(), CHUNK)
        except OSError:
            return b""
