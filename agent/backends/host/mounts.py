"""Which filesystems are on block devices.

psutil reads the list of mounts in C with the interpreter's lock held: a mount that hangs there would block every thread
of the agent. So it is read here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

LIST_BYTES = 4 << 20
"""Bytes of the list of mounts that are read; on a node with hundreds of containers it has some hundred KiB."""

_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")
"""Escapes of blanks, backslashes and # in a field (`seq_path` and `mangle` in the kernel's fs/proc_namespace.c)."""


class Mount(NamedTuple):
    """One line of /proc/self/mounts."""

    device: str
    mountpoint: str
    fstype: str


def block_mounts(procfs: str) -> list[Mount]:
    """The mounts with a device behind them, and those of ZFS, in the kernel's order. Raises OSError."""
    types = _on_devices(_content(f"{procfs}/filesystems"))
    mounts = []
    for line in _content(f"{procfs}/self/mounts").split(b"\n"):
        fields = [_plain(field) for field in line.split(b" ", 3)[:3]]
        if len(fields) == 3 and fields[0] not in ("", "none") and fields[2] in types:
            mounts.append(Mount(*fields))
    return mounts


def _on_devices(filesystems: bytes) -> set[str]:
    rows = [line.split() for line in filesystems.split(b"\n")]
    return {_plain(row[-1]) for row in rows if len(row) == 1 or row == [b"nodev", b"zfs"]}


def _content(path: str) -> bytes:
    """A file's complete lines, as many as fit into the limit."""
    with Path(path).open("rb") as file:
        content = file.read(LIST_BYTES)
    return content[: content.rfind(b"\n") + 1]


def _plain(field: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), field))
