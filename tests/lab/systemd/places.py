"""The temporary folder of a machine, which goes with it; or with the next run, where its maker was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "coldplate-machine."
FOLDERS = Path("/var/tmp")
"""Not /tmp, which may be in memory: a machine takes up to a gigabyte."""


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A folder of this process's own."""
    for left in FOLDERS.glob(f"{PREFIX}*"):
        if not alive(left.name):
            shutil.rmtree(left, ignore_errors=True)
    prefix = f"{PREFIX}{os.getpid()}."
    with tempfile.TemporaryDirectory(prefix=prefix, dir=FOLDERS, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def alive(name: str) -> bool:
    """Whether the process is there that made what has this name."""
    return Path("/proc", name.removeprefix(PREFIX).partition(".")[0]).exists()
