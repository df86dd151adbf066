"""Reads the small files that describe jobs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agent.backends.file_relay import FileRelay, Leg, Unread

PATIENCE_SECONDS = 0.25
"""Seconds to wait for one file: many processes may hang at once, in the driver of the same GPU."""

ReadFile = Callable[[str, int], bytes]
"""From a path and the most bytes to read, to the content. Raises OSError."""

GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV})
"""Errors of a process that ended: its directory is gone, or reading its open file fails with ESRCH."""
REFUSED = frozenset({errno.EACCES, errno.EPERM})

# Not blocking: in a directory that others can write, a name may be a pipe without a writer.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def read_file(path: str, most: int) -> bytes:
    """The file's content, at most `most` bytes of it. Raises OSError."""
    fd = os.open(path, _FLAGS)
    try:
        parts = []
        while most > 0 and (data := os.read(fd, most)):
            parts.append(data)
            most -= len(data)
        return b"".join(parts)
    finally:
        os.close(fd)


class Listing(NamedTuple):
    """What there is in a directory, in order: regular files, what must never be opened, and directories."""

    files: Sequence[str]
    odd: Sequence[str]
    folders: Sequence[str]


class Patient:
    """Reads files that may hang, such as the environment of a process that is stuck in the driver, holding its memory
    lock.

    A file that does not answer raises ETIMEDOUT, and is not read again until it answers. `mono` is the time of the
    look.
    """

    def __init__(self, read: ReadFile) -> None:
        self._relay = FileRelay("jobs", PATIENCE_SECONDS)
        self._read_file = read
        self.mono = 0.0

    def __call__(self, path: str, most: int) -> bytes:
        """The file's content. Raises OSError."""
        folder = path.rpartition("/")[0]
        ((answer,),) = self._relay.round([Leg(folder, [_Content(path, most, self._read_file)])], self.mono)
        if isinstance(answer, Unread):
            raise TimeoutError(errno.ETIMEDOUT, answer.detail)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def names(self, directory: str) -> Listing:
        """What there is in a directory. Raises OSError."""
        ((answer,),) = self._relay.round([Leg(directory, [_Listing(directory)])], self.mono)
        if isinstance(answer, Unread):
            raise TimeoutError(errno.ETIMEDOUT, answer.detail)
        if isinstance(answer, OSError):
            raise answer
        return answer

    def close(self) -> None:
        """End the reader."""
        self._relay.close()


class _Content:
    def __init__(self, path: str, most: int, read: ReadFile) -> None:
        self.path = path
        self._most = most
        self._read = read

    def read(self) -> bytes | Exception:
        try:
            return self._read(self.path, self._most)
        except Exception as error:
            return error


class _Listing:
    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> Listing | OSError:
        files: list[str] = []
        odd: list[str] = []
        folders: list[str] = []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    mode = _mode(entry)
                    kind = folders if stat.S_ISDIR(mode) else files if stat.S_ISREG(mode) else odd
                    kind.append(entry.name)
        except OSError as error:
            return error
        return Listing(sorted(files), sorted(odd), sorted(folders))


def _mode(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_mode
    except OSError:
        return stat.S_IFREG  # reading it will say why not


def said(path: str, error: OSError) -> str:
    """The error and its file, in words."""
    return f"{path}: {os.strerror(error.errno or errno.EIO)}"
