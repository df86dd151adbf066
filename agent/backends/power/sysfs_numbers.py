"""Reads one number or word from sysfs; a failure has its reason."""

from __future__ import annotations

import errno

from agent.backends.protocol import DeviceError
from agent.backends.sysfs import list_names, text
from agent.model import Reason

DENIED = frozenset({errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE})
UNSUPPORTED = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.EISDIR})
# acpi_power_meter answers EBUSY, ENODATA or ETIMEDOUT while its firmware does not deliver.
LATE = frozenset({errno.EBUSY, errno.ENODATA, errno.ETIMEDOUT, errno.EAGAIN})


def read_text(path: str) -> str:
    """Return the file's text without white space around it. Raises DeviceError naming the file."""
    try:
        return text(path)
    except OSError as error:
        raise _told(path, error) from error


def read_name(path: str) -> str:
    """Return the words that name a device. Raises DeviceError naming the file."""
    name = read_text(path)
    if not name or len(name) > 64 or not name.isprintable():
        raise DeviceError(Reason.MALFORMED, f"{path}: {name[:40]!a} is not a valid name")
    return name


def read_number(path: str) -> int:
    """Return a whole number that is not negative. Raises DeviceError naming the file."""
    said = read_text(path)
    if not (said.isascii() and said.isdigit() and len(said) <= 20):
        raise DeviceError(Reason.MALFORMED, f"{path}: {said[:40]!a} is not a whole number")
    return int(said)


class NumberFile:
    """A file with a whole number, for a relay."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> int | DeviceError:
        """Return the number, or the error."""
        try:
            return read_number(self.path)
        except DeviceError as error:
            return error


class DirectoryEntries:
    """Those entries of a directory whose names begin with a prefix, for a relay."""

    def __init__(self, path: str, prefix: str) -> None:
        self.path = path
        self._prefix = prefix

    def read(self) -> list[str] | DeviceError:
        """Return the paths of the entries, in order; none if there is no such directory."""
        try:
            return [f"{self.path}/{name}" for name in list_names(self.path) if name.startswith(self._prefix)]
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return []
            return _told(self.path, error)


def _told(path: str, error: OSError) -> DeviceError:
    remedy = "; raise LimitNOFILE in the unit, or ulimit -n" if error.errno == errno.EMFILE else ""
    return DeviceError(_reason(error), f"{path}: {error.strerror or error}{remedy}")


def _reason(error: OSError) -> Reason:
    if error.errno in DENIED:
        return Reason.DENIED
    if error.errno in UNSUPPORTED:
        return Reason.UNSUPPORTED
    return Reason.TIMEOUT if error.errno in LATE else Reason.LOST
