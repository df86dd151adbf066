"""Reads the identity of each GPU that the driver counts, and retries those that do not answer.

A GPU that hangs or is lost while the library is opened may recover a minute later. It is retried for as long as the
source is open: with one call in flight at a time, and a pause after an error. Its identity is read once, and kept when
the GPU is lost later.
"""

import threading
from collections.abc import Callable
from typing import Any

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
    """Return NVML's PCI bus id as Linux writes it: `00000000:1B:00.0` as `0000:1b:00.0`."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


def identify(driver: Driver, index: int) -> tuple[object, GpuIdentity]:
    """Return the handle and the identity of the GPU at `index`.

    Raises DriverError if the GPU has no handle or no UUID, or is lost meanwhile, and SourceError if NVML must be opened
    again. Any other fact that cannot be read is empty.
    """
    try:
        handle = driver.call("nvmlDeviceGetHandleByIndex_v2", index)
        device = GpuHandle(driver, handle)
        uuid = str(device.call("nvmlDeviceGetUUID"))
    except DriverError as error:
        escalate_source(error)
        raise
    bus_id = _fact(device.call, "nvmlDeviceGetPciInfo_v3")
    identity = GpuIdentity(
        gpu=Gpu(str(index), uuid),
        slot=slot_of(bus_id) if bus_id else "",
        serial=_fact(device.call, "nvmlDeviceGetSerial"),
        model=_fact(device.call, "nvmlDeviceGetName"),
        facts=(
            ("driver_version", _fact(driver.call, "nvmlSystemGetDriverVersion")),
            ("vbios", _fact(device.call, "nvmlDeviceGetVbiosVersion")),
            ("architecture", _architecture(device)),
            ("compute_capability", _fact(device.call, "nvmlDeviceGetCudaComputeCapability")),
            ("minor", _fact(device.call, "nvmlDeviceGetMinorNumber")),
            ("numa_node", _fact(device.call, "nvmlDeviceGetNumaNodeId")),
            ("board_part", _fact(device.call, "nvmlDeviceGetBoardPartNumber")),
        ),
    )
    return _handle_by_uuid(driver, uuid, handle), identity


def _handle_by_uuid(driver: Driver, uuid: str, by_index: object) -> object:
    """Return the handle by UUID, else the one by index: indexes change when GPUs are lost or hidden, UUIDs do not."""
    try:
        return driver.call("nvmlDeviceGetHandleByUUID", uuid)
    except DriverError as error:
        escalate_source(error)
        return by_index


def _fact(call: Callable[[str], Any], name: str) -> str:
    """Return the answer of a call as a text; "" if the GPU does not offer it. Raises DriverError if the GPU is lost."""
    try:
        answer = call(name)
    except DriverError as error:
        escalate_source(error)
        if error.code in DEVICE_CODES:
            raise
        return ""
    if isinstance(answer, tuple):
        return ".".join(map(str, answer))
    return "" if answer in (-1, 2**32 - 1) else str(answer)  # NVML's numbers for "none"


def _architecture(device: GpuHandle) -> str:
    code = _fact(device.call, "nvmlDeviceGetArchitecture")
    return ARCHITECTURES.get(int(code), code) if code else ""


RETRY_SECONDS = 3.0
"""Seconds before a GPU that answered with an error is retried."""
RECOUNT_SECONDS = 10.0
"""Seconds between two reads of the driver's number of GPUs."""
NO_ANSWER = "it does not answer when asked to identify itself"

MakeChannel = Callable[[object, GpuIdentity], NvmlGpuChannel]
"""Makes the channel of a GPU from its handle and identity. Called in that GPU's thread; must return at once."""


class _PendingGpu:
    """A GPU without an identity yet: when its last attempt started, in monotonic seconds, and why it has failed."""

    def __init__(self, index: int, started: float) -> None:
        self.index = index
        self.started = started
        self.reason = Reason.TIMEOUT
        self.detail = NO_ANSWER

    @property
    def call_name(self) -> str:
        """The name of its call in `CallThreads`."""
        return f"identify-{self.index}"


