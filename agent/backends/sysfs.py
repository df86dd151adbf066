"""What a directory and a small file of sysfs or procfs hold, within bounds, whatever stands there.

A driver decides what is there: how many entries a directory has, how long a file is, which bytes are in a name.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

ENTRIES = 1 << 17
"""Entries of one directory that are looked at: more is no directory of devices."""
PAGE = 4096
"""Bytes that a file of sysfs may have (Documentation/filesystems/sysfs.rst)."""
LABEL = 256
"""Characters of a label's value."""

FLAGS = os.O_RDONLY | os.O_CLOEXEC


def names(directory: Path | str) -> list[str]:
    """The names in a directory, in order. Raises OSError."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in islice(entries, ENTRIES))


def text(path: Path | str, size: int = PAGE) -> str:
    """A file's first bytes as text, without the white space around it. Raises OSError."""
    fd = os.open(path, FLAGS)
    try:
        return os.read(fd, size).decode("utf-8", "replace").strip("\0 \t\r\n")
    finally:
        os.close(fd)


def printable(name: str) -> str:
    """A name as the value of a label: what no terminal should be sent is escaped, and a long end is cut off."""
    shown = name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
    return shown[:LABEL]
