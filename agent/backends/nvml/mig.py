"""The MIG instances of one GPU: what each is, its memory, and the activity of the GPU instance that it is part of."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from agent.backends.nvml.arrays import SENTINELS
from agent.backends.nvml.driver import (
    INVALID_ARGUMENT,
    NOT_FOUND,
    PERMANENT_CODES,
    Driver,
    DriverError,
    GpuHandle,
    RefusableRows,
)
from agent.backends.nvml.fields import GpmSampler
from agent.backends.nvml.lane_reader import LaneReader
from agent.catalogue import BY_NAME
from agent.catalogue import nvml_constants as nvml
from agent.catalogue.bindings import Gpm
from agent.model import Gap, Gpu, Instant, Reading, Reason, Series

_MIG_INFO = BY_NAME["coldplate_gpu_mig_info"]
_MIG_MEMORY = {
    "used": BY_NAME["coldplate_gpu_mig_memory_used_bytes"],
    "total": BY_NAME["coldplate_gpu_mig_memory_total_bytes"],
}
_MIG_ACTIVITY = {
    BY_NAME["coldplate_gpu_mig_utilization_ratio"]: Gpm(nvml.GPM_METRIC_GRAPHICS_UTIL),
    BY_NAME["coldplate_gpu_mig_sm_active_ratio"]: Gpm(nvml.GPM_METRIC_SM_UTIL),
    BY_NAME["coldplate_gpu_mig_tensor_active_ratio"]: Gpm(nvml.GPM_METRIC_ANY_TENSOR_UTIL),
    BY_NAME["coldplate_gpu_mig_dram_active_ratio"]: Gpm(nvml.GPM_METRIC_DRAM_BW_UTIL),
}

_REFUSALS = PERMANENT_CODES - {INVALID_ARGUMENT}
"""Permanent codes of an instance that is still there; INVALID_ARGUMENT may mean that it was destroyed."""


@dataclass(frozen=True, slots=True)
class _MigInstance:
    device: GpuHandle
    uuid: str
    gpu_instance: int
    info: Reading
    parts: tuple[tuple[str, Series], ...]


class _MigActivity:
    """Samples the activity of one GPU instance; one that permanently refuses is asked once."""

    def __init__(self, driver: Driver, parent: GpuHandle, gpu: Gpu, instance: _MigInstance) -> None:
        self._parent = parent
        self._uuid = instance.uuid
        self._sampler = GpmSampler(driver, instance.gpu_instance)
        labels = (("mig_uuid", instance.uuid), ("gpu_instance", str(instance.gpu_instance)))
        self._means = LaneReader()
        for row, binding in _MIG_ACTIVITY.items():
            self._means.add_value(self._sampler.number(binding, Series(row, gpu, labels)))
        self._probed = False
        self._rows = RefusableRows(gpu, *_MIG_ACTIVITY)

    def read(self, now: Instant, readings: list[Reading], gaps: list[Gap]) -> bool:
        """Read the means since the read before; False if the instance did not answer, and may be gone."""
        if self._rows.refused:
            gaps.extend(self._rows.refused)
            return True
        try:
            if not self._probed:
                self._sampler.probe(self._parent)
                self._probed = True
        except DriverError as error:
            gaps.extend(self._rows.gaps(error, f"{self._uuid}: "))
            if self._rows.refused:
                self.close()
            return False
        own: list[Gap] = []
        self._means.read(self._parent, now, readings, own)
        gaps.extend(Gap(gap.metric, gap.entity, gap.reason, f"{self._uuid}: {gap.detail}") for gap in own)
        return not self._sampler.interrupted

    def close(self) -> None:
        """Free the samples; may be called more than once."""
        try:
            self._sampler.close()
        except DriverError:
            return  # the library that owned the samples is gone, and the samples with it


class MigReader:
    """Reads the MIG instances of one GPU on which MIG is enabled: their list (cold lane), their memory and activity
    (slow lane).

    The driver measures the activity of a GPU instance, which its compute instances share: one sample and one series
    each, with the UUID of its first MIG device. Instances come and go while the library is open, so they are listed in
    each cold sample, and in the next slow one after an instance failed to answer. A GPU without MIG costs no call here.
    """

    def __init__(self, driver: Driver, parent: GpuHandle, gpu: Gpu) -> None:
        self._driver = driver
        self._parent = parent
        self._gpu = gpu
        self._memory_rows = RefusableRows(gpu, *_MIG_MEMORY.values())
        self._all_rows = RefusableRows(gpu, _MIG_INFO, *_MIG_MEMORY.values(), *_MIG_ACTIVITY)
        self._instances: tuple[_MigInstance, ...] | None = None
        self._activity: dict[tuple[int, str], _MigActivity] = {}
        """By GPU instance and the UUID of its first MIG device."""

    def read_info(self, readings: list[Reading], gaps: list[Gap]) -> None:
        self._list(gaps)
        readings.extend(instance.info for instance in self._instances or ())

    def read_usage(self, now: Instant, readings: list[Reading], gaps: list[Gap]) -> None:
        """Read each GPU instance's activity, first so that `now` is the time of its sample, and its memory."""
        if self._instances is None:
            self._list(gaps)
        instances = self._instances
        if instances is None:
            return
        answered = [activity.read(now, readings, gaps) for activity in self._activity.values()]
        if not all(answered):
            self._instances = None
        self._read_memory(instances, readings, gaps)

    def close(self) -> None:
        """Free what the library holds for the instances; may be called more than once."""
        for activity in self._activity.values():
            activity.close()
        self._activity = {}

    def _read_memory(self, instances: Iterable[_MigInstance], readings: list[Reading], gaps: list[Gap]) -> None:
        for instance in instances:
            try:
                answer = self._ask(instance.device, "nvmlDeviceGetMemoryInfo_v2")
            except DriverError as error:
                gaps.extend(self._memory_rows.gaps(error, f"{instance.uuid}: "))
                if error.code not in _REFUSALS:
                    self._instances = None
                continue
            for part, series in instance.parts:
                if answer[part] in SENTINELS:
                    detail = f"{instance.uuid}: {answer[part]:#x} means no value"
                    gaps.append(Gap(series.metric, self._gpu, Reason.IMPLAUSIBLE, detail))
                else:
                    readings.append(Reading(series, float(answer[part])))

    def _list(self, gaps: list[Gap]) -> None:
        instances: list[_MigInstance] = []
        self._instances = None
        try:
            for index in range(self._parent.call("nvmlDeviceGetMaxMigDeviceCount")):
                handle = self._handle(index)
                if handle is None:
                    continue
                try:
                    instances.append(self._identify(GpuHandle(self._driver, handle)))
                except DriverError as error:  # destroyed since its handle was read: that affects no other
                    gaps.extend(self._all_rows.gaps(error))
        except DriverError as error:
            gaps.extend(self._all_rows.gaps(error))
            return
        self._instances = tuple(instances)
        self._update_activity(instances)

    def _update_activity(self, instances: Iterable[_MigInstance]) -> None:
        """Keep one sampler for each GPU instance, with its first device; free the samples of those that are gone."""
        previous, self._activity = self._activity, {}
        for gpu_instance, first in {i.gpu_instance: i for i in reversed(tuple(instances))}.items():
            key = (gpu_instance, first.uuid)
            activity = previous.pop(key, None)
            self._activity[key] = activity or _MigActivity(self._driver, self._parent, self._gpu, first)
        for ended in previous.values():
            ended.close()

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
        number = int(self._ask(device, "nvmlDeviceGetGpuInstanceId"))
        gpu_instance = str(number)
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
        return _MigInstance(device, uuid, number, Reading(Series(_MIG_INFO, self._gpu, labels), 1.0), parts)

    def _ask(self, device: GpuHandle, name: str) -> Any:
        """Make a call for an instance; it counts as a call of the GPU that it is part of."""
        self._parent.calls += 1
        return device.call(name)
