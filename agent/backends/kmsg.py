"""XIDs, SXids and GPUs that the driver could not take, from the kernel log, /dev/kmsg.

The driver's event interface falls silent when the driver hangs, and it knows nothing about NVSwitches:
their SXids are only in the kernel log. The log also has the text that explains a code. The
same XID may arrive here and through NVML: the sampler drops one of the two by device, code and time.

Reading starts at the end of the log, so an error of last week is not counted today. Only what the driver said of GPUs
that it could not take is read from the whole log: it does so when it is loaded, before the agent starts. Nothing is
ever written. A line counts no matter who wrote it (only root can), so a drill may be written to /dev/kmsg.
"""

import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple, Protocol

from agent.backends.protocol import AbsentError, BackendSample
from agent.backends.registration import BackendContext
from agent.catalogue import BY_NAME
from agent.catalogue.node import NVSWITCH
from agent.lib.logs import LogOnce
from agent.model import Gap, Instant, Lane, Node, Reading, Reason, Series, Xid

log = logging.getLogger("coldplate.kmsg")

XID_ERRORS = BY_NAME["coldplate_gpu_xid_errors_total"]
GRADED_XID_ERRORS = BY_NAME["coldplate_gpu_xid_graded_errors_total"]
(SXID_ERRORS,) = NVSWITCH
DRIVER_ERRORS = BY_NAME["coldplate_node_gpu_driver_errors_total"]

RECORD_BYTES = 16_384
"""Larger than any record (the kernel's limit is 8 KiB): a smaller buffer would make read() fail with EINVAL."""

RECORDS_PER_READ = 1000
"""A storm of messages is read over several ticks; the kernel keeps them meanwhile."""

MAX_HISTORY_RECORDS = 200_000
"""Records of before the start that are read: those of a log of 32 MiB, in half a second."""
MAX_DRIVER_ERROR_SERIES = 192
"""Three errors of 64 GPUs."""

SXID_KINDS = 2048
"""Most codes of all switches with series of their own; each may have a series for each grade."""
OTHER = "other"

MAX_DIGITS = 20
"""Digits of a 64-bit count of microseconds."""

# `NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus.` Old drivers leave
# PCI: out, some write eight digits of domain, and a MIG instance follows the bus id as in `... GPU-I:05)`.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})[^)]{0,80}\): (\d{1,9})\b")

# `nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error`. Lines
# of the same form that begin with Severity or Data follow it: they describe the same error.
_SXID = re.compile(
    r"nvidia-nvswitch\d+: SXid \(PCI:([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?\): (\d{1,9})\b"
    r"(?!, (?:Severity \d|Data \{))(?:, (Fatal|Non-fatal)\b)?"
)
# `NVRM: Attempting to remove device 0000:1b:00.0 with non-zero usage count!` It then waits for that count to be 0.
_REMOVAL = re.compile(
    r"NVRM: Attempting to remove device ([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])"
    r" with non-zero usage count\b"
)
# What the driver writes without an XID of a GPU that it cannot take (osinit.c and nv.c of open-gpu-kernel-modules 570);
# the kernel's own line has two forms, the newer since Linux 6.8. The log writes a line break in a message as \x0a.
_SLOT = r"([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])"
_DRIVER_ERRORS = {
    "fallen_off_bus": re.compile(rf"NVRM: The NVIDIA GPU {_SLOT}\b.{{0,120}}fallen off the bus"),
    "init_failed": re.compile(rf"NVRM: GPU {_SLOT}: RmInitAdapter failed!"),
    "probe_failed": re.compile(rf"nvidia(?:: probe of {_SLOT}| {_SLOT}: probe with driver nvidia) failed with error"),
}
_DRIVER_ERROR_WORDS = (b"fallen off the bus", b"RmInitAdapter failed!", b"probe")
"""One of these is in each such line: most of a log need not be decoded."""

_GRADES = {"Fatal": "fatal", "Non-fatal": "nonfatal", None: "unknown"}
"""The label for what a line says of itself."""


class KernelRecord(NamedTuple):
    """One record of the log: `mono` in seconds since boot, and the message's first line."""

    mono: float
    message: str


class SxidRecord(NamedTuple):
    """One SXid: the NVSwitch's PCI address, the code, and the severity that the line states."""

    pci: str
    code: int
    grade: str


def parse_record(raw: bytes) -> KernelRecord | None:
    """Return a record of /dev/kmsg: `priority,sequence,microseconds,flags;message`, then lines of key=value."""
    header, separator, rest = raw.partition(b";")
    fields = header.split(b",")
    if not separator or len(fields) < 4 or not fields[2].isdigit() or len(fields[2]) > MAX_DIGITS:
        return None
    message = rest.split(b"\n", 1)[0].decode("utf-8", errors="replace")
    return KernelRecord(int(fields[2]) / 1e6, message)


