"""Files that must outlive the process: written whole or not at all, sealed by a checksum, set aside when damaged."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path


class DamagedError(ValueError):
    """The content of a file cannot be used."""


def seal(form: str, body: bytes) -> bytes:
    """A body under a line that names its form and holds its checksum."""
    return f"{form} {zlib.crc32(body):08x}\n".encode("ascii") + body


def unseal(form: str, content: bytes) -> bytes:
    """The body of a sealed content. Raises DamagedError for another form, or where a byte has changed."""
    head, _, body = content.partition(b"\n")
    name, _, checksum = head.decode("ascii", "replace").partition(" ")
    if name != form:
        raise DamagedError(f"does not begin with {form}")
    if checksum != f"{zlib.crc32(body):08x}":
        raise DamagedError("its checksum is wrong")
    return body


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step that a crash cannot tear. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")  # two processes must not write the same one
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
