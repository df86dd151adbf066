"""Reading one number or word from sysfs, with the reason when there is none."""

from __future__ import annotations

import errno
from pathlib import Path

from agent.backends.protocol import DeviceError
from agent.model import Reason

MAX_BYTES = 4096  # a sysfs file is a page at most


def read_text(path: Path) -> str:
    """The file's text without white space around it. Raises DeviceError naming the file."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode("utf-8", errors="replace").strip()
    except OSError as error:
        raise DeviceError(_reason(error), f"{path}: {error.strerror or error}") from error


def read_count(path: Path) -> int:
    """A whole number that is not negative. Raises DeviceError naming the file."""
    text = read_text(path)
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise DeviceError(Reason.MALFORMED, f"{path}: {text[:40]!r} is no whole number")
    return int(text)


def _reason(error: OSError) -> Reason:
    if error.errno in (errno.EACCES, errno.EPERM):
        return Reason.DENIED
    if error.errno in (errno.ENOENT, errno.EOPNOTSUPP):
        return Reason.UNSUPPORTED
    # acpi_power_meter answers EBUSY, ENODATA or ETIMEDOUT while its firmware does not deliver.
    if error.errno in (errno.EBUSY, errno.ENODATA, errno.ETIMEDOUT, errno.EAGAIN):
        return Reason.TIMEOUT
    return Reason.LOST
