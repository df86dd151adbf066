"""Writes the files that outlive the process, in a separate thread: a disk that hangs must not block anything else.

Only the newest content of a file counts. A failed write is retried until it succeeds, or until newer content replaces
it.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import NamedTuple

from agent.lib.durable import replace_file
from agent.lib.threads import Threads

log = logging.getLogger("coldplate.state")

AGAIN_SECONDS = 5.0
"""Seconds until a failed write is tried again."""


class FileState(NamedTuple):
    """The state of one file: whether its newest content is on the disk, as far as is known, and failed attempts."""

    name: str
    good: bool
    failures: int


class StateFiles:
    """The writer of all state files."""

    def __init__(self, threads: Threads) -> None:
        self._work = threading.Condition()
        self._wanted: dict[Path, bytes] = {}
        self._states: dict[Path, FileState] = {}
        self._stopping = False
        self._thread = threads.begin("state", self._run)

    def put(self, path: Path, content: bytes) -> None:
        """Have this content written to the file soon. Returns at once."""
        with self._work:
            self._wanted[path] = content
            self._states.setdefault(path, FileState(path.name, True, 0))
            self._work.notify()

    def stop(self, seconds: float) -> None:
        """Write what is left, and end; wait at most this many seconds for the disk."""
        with self._work:
            self._stopping = True
            self._work.notify()
        if not self._thread.join(seconds):
            log.warning("state not written within %.0f s; stopping without it", seconds)

    def states(self) -> list[FileState]:
        """The state of each file. For any thread."""
        with self._work:
            return list(self._states.values())

    def _run(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._wanted or self._stopping)
                if not self._wanted:
                    return
                path, content = next(iter(self._wanted.items()))
            good = self._write(path, content)
            with self._work:
                if self._wanted[path] is content:  # else there is newer content
                    del self._wanted[path]
                    if not good and not self._stopping:
                        self._wanted[path] = content  # after the others
                if not good:
                    self._work.wait_for(lambda: self._stopping, AGAIN_SECONDS)

    def _write(self, path: Path, content: bytes) -> bool:
        before = self._states[path]
        try:
            made = not path.parent.exists()
            replace_file(path, content)
        except OSError as error:
            self._states[path] = FileState(path.name, False, before.failures + 1)
            if before.good:
                log.warning("cannot write %s: %s; retrying, a restart before that loses this state", path, error)
            return False
        self._states[path] = FileState(path.name, True, before.failures)
        if made:
            log.warning("created the missing state directory %s as user %d", path.parent, os.geteuid())
        if not before.good:
            log.info("%s can be written again", path)
        return True
