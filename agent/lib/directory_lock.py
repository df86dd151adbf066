"""An advisory lock on a directory, so that two agents do not write the same files.

The kernel releases it when the process ends, however that happens (flock(2)); the file stays.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Callable
from pathlib import Path

from agent.lib.wording import one_line

FILE = "agent.lock"
WAIT_SECONDS = 5.0
"""Seconds for which an agent that starts waits for one that is still stopping, as at the restart of a container."""
RETRY_SECONDS = 0.1
MAX_HOLDER_BYTES = 400

log = logging.getLogger("coldplate.state")


class DirectoryInUseError(Exception):
    """Another process holds the lock; the text says which, as far as it has written that."""


class DirectoryLock:
    """Holds a lock until `stop`; a part of the daemon."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def start(self) -> None:
        """Do nothing: the lock is held before the daemon's parts read their state."""

    def stop(self) -> None:
        """Release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_directory(
    folder: Path, holder: str, wait: Callable[[float], None], seconds: float = WAIT_SECONDS
) -> DirectoryLock | None:
    """Lock a directory, which is created if it is missing; `holder` is shown to those who try it meanwhile.

    Wait up to `seconds` for the process that holds it; `wait` sleeps for a number of seconds. Return None where the
    directory offers no lock, such as one that cannot be written, after a warning: an agent that keeps no files still
    reports. Raises DirectoryInUseError.
    """
    path = folder / FILE
    try:
        if not folder.exists():
            folder.mkdir(parents=True)
            log.warning("created the missing directory %s as user %d", folder, os.geteuid())
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        _warn(folder, error)
        return None
    try:
        return _lock(descriptor, folder, holder, wait, seconds)
    except BaseException:
        os.close(descriptor)
        raise


def _lock(
    descriptor: int, folder: Path, holder: str, wait: Callable[[float], None], seconds: float
) -> DirectoryLock | None:
    for attempt in range(1 + round(seconds / RETRY_SECONDS)):
        if attempt == 1:
            log.info("directory in use: waiting for %s to stop", _holder(descriptor))
        if attempt:
            wait(RETRY_SECONDS)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError as error:
            _warn(folder, error)
            os.close(descriptor)
            return None
        with contextlib.suppress(OSError):  # a full disk costs the name of the holder alone
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{holder}\n".encode(), 0)
        return DirectoryLock(descriptor)
    raise DirectoryInUseError(_holder(descriptor))


def _holder(descriptor: int) -> str:
    try:
        text = os.pread(descriptor, MAX_HOLDER_BYTES, 0).decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    return one_line(text) or "another process"


def _warn(folder: Path, error: OSError) -> None:
    reason = error.strerror or error
    log.warning("directory %s not locked: %s; another agent that uses it would not be noticed", folder, reason)
