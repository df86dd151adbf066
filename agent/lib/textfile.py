"""Reads files written by others: a path may lead to a pipe without a writer, to a device, or to far too much data.

Nothing here waits for a writer, except for a pipe that was passed on the command line. It does wait for
the file system: a network mount whose server is gone blocks `stat`, `open` and `read` indefinitely.
"""

import os
import re
import stat
from pathlib import Path

from agent.lib.wording import shown_path

CONFIGURATION = 1024 * 1024
RULES = 4 * 1024 * 1024
"""A rule file: some 10,000 rules, which are then counted and refused by their number."""
SCENARIO = 256 * 1024
PEERS = 64 * 1024
SECRET = 64 * 1024
CERTIFICATES = 4 * 1024 * 1024
"""A bundle of certificates; those of the distributions take a quarter of a mebibyte."""

_HANDED = re.compile(r"/dev/stdin|/(?:dev|proc/self)/fd/(\d{1,9})")
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_NULL = (1, 3)  # major and minor number of /dev/null on Linux
_TRIES = 3
_CHUNK = 256 * 1024
_KINDS = (
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class ReadError(ValueError):
    """A file cannot be read. `problem` says why, without the path; `missing` says that it does not exist."""

    def __init__(self, path: Path | str, problem: str, *, missing: bool = False) -> None:
        self.problem = problem
        self.missing = missing
        super().__init__(f"{shown_path(path)}: {problem}")


def read_text(path: Path | str, most: int, *, handed: bool = False) -> str:
    """Return the text of a file of at most `most` bytes, without a byte order mark.

    Raises ReadError; see `read_bytes`.
    """
    content = read_bytes(path, most, handed=handed)
    try:
        return content.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        problem = f"is not UTF-8 text: byte 0x{content[error.start]:02x} on line {line}; save it as UTF-8"
        raise ReadError(path, problem) from None


def read_bytes(path: Path | str, most: int, *, handed: bool = False) -> bytes:
    """Return the content of a file of at most `most` bytes. Raises ReadError.

    With `handed`, `/dev/stdin` and `/dev/fd/N` may be a pipe, which is read to its end. Anything else that is not a
    regular file is refused unread, except /dev/null, which stands for an empty file.
    """
    try:
        descriptor = descriptor_of(path)
        if descriptor is not None and _is_pipe(descriptor):
            if not handed:
                raise ReadError(path, "is a pipe, which can be read only once; give a regular file")
            os.set_blocking(descriptor, True)
            return _up_to(path, descriptor, most, 0)
        for _ in range(_TRIES):
            content = _read(path, descriptor, most)
            if content is not None:
                return content
    except ReadError:
        raise
    except ValueError:  # a name with a NUL, or with something else that no file name can have
        raise ReadError(path, "is not a valid file name") from None
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ReadError(path, f"cannot be read: {reason}", missing=isinstance(error, FileNotFoundError)) from error
    raise ReadError(path, "changed while it was read; write a new file and rename it into place")


def stamp_of(path: Path | str) -> tuple[int, ...]:
    """Return what changes with a file, or with what a link leads to. Raises OSError."""
    status = Path(path).stat()
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev


def descriptor_of(path: Path | str) -> int | None:
    """Return the descriptor of this process that a path names, if any: `/dev/stdin`, or a shell's `<(...)`."""
    match = _HANDED.fullmatch(str(path))
    return None if match is None else int(match[1] or 0)


def _is_pipe(fd: int) -> bool:
    """Return whether a descriptor is a pipe, which may have been passed on to be read once, to its end."""
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(fd)


def _refuse(path: Path | str, status: os.stat_result) -> None:
    """Refuse what is not a regular file, before it is opened: opening a device may have an effect."""
    null = stat.S_ISCHR(status.st_mode) and (os.major(status.st_rdev), os.minor(status.st_rdev)) == _NULL
    if stat.S_ISREG(status.st_mode) or null:
        return
    kind = next((name for test, name in _KINDS if test(status.st_mode)), "something else")
    remedy = "name a file in it" if kind == "a directory" else "give a regular file"
    raise ReadError(path, f"is {kind}, not a file; {remedy}")


def _read(path: Path | str, descriptor: int | None, most: int) -> bytes | None:
    """Return the content; None if the file changed meanwhile. Raises OSError and ReadError.

    A descriptor is used as it is, from its beginning: opening it by its path would need more permissions.
    """
    _refuse(path, Path(path).stat())
    fd = os.open(path, _FLAGS) if descriptor is None else os.dup(descriptor)
    try:
        if descriptor is not None:
            os.lseek(fd, 0, os.SEEK_SET)
        before = os.fstat(fd)
        _refuse(path, before)  # the name may refer to another file by now
        content = _up_to(path, fd, most, before.st_size)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    same = (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
    return content if same else None


def _up_to(path: Path | str, fd: int, most: int, expected: int) -> bytes:
    """Return all data up to the limit. If as many bytes come as are expected, they are in memory only once."""
    pieces, remaining = [], most + 1 if expected <= most else 0
    while remaining and (data := os.read(fd, min(remaining, max(expected + 1, _CHUNK)))):
        pieces.append(data)
        remaining -= len(data)
    if not remaining:
        size = f"{most // 2**20} MiB" if most >= 2**20 else f"{most // 2**10} KiB"
        raise ReadError(path, f"is larger than {size}; is it the right file?")
    return b"".join(pieces)
