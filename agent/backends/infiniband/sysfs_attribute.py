"""Reads one sysfs file of a port as a number, or as a gap with its reason.

A read through an open descriptor costs a tenth of opening the file (sysfs regenerates the content for a read at offset
0). Content that is not valid as a whole is rejected, never parsed in part.
"""

import contextlib
import errno
import os
import re
from collections.abc import Callable
from os import pread

from agent.backends.file_reader_pool import CaughtRead
from agent.backends.protocol import DeviceError, device_error
from agent.backends.sysfs import FLAGS, text
from agent.catalogue.infiniband import ACTIVE, LINK_DOWN_EVENTS, PHYSICAL_STATE_ID, PORT_UP, RATE, STATE_ID
from agent.model import Gap, IbPort, Metric, Reading, Reason, Series

MAX_BYTES = 64
"""Bytes read of a file: twice the longest content that is valid."""

BYTES_PER_GIGABIT = 125_000_000

_CODE = re.compile(rb"(\d{1,3}):[ \w-]*\Z")
_RATE = re.compile(rb"(\d{1,9}(?:\.\d{1,6})?) *Gb/sec\b", re.IGNORECASE)


def parse_counter(raw: bytes) -> int:
    """Return an unsigned number of at most 64 bits. Raises DeviceError, as the other parsers do."""
    text = raw.strip()
    if text.isdigit() and len(text) < MAX_BYTES:
        value = int(text)
        if value < 1 << 64:
            return value
    raise _invalid(text, "a counter of at most 64 bits")


def parse_state_code(raw: bytes) -> int:
    """Return the code of a state: `4: ACTIVE` is 4."""
    text = raw.strip()
    match = _CODE.match(text)
    if match is None:
        raise _invalid(text, "a state such as '4: ACTIVE'")
    return int(match[1])


def parse_rate(raw: bytes) -> int:
    """Return a rate in bytes per second: `400 Gb/sec (4X NDR)` is 50,000,000,000."""
    text = raw.strip()
    match = _RATE.match(text)
    if match is None:
        raise _invalid(text, "a rate such as '400 Gb/sec (4X NDR)'")
    return round(float(match[1]) * BYTES_PER_GIGABIT)


DECODERS: dict[Metric, Callable[[bytes], int]] = {
    STATE_ID: parse_state_code,
    PHYSICAL_STATE_ID: parse_state_code,
    RATE: parse_rate,
}
"""Parsers of the metrics whose file holds something other than a plain number."""


def _invalid(text: bytes, expected: str) -> DeviceError:
    if not text:
        return DeviceError(Reason.MALFORMED, f"is empty, expected {expected}")
    content = ascii(text[:32].decode("utf-8", "replace"))
    if text.upper().startswith(b"N/A"):  # 'N/A (no PMA)': iWARP drivers (node_exporter issue 966)
        return DeviceError(Reason.UNSUPPORTED, f"contains {content}")
    return DeviceError(Reason.MALFORMED, f"contains {content}, expected {expected}")


class LinkStateTracker:
    """Follows one port's state: whether it is up, and how often it has left the active state."""

    __slots__ = ("_active", "_count", "_events", "_up")

    def __init__(self, entity: IbPort) -> None:
        self._up = Series(PORT_UP, entity)
        self._events = Series(LINK_DOWN_EVENTS, entity)
        self._active = False
        self._count = 0

    def follow(self, state: Reading | Gap | DeviceError, readings: list[Reading], gaps: list[Gap]) -> None:
        """Take in a state, or why it could not be read; add whether the link is up, and how often it has gone down."""
        if isinstance(state, Reading):
            active = state.value == ACTIVE
            self._count += self._active and not active
            self._active = active
            readings.append(Reading(self._up, 1 if active else 0))
        else:
            gaps.append(Gap(PORT_UP, self._up.entity, state.reason, state.detail))
        readings.append(Reading(self._events, self._count))


DEVICE_GONE_ERRNOS = frozenset({errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOENT, errno.EBADF})
"""Errors of an open descriptor whose device went away; there may be a new device at the same path."""


class SysfsAttribute:
    """A sysfs attribute of a port, its series, and its open descriptor `fd` (-1: none).

    `keep_open` says whether the descriptor may stay open after a read. While `read` is in progress, or hangs, no other
    thread may use the attribute. `tracker` follows the port's state, if this is the file that has it.
    """

    __slots__ = ("_raw", "_reading", "decode", "fd", "keep_open", "path", "scale", "series", "tracker")

    def __init__(self, path: str, series: Series, scale: float, tracker: LinkStateTracker | None) -> None:
        self.path = path
        self.series = series
        self.scale = int(scale) if scale == int(scale) else scale  # so that counters stay exact integers
        self.decode = DECODERS.get(series.metric, parse_counter)
        self.tracker = tracker
        self.fd = -1
        self.keep_open = False
        self._raw: bytes | None = None
        """The content of which `_reading` was made."""
        self._reading = Reading(series, 0)

    def read(self) -> Reading | Gap:
        try:
            raw = pread(self.fd, MAX_BYTES, 0) if self.fd >= 0 else self._open()
        except OSError as error:
            if self.fd < 0 or error.errno not in DEVICE_GONE_ERRNOS:
                return self.gap(device_error(self.path, error, missing=self._reason_if_missing()))
            if error.errno == errno.EBADF:
                self.fd = -1  # the number may belong to another file by now: do not close it
            self.release()
            return self.read()  # this time by its path, since no descriptor is kept now
        if raw != self._raw:  # most counters rarely change
            try:
                self._reading = Reading(self.series, self.decode(raw) * self.scale)
            except DeviceError as error:
                return self.gap(DeviceError(error.reason, f"{self.path}: {error.detail}"))
            self._raw = raw
        return self._reading

    def gap(self, error: DeviceError) -> Gap:
        return Gap(self.series.metric, self.series.entity, error.reason, error.detail)

    def release(self) -> None:
        """Close the descriptor, if one is open; a failure to close it is ignored."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def _open(self) -> bytes:
        """Read a file that is not open; keep its descriptor if it was readable and there is room."""
        fd = os.open(self.path, FLAGS)
        is_kept = False
        try:
            content = pread(fd, MAX_BYTES, 0)
            is_kept = self.keep_open
        finally:
            if is_kept:
                self.fd = fd
            else:
                os.close(fd)
        return content

    def _reason_if_missing(self) -> Reason:
        """Return why the file is missing: the driver does not offer one that its directory lacks."""
        has_directory = os.path.isdir(self.path.rpartition("/")[0])  # noqa: PTH112 - Path's may raise
        return Reason.UNSUPPORTED if has_directory else Reason.LOST


def text_file(path: str) -> CaughtRead[str, OSError]:
    """Return a read of a file's text; the file is read too seldom to stay open."""
    return CaughtRead(path, text, OSError)
