"""Which of the GPUs that the driver counts have identified themselves, and retries for the others.

A GPU that hangs or is lost while the library is opened may recover a minute later. It is retried for
as long as the source is open: at most one call is in flight for each, and after an error there is a pause. Its identity
is read once, and kept when the GPU itself is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from agent.backends.nvml.channel import NvmlGpuChannel
from agent.backends.nvml.driver import (
    DEVICE_CODES,
    CallThreads,
    Driver,
    DriverError,
    GpuHandle,
    escalate_source,
    reason_of,
)
from agent.backends.protocol import Roster, SourceError, Unidentified
from agent.model import Gpu, GpuIdentity, Reason

ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
"""NVML_DEVICE_ARCH_* (nvidia-ml-py 13)."""


def slot_of(bus_id: str) -> str:
    """Return the PCI bus id as Linux writes it: NVML's `00000000:1B:00.0` is `0000:1b:00.0`."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def identify(driver: Driver, index: int) -> tuple[object, GpuIdentity]:
    """Return the handle and the identity of the GPU at `index`.

    Raises DriverError if the GPU cannot be distinguished from others (no handle or no UUID) or is lost before all is
    read, and SourceError if the driver is gone. Any other fact that cannot be read is empty.
    """
    try:
        handle = driver.call("nvmlDeviceGetHandleByIndex_v2", index)
        device = GpuHandle(driver, handle)
        uuid = str(device.call("nvmlDeviceGetUUID"))
    except DriverError as error:
        escalate_source(error)
        raise
    bus_id = _fact(device, "nvmlDeviceGetPciInfo_v3")
    identity = GpuIdentity(
        gpu=Gpu(str(index), uuid),
        slot=slot_of(bus_id) if bus_id else "",
        serial=_fact(device, "nvmlDeviceGetSerial"),
        model=_fact(device, "nvmlDeviceGetName"),
        facts=(
            ("driver_version", _system_fact(driver, "nvmlSystemGetDriverVersion")),
            ("vbios", _fact(device, "nvmlDeviceGetVbiosVersion")),
            ("architecture", _architecture(device)),
            ("compute_capability", _fact(device, "nvmlDeviceGetCudaComputeCapability")),
            ("minor", _fact(device, "nvmlDeviceGetMinorNumber")),
            ("numa_node", _fact(device, "nvmlDeviceGetNumaNodeId")),
            ("board_part", _fact(device, "nvmlDeviceGetBoardPartNumber")),
        ),
    )
    return _lasting_handle(driver, uuid, handle), identity


def _lasting_handle(driver: Driver, uuid: str, handle: object) -> object:
    """Return the handle by UUID: indexes change when GPUs are lost or hidden, the UUID does not."""
    try:
        return driver.call("nvmlDeviceGetHandleByUUID", uuid)
    except DriverError as error:
        escalate_source(error)
        return handle


def _fact(device: GpuHandle, name: str) -> str:
    try:
        answer = device.call(name)
    except DriverError as error:
        _hold(error)
        return ""
    if isinstance(answer, tuple):
        return ".".join(map(str, answer))
    return "" if answer in (-1, 2**32 - 1) else str(answer)


def _system_fact(driver: Driver, name: str) -> str:
    try:
        return str(driver.call(name))
    except DriverError as error:
        escalate_source(error)
        return ""


def _architecture(device: GpuHandle) -> str:
    code = _fact(device, "nvmlDeviceGetArchitecture")
    return ARCHITECTURES.get(int(code), code) if code else ""


def _hold(error: DriverError) -> None:
    """Accept that the GPU does not offer a fact, which is then empty; raise if asking again may give it."""
    escalate_source(error)
    if error.code in DEVICE_CODES:
        raise error


RETRY_SECONDS = 3.0
"""Seconds before a GPU that answered with an error is asked again."""
RECOUNT_SECONDS = 10.0
"""Seconds between two checks of how many GPUs the driver counts."""
SILENT = "it does not answer when asked to identify itself"

MakeChannel = Callable[[object, GpuIdentity], NvmlGpuChannel]
"""From a handle and an identity to a channel. Called in a thread of the GPU's own; returns at once."""