class GpuEnumerator:
    """Identifies every GPU, and makes a channel of it. For one thread. A GPU may take `timeout` seconds to answer."""

    def __init__(self, driver: Driver, call_threads: CallThreads, make_channel: MakeChannel, timeout: float) -> None:
        self._driver = driver
        self._call_threads = call_threads
        self._make_channel = make_channel
        self._timeout = timeout
        self._lock = threading.Lock()
        """Guards the next two, so that a GPU is always in one of them. Never held during a call."""
        self._pending: dict[int, _PendingGpu] = {}
        self._channels: dict[int, NvmlGpuChannel] = {}
        """The GPUs identified so far, in that order."""
        self._source_error: SourceError | None = None
        """Set by a call's thread; `poll` raises it."""
        self._count = 0
        self._counted = 0.0
        """When the driver's number of GPUs was last requested, in monotonic seconds."""

    def start(self, count: int, now: float) -> None:
        """Identify `count` GPUs at the same time; wait until all have answered, but at most `timeout` seconds."""
        self._count, self._counted = count, now
        self._pending = {index: _PendingGpu(index, now) for index in range(count)}
        gpus = list(self._pending.values())
        for gpu in gpus:
            self._start_call(gpu, now)
        self._call_threads.wait([gpu.call_name for gpu in gpus], self._timeout)
        with self._lock:
            self._channels = dict(sorted(self._channels.items()))

    def poll(self, now: float) -> None:
        """Retry the pending GPUs that are due, and count the GPUs. Raises SourceError if NVML must be opened again."""
        if self._source_error is not None:
            raise self._source_error
        with self._lock:
            pending = list(self._pending.values())
        for gpu in pending:
            if not self._call_threads.is_in_flight(gpu.call_name):
                if now - gpu.started >= RETRY_SECONDS:
                    self._start_call(gpu, now)
            elif now - gpu.started > self._timeout:
                gpu.reason, gpu.detail = Reason.TIMEOUT, NO_ANSWER
        if now - self._counted >= RECOUNT_SECONDS and self._call_threads.start("count", self._recount):
            self._counted = now

    def channels(self) -> tuple[NvmlGpuChannel, ...]:
        """Return those of the identified GPUs: of `start` by index, then in the order of identification."""
        with self._lock:
            return tuple(self._channels.values())

    def roster(self) -> Roster:
        """Return the channels of the identified GPUs, and the GPUs still pending."""
        with self._lock:
            missing = [Unidentified(str(gpu.index), gpu.reason, gpu.detail) for gpu in self._pending.values()]
            return Roster(tuple(self._channels.values()), tuple(missing))

    def _start_call(self, gpu: _PendingGpu, now: float) -> None:
        if self._call_threads.start(gpu.call_name, lambda: self._identify(gpu)):
            gpu.started = now

    def _identify(self, gpu: _PendingGpu) -> None:
        try:
            handle, identity = identify(self._driver, gpu.index)
            self._add_channel(gpu, handle, identity)
        except SourceError as error:
            self._source_error = error
        except DriverError as error:
            gpu.reason, gpu.detail = reason_of(error.code), str(error)
        except Exception as error:
            gpu.reason, gpu.detail = Reason.MALFORMED, f"{type(error).__name__}: {error}"

    def _add_channel(self, gpu: _PendingGpu, handle: object, identity: GpuIdentity) -> None:
        uuid = identity.gpu.uuid
        with self._lock:
            if any(channel.key == uuid for channel in self._channels.values()):
                # The driver's indexes have shifted meanwhile. A GPU is read once, under the first index that it had.
                gpu.reason = Reason.MALFORMED
                gpu.detail = f"it reports the UUID {uuid} of another GPU of this node"
                return
            self._channels[gpu.index] = self._make_channel(handle, identity)
            del self._pending[gpu.index]

    def _recount(self) -> None:
        """Set a SourceError if a GPU came back to the bus: NVML finds it only when it is opened again."""
        try:
            try:
                count = int(self._driver.call("nvmlDeviceGetCount_v2"))
            except DriverError as error:
                escalate_source(error)
                return
            if count > self._count:
                raise SourceError(
                    f"the driver counts {count} GPUs now, but counted {self._count} when it was opened; "
                    "NVML must be opened again in a new process"
                )
        except SourceError as error:
            self._source_error = error
