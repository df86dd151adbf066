"""The interfaces of a backend and of the devices of a node, and what the agent around them does for each.

A backend only reads. A sampling lane says how often (`agent.model.Lane`), a row of the catalogue what (`Metric`), and a
gap why something was not read (`Gap`). Timing, deadlines, plausibility, monotone counters, rolling statistics, the
backend's own health and the isolation of its failures are done once for all backends, outside them.

A family of devices is a package in `agent/backends/` whose name is a value of the key `backends.devices`. It has
`make_source(options)`, which returns an implementation of `DeviceSource`, and only the device worker imports it.
"""

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NamedTuple, Protocol

from agent.model import Frame, Gap, GpuIdentity, Instant, Lane, Reading, Reason, Xid


class AbsentError(Exception):
    """This node has no such hardware or interface; the text says what was looked for. Not a failure."""


class DeviceError(Exception):
    """One device cannot be read as a whole: it is lost, needs a reset, or denies access."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class SourceError(Exception):
    """The whole source is unusable until it is opened again, in a new process if it is a library.

    Raised for a driver that was unloaded, or replaced by another version while in use.
    """


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that computes on a GPU. `pid` is the host's, `instance` the MIG GPU instance, None if not known.

    `memory` is in bytes. `sm` is the share of time in which its kernels ran since the last read, asked only where
    several processes share the GPU.
    """

    pid: int
    memory: int | None = None
    instance: int | None = None
    sm: float | None = None


class BackendSample(NamedTuple):
    """What one read gave. `calls` counts driver calls or file reads, for the agent's own metrics.

    `awaited`: a source that is asked in a thread has not answered yet since it was first asked.

    `processes` are all that compute on the device; None if this read did not ask, or could not list them.

    `left_out` counts the series beyond the backend's limits.
    """

    readings: Sequence[Reading] = ()
    gaps: Sequence[Gap] = ()
    events: Sequence[Xid] = ()
    calls: int = 0
    processes: tuple[GpuProcess, ...] | None = None
    awaited: bool = False
    left_out: int = 0


def join_samples(samples: Sequence[BackendSample]) -> BackendSample:
    """Return what the parts of a backend gave, as one; of processes and events they have none."""
    return BackendSample(
        [reading for s in samples for reading in s.readings],
        [gap for s in samples for gap in s.gaps],
        calls=sum(s.calls for s in samples),
        awaited=any(s.awaited for s in samples),
        left_out=sum(s.left_out for s in samples),
    )


class LaneSample(NamedTuple):
    """One lane of one channel. `mono` is when its reading began, `duration` how long it took, in seconds."""

    channel: str
    lane: Lane
    mono: float
    duration: float
    calls: int
    frame: Frame
    gaps: tuple[Gap, ...]
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChannelError:
    """One channel could not be read as a whole."""

    channel: str
    lane: Lane
    mono: float
    reason: Reason
    detail: str


class BackendProtocol(Protocol):
    """A source that the main process reads, in a thread of its own with at most one read in flight."""

    name: str
    lanes: frozenset[Lane]
    shortest: float
    """Least seconds between two reads of one lane: earlier, there is nothing new."""

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Read the rows of one lane.

        A single file or value that cannot be read is a `Gap` in the sample. Raises AbsentError when
        there is nothing to read on this node (it is asked again later, hardware may appear), and any
        other exception when the whole backend failed: it is reported, and the agent goes on.
        """

    def close(self) -> None:
        """Release what is held; may be called more than once."""


class Channel(Protocol):
    """One device of a `DeviceSource`, with at most one read in flight; reads may come from different threads."""

    key: str
    """Unique and stable: the GPU's UUID, or a name such as `fabric`."""
    identity: GpuIdentity | None
    """None for a channel that is not a GPU."""

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Read one lane of this device. May hang: only the thread that reads is lost then.

        XID errors are not part of the sample: they come through `DeviceSource.events`.

        Raises DeviceError if the whole device is out of order, and SourceError if the source is.
        """


@dataclass(frozen=True, slots=True)
class Unidentified:
    """A device that the source counts but that has not identified itself. `index` is the source's number for it."""

    index: str
    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Roster:
    """All devices: the channels, in the order in which they joined, and the devices that have not joined yet."""

    channels: tuple[Channel, ...]
    unidentified: tuple[Unidentified, ...] = ()


class DeviceSource(Protocol):
    """The accelerators of a node, read inside the device worker process."""

    name: str

    def open(self, now: Instant) -> Sequence[Channel]:
        """Initialise, enumerate, and return the devices that identified themselves at once; possibly empty.

        Raises AbsentError (no driver, no device) or SourceError.
        """

    def roster(self, now: Instant) -> Roster:
        """Return the devices that have joined by now. Retries the missing ones, never waits for a device. Raises
        SourceError.

        A channel that was returned once stays, at its position.
        """

    def events(self, timeout: float) -> Sequence[Xid]:
        """Wait for XID events, at most `timeout` seconds. Raises SourceError."""

    def close(self) -> None:
        """Shut the library down cleanly, if no call hangs in it; may be called more than once."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a family is opened with.

    `scenario` and `epoch`, the monotonic second at which it began, are for synthetic devices. `wall` gives seconds
    since the epoch. `trace` is the file of driver calls to play in place of NVML's library; empty for the library.
    """

    scenario: str
    epoch: float
    wall: Callable[[], float]
    trace: str = ""


def make_device_source(family: str, options: SourceOptions) -> DeviceSource:
    """Return the devices of that family, not opened yet. Raises ImportError for one that is not there."""
    source: DeviceSource = import_module(f"agent.backends.{family}").make_source(options)
    return source


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
_REMEDIES = {errno.EMFILE: "raise LimitNOFILE in the unit, or ulimit -n", errno.ENFILE: "raise the sysctl fs.file-max"}


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
