"""From the bytes of a sysfs file to a number, or to the reason why there is none.

Pure functions. They reject what they do not fully understand: half a number is not a number.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable

from agent.catalogue.infiniband import PHYSICAL_STATE_ID, RATE, STATE_ID
from agent.model import Metric, Reason

SIZE = 64
"""Bytes requested of a file: twice the longest content that is valid."""

GIGABIT = 125_000_000
"""Bytes per second in 1 Gb/s."""

_CODE = re.compile(rb"(\d{1,3}):[ \w-]*\Z")
_RATE = re.compile(rb"(\d{1,9}(?:\.\d{1,6})?) *Gb/sec\b", re.IGNORECASE)

_REASONS = {
    errno.EINVAL: Reason.UNSUPPORTED,  # ConnectX-7 in switch mode, VL15_dropped (node_exporter issue 3265)
    errno.EOPNOTSUPP: Reason.UNSUPPORTED,
    errno.ENOSYS: Reason.UNSUPPORTED,
    errno.ENODATA: Reason.UNSUPPORTED,
    errno.EISDIR: Reason.UNSUPPORTED,
    errno.EACCES: Reason.DENIED,
    errno.EPERM: Reason.DENIED,
    errno.EMFILE: Reason.DENIED,  # the limit is the user's: LimitNOFILE
    errno.ENFILE: Reason.DENIED,
    errno.ETIMEDOUT: Reason.TIMEOUT,  # the adapter's firmware did not answer the driver
    errno.EAGAIN: Reason.TIMEOUT,
    errno.EBUSY: Reason.TIMEOUT,
    errno.EINTR: Reason.TIMEOUT,
}


class UnreadableError(ValueError):
    """The content is not a value; `reason` says which kind of absence that is."""

    def __init__(self, reason: Reason, why: str) -> None:
        super().__init__(why)
        self.reason = reason
        self.why = why


def reason_of(error: OSError) -> Reason:
    """What a failed read means. An errno that is not in the table (EIO, ENODEV, ...) is a lost device."""
    return _REASONS.get(error.errno or 0, Reason.LOST)


def why(error: OSError) -> str:
    """A failed read in words, with the remedy where there is one."""
    said = os.strerror(error.errno or errno.EIO)
    if error.errno == errno.EMFILE:
        return f"{said}: raise LimitNOFILE in the unit, or ulimit -n"
    if error.errno == errno.ENFILE:
        return f"{said}: raise the sysctl fs.file-max"
    return said


def counter(raw: bytes) -> int:
    """A counter of up to 64 bits."""
    text = raw.strip()
    if text.isdigit() and len(text) < SIZE:
        value = int(text)
        if value < 1 << 64:
            return value
    raise _refused(text, "a counter of at most 64 bits")


def code(raw: bytes) -> int:
    """The code of a state: `4: ACTIVE` is 4."""
    text = raw.strip()
    found = _CODE.match(text)
    if found is None:
        raise _refused(text, "a state such as '4: ACTIVE'")
    return int(found[1])


def rate(raw: bytes) -> int:
    """A rate in bytes per second: `400 Gb/sec (4X NDR)` is 50,000,000,000."""
    text = raw.strip()
    found = _RATE.match(text)
    if found is None:
        raise _refused(text, "a rate such as '400 Gb/sec (4X NDR)'")
    return round(float(found[1]) * GIGABIT)


DECODERS: dict[Metric, Callable[[bytes], int]] = {STATE_ID: code, PHYSICAL_STATE_ID: code, RATE: rate}
"""Rows whose file holds something other than a plain number."""


def _refused(text: bytes, wanted: str) -> UnreadableError:
    if not text:
        return UnreadableError(Reason.MALFORMED, f"is empty, expected {wanted}")
    shown = ascii(text[:32].decode("utf-8", "replace"))
    if text.upper().startswith(b"N/A"):  # 'N/A (no PMA)': iWARP drivers (node_exporter issue 966)
        return UnreadableError(Reason.UNSUPPORTED, f"contains {shown}")
    return UnreadableError(Reason.MALFORMED, f"contains {shown}, expected {wanted}")
