"""What an operating system's error means for a reading: the reason of its gap, and words with the remedy."""

from __future__ import annotations

import errno
import os

from agent.backends.protocol import DeviceError
from agent.model import Reason

_REASONS = {
    **dict.fromkeys((errno.EOPNOTSUPP, errno.ENOSYS, errno.EISDIR), Reason.UNSUPPORTED),
    # Netlink's answer to a flag that the kernel does not know yet, and that of ConnectX-7 in switch mode for
    # VL15_dropped (node_exporter issue 3265).
    errno.EINVAL: Reason.UNSUPPORTED,
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.EAFNOSUPPORT), Reason.DENIED),
    # A device that is there and has no value now: acpi_power_meter answers EBUSY, ENODATA or ETIMEDOUT while its
    # firmware does not deliver, adapters ETIMEDOUT while theirs does not answer the driver.
    **dict.fromkeys((errno.EBUSY, errno.ENODATA, errno.ETIMEDOUT, errno.EAGAIN, errno.EINTR), Reason.TIMEOUT),
    errno.EBADMSG: Reason.MALFORMED,
}
_REMEDIES = {
    errno.EMFILE: "raise LimitNOFILE in the unit, or ulimit -n",
    errno.ENFILE: "raise the sysctl fs.file-max",
}


def reason_of(error: OSError, *, missing: Reason = Reason.LOST) -> Reason:
    """Return the reason of a failed read's gap: `missing` for a file that is not there.

    An errno that is not in the table (EIO, ENODEV) is a lost device.
    """
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return missing
    return _REASONS.get(error.errno or errno.EIO, Reason.LOST)


def describe_error(error: OSError) -> str:
    """Describe a failed read, with the remedy if there is one."""
    number = error.errno or errno.EIO
    return ": ".join(filter(None, (os.strerror(number), _REMEDIES.get(number))))


def device_error(path: str, error: OSError, *, missing: Reason = Reason.LOST) -> DeviceError:
    """Return a failed read of a path as a DeviceError, whose detail begins with the path."""
    return DeviceError(reason_of(error, missing=missing), f"{path}: {describe_error(error)}")
