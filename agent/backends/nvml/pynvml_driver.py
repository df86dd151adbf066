"""NVML through nvidia-ml-py: the only file of the project that imports pynvml.

The import happens when a driver is made, inside the device worker: loading the binding costs 2 MiB,
and the library behind it may hang or crash. Answers leave here as plain Python values.
"""

import ctypes
import struct
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from agent.backends.nvml.driver import FUNCTION_NOT_FOUND, INSUFFICIENT_SIZE, NOT_SUPPORTED, DriverError

PROCESS = struct.Struct("=I4xQII")
"""nvmlProcessInfo_v2_t: process id, used memory, GPU instance, compute instance."""
PROCESS_LISTS = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3")
PROCESS_SAMPLE = struct.Struct("=I4xQI12x")
"""nvmlProcessUtilizationSample_t: process id, time, SM percentage; those of memory, encoder and decoder are unused."""
PROCESSES = 64
"""Processes of one GPU for which the first call has room."""


class NvmlHandle(ctypes.c_void_p):
    """An opaque pointer of the library; equal when it points to the same device."""

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NvmlHandle) and self.value == other.value


def _handle(pointer: Any) -> NvmlHandle:
    return NvmlHandle(ctypes.cast(pointer, ctypes.c_void_p).value)


def _find_library(name: str) -> str | None:
    from ctypes.util import find_library

    return find_library(name)


def _binding() -> ModuleType:
    """Import pynvml. Raises ImportError when nvidia-ml-py is missing.

    It imports `ctypes.util` for a function that it does not call on Linux, and with it subprocess, tempfile and shutil:
    1.1 MiB of the worker. So that module is imported only when the function is called.
    """
    stand_in = ModuleType("ctypes.util")
    vars(stand_in)["find_library"] = _find_library
    loaded = sys.modules.setdefault("ctypes.util", stand_in)
    try:
        return import_module("pynvml")
    finally:
        if loaded is stand_in:
            del sys.modules["ctypes.util"]


