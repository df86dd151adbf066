"""The MIG instances of one GPU: what each is, and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.backends.nvml.arrays import SENTINELS
from agent.backends.nvml.driver import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    Driver,
    DriverError,
    GpuHandle,
    escalate,
    reason_of,
)
from agent.catalogue import metric
from agent.model import Gap, Gpu, Reading, Reason, Series

_MIG_INFO = metric("coldplate_gpu_mig_info")
_MIG_MEMORY = {
    "used": metric("coldplate_gpu_mig_memory_used_bytes"),
    "total": metric("coldplate_gpu_mig_memory_total_bytes"),
}


@dataclass(frozen=True, slots=True)
class _MigInstance:
    device: GpuHandle
    uuid: str
    info: Reading
    parts: tuple[tuple[str, Series], ...]


class MigReader:
    """Reads the MIG instances of one GPU on which MIG is enabled: their list (cold lane), and their memory (slow lane).

    Instances come and go while the library is open, so they are listed in each cold sample, and in the next slow one
    after an instance failed to answer. A GPU without MIG costs no call here.
    """

    def __init__(self, driver: Driver, parent: GpuHandle, gpu: Gpu) -> None:
        self._driver = driver
        self._parent = parent
        self._gpu = gpu
        self._instances: tuple[_MigInstance, ...] | None = None

    def read_info(self, readings: list[Reading], gaps: list[Gap]) -> None:
        """List the instances again, with what each is."""
        self._list(gaps)
        readings.extend(each.info for each in self._instances or ())

    def read_memory(self, readings: list[Reading], gaps: list[Gap]) -> None:
        """Each instance's memory."""
        if self._instances is None:
            self._list(gaps)
        for instance in self._instances or ():
            try:
                answer = self._ask(instance.device, "nvmlDeviceGetMemoryInfo_v2")
            except DriverError as error:
                escalate(error)
                self._instances = None
                detail = f"{instance.uuid}: {error}"
                gaps.extend(Gap(row, self._gpu, reason_of(error.code), detail) for row in _MIG_MEMORY.values())
                continue
            for part, series in instance.parts:
                if answer[part] in SENTINELS:
                    detail = f"{instance.uuid}: {answer[part]:#x} means no value"
                    gaps.append(Gap(series.metric, self._gpu, Reason.IMPLAUSIBLE, detail))
                else:
                    readings.append(Reading(series, float(answer[part])))

    def _list(self, gaps: list[Gap]) -> None:
        found: list[_MigInstance] = []
        self._instances = None
        try:
            for index in range(self._parent.call("nvmlDeviceGetMaxMigDeviceCount")):
                handle = self._handle(index)
                if handle is not None:
                    found.append(self._identify(GpuHandle(self._driver, handle)))
        except DriverError as error:
            escalate(error)
            gaps.extend(
                Gap(row, self._gpu, reason_of(error.code), str(error)) for row in (_MIG_INFO, *_MIG_MEMORY.values())
            )
            return
        self._instances = tuple(found)

    def _handle(self, index: int) -> object | None:
        try:
            handle: object = self._parent.call("nvmlDeviceGetMigDeviceHandleByIndex", index)
        except DriverError as error:
            if error.code in (NOT_FOUND, INVALID_ARGUMENT):
                return None  # an index without an instance
            raise
        return handle

    def _identify(self, device: GpuHandle) -> _MigInstance:
        uuid = str(self._ask(device, "nvmlDeviceGetUUID"))
        gpu_instance = str(self._ask(device, "nvmlDeviceGetGpuInstanceId"))
        compute_instance = str(self._ask(device, "nvmlDeviceGetComputeInstanceId"))
        # "NVIDIA H100 80GB HBM3 MIG 1g.10gb": the profile is what follows the board's name.
        _, _, profile = str(self._ask(device, "nvmlDeviceGetName")).rpartition(" MIG ")
        labels = (
            ("mig_uuid", uuid),
            ("gpu_instance", gpu_instance),
            ("compute_instance", compute_instance),
            ("profile", profile),
        )
        memory = (("mig_uuid", uuid), ("gpu_instance", gpu_instance))
        parts = tuple((part, Series(row, self._gpu, memory)) for part, row in _MIG_MEMORY.items())
        return _MigInstance(device, uuid, Reading(Series(_MIG_INFO, self._gpu, labels), 1.0), parts)

    def _ask(self, device: GpuHandle, name: str) -> Any:
        """Make a call for an instance; it counts as a call of the GPU that it is part of."""
        self._parent.calls += 1
        return device.call(name)
