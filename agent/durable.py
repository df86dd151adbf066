"""Small files that must outlive the process: written whole or not at all, and set aside when they are damaged."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step that a crash cannot tear. Raises OSError."""
    fresh = path.with_suffix(".new")
    path.parent.mkdir(parents=True, exist_ok=True)
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def set_aside(path: Path) -> Path:
    """Rename a damaged file, for whoever wants to know what happened; its new name, whether or not that worked."""
    aside = path.with_suffix(".damaged")
    with contextlib.suppress(OSError):
        path.replace(aside)
    return aside
