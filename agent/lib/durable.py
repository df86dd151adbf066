"""Files that must outlive the process: written atomically, with a checksum, and set aside when damaged."""

from __future__ import annotations

import contextlib
import os
import zlib
from pathlib import Path

from agent.lib import textfile

MOST = 128 * 2**20
"""Bytes of a file that is read: twice what the windows may take. A damaged filesystem shows sizes of its own."""
_UNFINISHED = ".new"


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
        raise DamagedError(f"does not start with {form}")
    if checksum != f"{zlib.crc32(body):08x}":
        raise DamagedError("its checksum is wrong")
    return body


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file in one step that a crash cannot tear, and that outlasts a power failure. Raises OSError."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}{_UNFINISHED}")  # two processes must not write the same one
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with fresh.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    _sync(path.parent)


def clear_unfinished(folder: Path) -> None:
    """Remove what processes that were killed while they wrote have left behind."""
    with contextlib.suppress(OSError):
        for left in folder.glob(f"*{_UNFINISHED}"):
            pid = left.name.removesuffix(_UNFINISHED).rpartition(".")[2]
            if pid.isascii() and pid.isdigit() and not _is_alive(int(pid)):
                left.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return pid != os.getpid()


def _sync(folder: Path) -> None:
    """Have the directory itself written; some filesystems do not offer that, and none needs it to be right."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_whole(path: Path) -> bytes:
    """The content of a file.

    Raises OSError where there is none or the system does not give it, and DamagedError for what cannot be a file of
    ours: larger than any, or no regular file.
    """
    try:
        return textfile.read_bytes(path, MOST)
    except textfile.ReadError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise DamagedError(error.problem) from None


def set_aside(path: Path) -> Path:
    """Rename a damaged file, for whoever wants to know what happened; its new name, whether or not that worked."""
    aside = path.with_suffix(".damaged")
    with contextlib.suppress(OSError):
        path.replace(aside)
    return aside