def _bus(domain: str, bus: str, device: str) -> str:
    return f"{int(domain, 16):04x}:{bus}:{device}".lower()


def parse_xid(message: str) -> tuple[str, int] | None:
    """Return the GPU's PCI address without its function, `0000:1b:00`, and the code; None if it is not an XID."""
    match = _XID.match(message)
    return (_bus(*match.group(1, 2, 3)), int(match.group(4))) if match else None


def parse_sxid(message: str) -> SxidRecord | None:
    """Return the NVSwitch and the code; None if it is not an SXid, or a line that continues one."""
    match = _SXID.match(message)
    if match is None:
        return None
    pci = f"{_bus(*match.group(1, 2, 3))}.{match.group(4) or '0'}"
    return SxidRecord(pci, int(match.group(5)), _GRADES[match.group(6)])


def parse_driver_error(message: str) -> tuple[str, str] | None:
    """Return the PCI address of a GPU that the driver could not take, and the error's name; None for another line."""
    for name, pattern in _DRIVER_ERRORS.items():
        match = pattern.match(message)
        if match is not None:
            domain, bus, device, function = (part for part in match.groups() if part is not None)
            return f"{_bus(domain, bus, device)}.{function}", name
    return None


def parse_removal(message: str) -> str | None:
    """Return the PCI address of a GPU that the kernel waits to remove, `0000:1b:00.0`; None for another line."""
    match = _REMOVAL.match(message)
    return f"{_bus(*match.group(1, 2, 3))}.{match.group(4)}" if match else None


class KernelLogReader(Protocol):
    """An open kernel log that gives one record for each read."""

    def read(self) -> bytes:
        """Return the next record. Raises BlockingIOError at the end, BrokenPipeError where records were overwritten."""

    def skip(self) -> None:
        """Continue after the last record. Raises OSError."""

    def close(self) -> None:
        """Release the file."""


def _records(reader: KernelLogReader, words: tuple[bytes, ...] = (b"",)) -> Iterator[KernelRecord | None]:
    """Yield what each read gives up to the end of the log; None for what is not a record, or has none of the words.

    Raises OSError.
    """
    while True:
        try:
            raw = reader.read()
        except BlockingIOError:
            return
        except BrokenPipeError:  # the kernel overwrote the next records; the following read continues after them
            yield None
            continue
        if not raw:
            return
        yield parse_record(raw) if any(word in raw for word in words) else None


KMSG_DEVICE = os.makedev(1, 11)
"""The kernel log's device number (Documentation/admin-guide/devices.txt)."""