class PynvmlDriver:
    """`Driver` over the installed libnvidia-ml.so.1. Raises ImportError when nvidia-ml-py is missing."""

    def __init__(self) -> None:
        self._nvml: Any = _binding()
        self._error: type[Exception] = self._nvml.NVMLError
        self._table: dict[str, Callable[..., Any]] = {**self._devices(), **self._readings(), **self._batches()}

    def call(self, name: str, *args: Any) -> Any:
        function = self._table.get(name) or self._plain(name)
        try:
            return function(*args)
        except self._error as error:
            raise DriverError(name, int(error.value)) from None  # type: ignore[attr-defined]  # pynvml has no types
        except UnicodeDecodeError:  # the binding decodes names and serial numbers, whatever bytes a board holds
            raise DriverError(name, NOT_SUPPORTED) from None

    def _plain(self, name: str) -> Callable[..., Any]:
        """Return a function whose answer is a plain value already."""
        function = getattr(self._nvml, name, None)
        if function is None:
            raise DriverError(name, FUNCTION_NOT_FOUND)
        return self._table.setdefault(name, function)

    def _pointer(self, name: str) -> Callable[..., int]:
        """Return the C function itself, checked, without the wrapper that builds its arguments on every call."""
        find, check = self._nvml._nvmlGetFunctionPointer, self._nvml._nvmlCheckReturn

        def checked(*args: Any) -> int:
            return int(check(find(name)(*args)))

        return checked

    def _devices(self) -> dict[str, Callable[..., Any]]:
        nvml = self._nvml

        def wait(events: Any, milliseconds: int) -> tuple[NvmlHandle, int, int]:
            data = nvml.nvmlEventSetWait_v2(events, milliseconds)
            return _handle(data.device), data.eventType, data.eventData

        return {
            "nvmlDeviceGetHandleByIndex_v2": lambda index: _handle(nvml.nvmlDeviceGetHandleByIndex(index)),
            "nvmlDeviceGetHandleByUUID": lambda uuid: _handle(nvml.nvmlDeviceGetHandleByUUID(uuid)),
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda device, index: _handle(
                nvml.nvmlDeviceGetMigDeviceHandleByIndex(device, index)
            ),
            "nvmlDeviceGetCount_v2": nvml.nvmlDeviceGetCount,
            "nvmlDeviceGetPciInfo_v3": lambda device: nvml.nvmlDeviceGetPciInfo(device).busId,
            "nvmlDeviceGetMigMode": lambda device: nvml.nvmlDeviceGetMigMode(device)[0],
            "nvmlDeviceGetEccMode": lambda device: nvml.nvmlDeviceGetEccMode(device)[0],
            "nvmlEventSetWait_v2": wait,
        }

    def _readings(self) -> dict[str, Callable[..., Any]]:
        nvml = self._nvml
        utilization, memory, memory_v2 = (
            self._pointer("nvmlDeviceGetUtilizationRates"),
            self._pointer("nvmlDeviceGetMemoryInfo"),
            self._pointer("nvmlDeviceGetMemoryInfo_v2"),
        )

        def rates(device: NvmlHandle) -> dict[str, int]:
            answer = (ctypes.c_uint * 2)()
            utilization(device, answer)
            return {"gpu": answer[0], "memory": answer[1]}

        def memory_info(device: NvmlHandle) -> dict[str, int]:
            answer = (ctypes.c_ulonglong * 3)()
            memory(device, answer)
            return {"total": answer[0], "free": answer[1], "used": answer[2]}

        def memory_info_v2(device: NvmlHandle) -> dict[str, int]:
            answer = (ctypes.c_ulonglong * 5)(nvml.nvmlMemory_v2)  # a u32 version and its padding come first
            memory_v2(device, answer)
            return {"total": answer[1], "reserved": answer[2], "free": answer[3], "used": answer[4]}

        return {
            "nvmlDeviceGetUtilizationRates": rates,
            "nvmlDeviceGetMemoryInfo": memory_info,
            "nvmlDeviceGetMemoryInfo_v2": memory_info_v2,
            "nvmlDeviceGetEncoderUtilization": lambda device: nvml.nvmlDeviceGetEncoderUtilization(device)[0],
            "nvmlDeviceGetDecoderUtilization": lambda device: nvml.nvmlDeviceGetDecoderUtilization(device)[0],
            "nvmlDeviceGetGpuFabricInfoV": self._fabric,
            **{name: self._process_list(name) for name in PROCESS_LISTS},
            "nvmlDeviceGetProcessUtilization": self._process_utilization,
        }

    def _process_list(self, name: str) -> Callable[[NvmlHandle], list[tuple[int, ...]]]:
        """Process id, bytes of device memory and GPU instance of each."""

        def listed(device: NvmlHandle) -> list[tuple[int, ...]]:
            function = self._nvml._nvmlGetFunctionPointer(name)
            return self._entries(PROCESS, lambda count, entries: function(device, count, entries))

        return listed

    def _process_utilization(self, device: NvmlHandle, since: int) -> list[tuple[int, ...]]:
        """Process id, time in microseconds and percentage of SM time of each sample that is newer than `since`."""
        function = self._nvml._nvmlGetFunctionPointer("nvmlDeviceGetProcessUtilization")
        newer = ctypes.c_ulonglong(since)
        samples = self._entries(PROCESS_SAMPLE, lambda count, entries: function(device, entries, count, newer))
        return [sample for sample in samples if sample[0]]

    def _entries(self, record: struct.Struct, ask: Callable[[Any, Any], int]) -> list[tuple[int, ...]]:
        """Return what a call fills an array with; mostly one call, where the binding makes two."""
        room = ctypes.c_uint(PROCESSES)
        for _ in range(3):
            entries = ctypes.create_string_buffer(record.size * room.value)
            count = ctypes.c_uint(room.value)
            code = ask(ctypes.byref(count), entries)
            if code != INSUFFICIENT_SIZE:
                break
            room.value = count.value + PROCESSES
        self._nvml._nvmlCheckReturn(code)
        return [record.unpack_from(entries, number * record.size) for number in range(min(count.value, room.value))]

    def _fabric(self, device: NvmlHandle) -> dict[str, Any]:
        info = self._nvml.c_nvmlGpuFabricInfo_v2_t()
        self._nvml.nvmlDeviceGetGpuFabricInfoV(device, ctypes.byref(info))
        return {
            "cluster_uuid": bytes(info.clusterUuid).hex(),
            "clique": info.cliqueId,
            "state": info.state,
            "status": info.status,
            "health": info.healthMask,
        }

    def _batches(self) -> dict[str, Callable[..., Any]]:
        fields = self._pointer("nvmlDeviceGetFieldValues")
        alloc, free = self._pointer("nvmlGpmSampleAlloc"), self._pointer("nvmlGpmSampleFree")
        sample_get, metrics_get = self._pointer("nvmlGpmSampleGet"), self._pointer("nvmlGpmMetricsGet")
        mig_sample_get = self._pointer("nvmlGpmMigSampleGet")

        def sample_alloc() -> int:
            sample = ctypes.c_void_p()
            alloc(ctypes.byref(sample))
            return sample.value or 0

        return {
            "nvmlDeviceGetFieldValues": lambda device, array: fields(device, array.count, array.buffer),
            "nvmlGpmQueryDeviceSupport": lambda device: self._nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice,
            "nvmlGpmSampleAlloc": sample_alloc,
            "nvmlGpmSampleFree": lambda sample: free(ctypes.c_void_p(sample)),
            "nvmlGpmSampleGet": lambda device, sample: sample_get(device, ctypes.c_void_p(sample)),
            "nvmlGpmMigSampleGet": lambda device, instance, sample: mig_sample_get(
                device, instance, ctypes.c_void_p(sample)
            ),
            "nvmlGpmMetricsGet": lambda array: metrics_get(array.buffer),
        }
