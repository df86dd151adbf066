"""Reading the small files from which jobs are learned."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

ReadFile = Callable[[str, int], bytes]
"""Path and most bytes to read, to content. Raises OSError."""

GONE = frozenset({errno.ENOENT, errno.ESRCH, errno.ENODEV})
"""A process that ended: its directory is gone, or an open file of it answers ESRCH."""
REFUSED = frozenset({errno.EACCES, errno.EPERM})

# Not blocking: in a directory that others write, a name may be a pipe that nobody feeds.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def read_file(path: str, most: int) -> bytes:
    """The file's content, `most` bytes of it. Raises OSError."""
    fd = os.open(path, _FLAGS)
    try:
        parts = []
        while most > 0 and (data := os.read(fd, most)):
            parts.append(data)
            most -= len(data)
        return b"".join(parts)
    finally:
        os.close(fd)


def said(path: str, error: OSError) -> str:
    """The error with its file, for people."""
    return f"{path}: {os.strerror(error.errno or errno.EIO)}"