class _PendingGpu:
    """A GPU that has not identified itself yet. `asked` is when it was last asked, in monotonic seconds."""

    def __init__(self, index: int, asked: float) -> None:
        self.index = index
        self.asked = asked
        self.reason = Reason.TIMEOUT
        self.detail = SILENT

    @property
    def errand(self) -> str:
        return f"enlist-{self.index}"


class GpuEnumerator:
    """Asks every GPU for its identity until it has given it. `timeout` is in seconds; one thread owns it."""

    def __init__(self, driver: Driver, errands: CallThreads, make: MakeChannel, timeout: float) -> None:
        self._driver = driver
        self._errands = errands
        self._make = make
        self._timeout = timeout
        self._lock = threading.Lock()
        """Guards candidates and channels, so that a GPU is always one or the other. Never held during a call."""
        self._candidates: dict[int, _PendingGpu] = {}
        self._channels: dict[int, NvmlGpuChannel] = {}
        self.joined: tuple[NvmlGpuChannel, ...] = ()
        """Those that have joined, as `roster` gave them last."""
        self._broken: SourceError | None = None
        self._count = 0
        self._counted = 0.0

    def begin(self, count: int, now: float) -> None:
        """Ask all GPUs at once, and wait until they have answered, for at most `timeout` seconds in all."""
        self._count, self._counted = count, now
        self._candidates = {index: _PendingGpu(index, now) for index in range(count)}
        waiting = list(self._candidates.values())
        for candidate in waiting:
            self._ask(candidate, now)
        self._errands.wait([each.errand for each in waiting], self._timeout)
        with self._lock:
            self.joined = tuple(channel for _, channel in sorted(self._channels.items()))

    def tend(self, now: float) -> None:
        """Ask those that are due again. Raises SourceError if the driver must be opened again."""
        if self._broken is not None:
            raise self._broken
        with self._lock:
            candidates = list(self._candidates.values())
        for candidate in candidates:
            if not self._errands.is_out(candidate.errand):
                if now - candidate.asked >= RETRY_SECONDS:
                    self._ask(candidate, now)
            elif now - candidate.asked > self._timeout:
                candidate.reason, candidate.detail = Reason.TIMEOUT, SILENT
        if now - self._counted >= RECOUNT_SECONDS and self._errands.send("count", self._recount):
            self._counted = now

    def roster(self) -> Roster:
        """Return the GPUs that have joined, in the order of joining, and those that have not."""
        with self._lock:
            late = [channel for channel in self._channels.values() if channel not in self.joined]
            self.joined += tuple(late)
            missing = [Unidentified(str(each.index), each.reason, each.detail) for each in self._candidates.values()]
            return Roster(self.joined, tuple(missing))

    def _ask(self, candidate: _PendingGpu, now: float) -> None:
        if self._errands.send(candidate.errand, lambda: self._identify(candidate)):
            candidate.asked = now

    def _identify(self, candidate: _PendingGpu) -> None:
        try:
            handle, identity = identify(self._driver, candidate.index)
            self._enlist(candidate, handle, identity)
        except SourceError as error:
            self._broken = error
        except DriverError as error:
            candidate.reason, candidate.detail = reason_of(error.code), str(error)
        except Exception as error:
            candidate.reason, candidate.detail = Reason.MALFORMED, f"{type(error).__name__}: {error}"

    def _enlist(self, candidate: _PendingGpu, handle: object, identity: GpuIdentity) -> None:
        uuid = identity.gpu.uuid
        with self._lock:
            if any(channel.key == uuid for channel in self._channels.values()):
                # Indexes have shifted since others were asked. A GPU is read once, under the first index that it had.
                candidate.reason = Reason.MALFORMED
                candidate.detail = f"it reports the UUID {uuid} of another GPU of this node"
                return
            self._channels[candidate.index] = self._make(handle, identity)
            del self._candidates[candidate.index]

    def _recount(self) -> None:
        """Notice a GPU that came back to the bus: only opening the library again finds it."""
        try:
            count = int(self._driver.call("nvmlDeviceGetCount_v2"))
            if count > self._count:
                raise SourceError(f"the driver counts {count} GPUs now, but counted {self._count} when it was opened; "
                                  "NVML must be opened again in a new process")  # fmt: skip
        except SourceError as error:
            self._broken = error
        except DriverError as error:
            try:
                escalate_source(error)
            except SourceError as broken:
                self._broken = broken