def is_inherited_kmsg(descriptor: int) -> bool:
    """Return whether a descriptor that we were started with is the kernel log."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == KMSG_DEVICE


class KmsgReader:
    """The kernel log from its beginning, without waiting: opened here, or by systemd and handed over as `descriptor`.

    The log asks for CAP_SYSLOG when it is opened, not when it is read.
    """

    def __init__(self, path: str, descriptor: int | None = None) -> None:
        if descriptor is None:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        else:
            self._file = os.dup(descriptor)
            os.set_blocking(self._file, False)
        try:
            # To the kernel log, SEEK_SET is its first record (Documentation/ABI/testing/dev-kmsg).
            os.lseek(self._file, 0, os.SEEK_SET)
        except OSError:
            self.close()
            raise

    def read(self) -> bytes:
        return os.read(self._file, RECORD_BYTES)

    def skip(self) -> None:
        """Continue after the last record. Raises OSError."""
        os.lseek(self._file, 0, os.SEEK_END)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class KmsgBackend:
    """Follows the kernel log: XIDs become events, SXids become a counter for each NVSwitch and code.

    `removal` is called with the PCI address of a GPU that the kernel waits to remove.
    """

    name = "kmsg"
    lanes = frozenset({Lane.FAST})
    shortest = 1.0

    def __init__(
        self,
        path: str = "/dev/kmsg",
        opener: Callable[[str], KernelLogReader] = KmsgReader,
        removal: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._path = path
        self._opener = opener
        self._removal = removal
        self._reader: KernelLogReader | None = None
        self._read_until = 0.0  # wall time at which the log had been read to its end
        self._kinds: set[tuple[str, str]] = set()
        """The switch's address and the code of what has series of its own."""
        self._driver_errors: dict[tuple[str, str], Series] = {}
        """By PCI address and error."""
        self._counts: dict[Series, int] = {}
        self._once = LogOnce(log)

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - the protocol's signature
        try:
            events, calls = self._drain(self._open(now), now)
        except PermissionError as error:  # with dmesg_restrict, some kernels check when it is first read
            self.close()
            return self._denied(error)
        except OSError:
            self.close()
            raise
        readings = [Reading(series, float(count)) for series, count in self._counts.items()]
        return BackendSample(readings=readings, events=events, calls=calls)

    def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _open(self, now: Instant) -> KernelLogReader:
        if self._reader is None:
            try:
                self._reader = self._opener(self._path)
            except FileNotFoundError:
                raise AbsentError(f"{self._path} does not exist: no kernel log in this container?") from None
            self._read_history(self._reader)
            self._read_until = now.wall
        return self._reader

    def _read_history(self, reader: KernelLogReader) -> None:
        """Count the GPUs that the driver could not take before the agent started. Raises OSError."""
        self._driver_errors.clear()
        for record in islice(_records(reader, _DRIVER_ERROR_WORDS), MAX_HISTORY_RECORDS):
            if record is not None:
                self._count_driver_error(record.message)
        reader.skip()

    def _count_driver_error(self, message: str) -> bool:
        """Count the line if it says that the driver could not take a GPU, and return whether it does."""
        error = parse_driver_error(message)
        if error is None:
            return False
        slot, name = error
        series = self._driver_errors.get(error)
        if series is None and len(self._driver_errors) < MAX_DRIVER_ERROR_SERIES:
            series = self._driver_errors[error] = Series(DRIVER_ERRORS, Node(), (("pci", slot), ("error", name)))
            self._counts[series] = 0
        if series is not None:
            self._counts[series] += 1
        return True

    def _denied(self, error: PermissionError) -> BackendSample:
        detail = (
            f"{self._path}: {error.strerror}; XIDs come only from the driver, and SXids are not seen."
            " Give the agent CAP_SYSLOG (systemd: AmbientCapabilities=CAP_SYSLOG) and access to the device"
        )
        rows = (XID_ERRORS, GRADED_XID_ERRORS, SXID_ERRORS, DRIVER_ERRORS)
        return BackendSample(gaps=[Gap(row, Node(), Reason.DENIED, detail) for row in rows])

    def _drain(self, reader: KernelLogReader, now: Instant) -> tuple[list[Xid], int]:
        events: list[Xid] = []
        calls = 0
        for record in islice(_records(reader), RECORDS_PER_READ):
            calls += 1
            if record is not None:
                self._process_record(record, now, events)
        if calls == RECORDS_PER_READ:
            return events, calls
        self._read_until = now.wall
        return events, calls + 1

    def _process_record(self, record: KernelRecord, now: Instant, events: list[Xid]) -> None:
        xid = parse_xid(record.message)
        if xid is not None:
            device, code = xid
            events.append(Xid(device, code, self._wall(record, now), "kmsg", record.message))
            return
        sxid = parse_sxid(record.message)
        if sxid is not None:
            pci, kind = self._kind(sxid)
            series = Series(SXID_ERRORS, Node(), (("pci", pci), ("sxid", kind), ("grade", sxid.grade)))
            self._counts[series] = self._counts.get(series, 0) + 1
            return
        if self._count_driver_error(record.message):
            return
        slot = parse_removal(record.message)
        if slot is not None:
            self._removal(slot)

    def _kind(self, sxid: SxidRecord) -> tuple[str, str]:
        """Return the switch and code under which an SXid counts: `other` beyond the limit, whatever the log says."""
        kind = (sxid.pci, str(sxid.code))
        if kind not in self._kinds:
            if len(self._kinds) >= SXID_KINDS:
                text = "SXid limit reached: new codes are counted as %r"
                self._once.problem("full", text, OTHER, level=logging.ERROR)
                return OTHER, OTHER
            self._kinds.add(kind)
        return kind

    def _wall(self, record: KernelRecord, now: Instant) -> float:
        """Return when the record was written, on the wall clock.

        The log's clock only approximates CLOCK_MONOTONIC: it is not disciplined and drifts by seconds a day. But a
        record read now was written after the log was last read to its end.
        """
        wall = now.wall - (now.mono - record.mono)
        return min(max(wall, self._read_until), now.wall)


def read_xids(reader: KernelLogReader, now: Instant) -> list[Xid]:
    """Return the XIDs from where a reader stands to the end of the log. Raises OSError."""
    xids: list[Xid] = []
    for record in _records(reader):
        xid = parse_xid(record.message) if record is not None else None
        if record is not None and xid is not None:
            xids.append(Xid(*xid, now.wall - (now.mono - record.mono), "kmsg", record.message))
    return xids


def make_backend(context: BackendContext) -> KmsgBackend | None:
    """Return a reader of the log: systemd's standard input, else the device. None if no GPUs of this node are read."""
    if not context.has_driver:
        return None
    if is_inherited_kmsg(0):
        return KmsgBackend("standard input", lambda path: KmsgReader(path, 0), context.announce_removal)
    return KmsgBackend(removal=context.announce_removal)
