"""Files that must outlive the process: written atomically, with a checksum, and set aside when damaged."""

from __future__ import annotations

import contextlib
import os
import zlib
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from agent.lib import textfile

if TYPE_CHECKING:
    from typing_extensions import Buffer  # of collections.abc only since Python 3.12

MOST = 128 * 2**20
"""Most bytes of a file that is read: twice what the windows may take. A damaged filesystem may show any size."""
_UNFINISHED = ".new"


class DamagedError(ValueError):
    """The content of a file cannot be used."""


def seal(form: str, *body: Buffer) -> bytes:
    """The parts of a body below a line with the name of its form and its checksum."""
    checksum = reduce(lambda so_far, part: zlib.crc32(part, so_far), body, 0)
    return b"".join((f"{form} {checksum:08x}\n".encode("ascii"), *body))


def unseal(form: str, content: bytes) -> bytes:
    """The body of sealed content. Raises DamagedError for another form, or if a byte has changed."""
    head, _, body = content.partition(b"\n")
    name, _, checksum = head.decode("ascii", "replace").partition(" ")
    if name != form:
        raise DamagedError(f"does not start with {form}")
    if checksum != f"{zlib.crc32(body):08x}":
        raise DamagedError("its checksum is wrong")
    return body


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, so that neither a crash nor a power failure leaves half of it. Raises OSError."""
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
    """Remove what processes left behind that were killed while writing."""
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
    """Write the directory itself to disk; some filesystems do not offer that, and nothing goes wrong without it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_whole(path: Path) -> bytes:
    """The content of a file.

    Raises OSError if there is none or it cannot be read, and DamagedError for what the agent cannot have written: a
    file that is too large, or not a regular one.
    """
    try:
        return textfile.read_bytes(path, MOST)
    except textfile.ReadError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise DamagedError(error.problem) from None


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that it can be examined; returns its new name, even if that failed."""
    aside = path.with_suffix(".damaged")
    with contextlib.suppress(OSError):
        path.replace(aside)
    return aside
