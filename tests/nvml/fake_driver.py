"""A driver that is a table: a call's name and arguments to a value or an error code.

Three machines of different generations; a test changes entries to say what is different today.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import DriverError

ALL = 0xFFFFFFFF
DOUBLE, U32, ULONG, U64, I64, I32, U16 = range(7)
_FORMATS = ("<d", "<I4x", "<Q", "<Q", "<q", "<i4x", "<H6x")


class Code(NamedTuple):
    """An NVML return code in place of a value."""

    code: int


UNINITIALIZED, INVALID, UNSUPPORTED, DENIED, UNLOADED, TIMEOUT = (Code(each) for each in (1, 2, 3, 4, 9, 10))
NO_LIBRARY, MISSING, LOST, RESET, MISMATCH, UNKNOWN = (Code(each) for each in (12, 13, 15, 16, 18, 999))
NO_DATA, NOT_FOUND = Code(21), Code(6)

Field = tuple[int, Any] | Code


class FakeGpu:
    """What one GPU answers. `fields` by (id, scope); `calls` by name, or by (name, argument)."""

    def __init__(self, number: int, name: str) -> None:
        self.uuid = f"GPU-{number:08x}"
        self.fields: dict[tuple[int, int], Field] = {}
        self.gpm: dict[int, float | Code] = {}
        self.failing: Code | None = None
        """Ends every call on this GPU."""
        self.hook: Callable[[str], object] = lambda name: None
        """Called first in every call on this GPU."""
        self.calls: dict[Any, Any] = {
            "nvmlDeviceGetUUID": self.uuid,
            "nvmlDeviceGetName": name,
            "nvmlDeviceGetSerial": f"165{number:04d}",
            "nvmlDeviceGetPciInfo_v3": f"00000000:{0x1B + number:02X}:00.0",
            "nvmlDeviceGetMinorNumber": number,
            "nvmlDeviceGetVbiosVersion": "96.00.74.00.01",
            "nvmlDeviceGetMigMode": UNSUPPORTED,
            "nvmlDeviceGetSupportedEventTypes": 0x1F,
            "nvmlDeviceRegisterEvents": None,
            "nvmlDeviceGetComputeRunningProcesses_v3": [],
            "nvmlDeviceGetMPSComputeRunningProcesses_v3": [],
            "nvmlGpmQueryDeviceSupport": 0,
        }

    def given(self, calls: Mapping[Any, Any] | None, fields: Mapping[Any, Any] | None) -> FakeGpu:
        """This GPU with these answers in place of its own."""
        self.calls |= calls or {}
        self.fields |= fields or {}
        return self


class FakeDriver:
    """Implements `Driver` over FakeGpus. `log` holds the name of every call that reached it."""

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = list(gpus)
        self.log: list[str] = []
        self.system: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "570.124.06",
            "nvmlEventSetCreate": "set",
            "nvmlEventSetFree": None,
        }
        self.handles: dict[int, Code] = {}
        """By index: the handle cannot be had."""
        self.events: list[Any] = []
        """What nvmlEventSetWait_v2 gives, in turn: (handle, type, data), or a code; then TIMEOUT."""
        self.others: dict[object, FakeGpu] = {}
        """Further devices by handle: MIG instances."""
        self.samples = 0
        self.sampled: dict[int, FakeGpu] = {}
        """What each GPM sample is of: a GPU, or a GPU instance of `instances`."""
        self.instances: dict[int, FakeGpu] = {}
        """GPU instances by their id: what GPM says of each, and whether it fails."""
        self.waits: list[int] = []

    def divide(self, gpu: FakeGpu, uuids: Sequence[str]) -> None:
        """Enable MIG on a GPU, with these instances."""
        gpu.calls |= {"nvmlDeviceGetMigMode": 1, "nvmlDeviceGetMaxMigDeviceCount": len(uuids)}
        for number, uuid in enumerate(uuids):
            gpu.calls["nvmlDeviceGetMigDeviceHandleByIndex", number] = f"instance {number}"
            made = self.others[f"instance {number}"] = instance(1)
            made.calls |= {"nvmlDeviceGetUUID": uuid, "nvmlDeviceGetGpuInstanceId": number}
            self.instances[number] = h100(number)

    def call(self, name: str, *args: Any) -> Any:
        self.log.append(name)
        answer = self._answer(name, args)
        if isinstance(answer, Code):
            raise DriverError(name, answer.code)
        return answer

    def _answer(self, name: str, args: tuple[Any, ...]) -> Any:
        if name in self.system:
            answer = self.system[name]
            return answer(*args) if callable(answer) else answer
        special = getattr(self, f"_{name}", None)
        if special is not None:
            return special(*args)
        if name == "nvmlGpmMigSampleGet":
            return self._sample_instance(*args[1:])
        gpu = self._gpu(args[0])
        gpu.hook(name)
        if gpu.failing is not None:
            return gpu.failing
        if name == "nvmlDeviceGetFieldValues":
            return self._fill(gpu, args[1])
        answer = gpu.calls.get((name, *args[1:2]), gpu.calls.get(name, MISSING))
        return answer() if callable(answer) else answer

    def _gpu(self, handle: object) -> FakeGpu:
        if handle in self.others:
            return self.others[handle]
        return next(gpu for gpu in self.gpus if handle == f"handle of {gpu.uuid}")

    def _fill(self, gpu: FakeGpu, array: FieldArray) -> object:
        refusal = gpu.calls.get("nvmlDeviceGetFieldValues")
        if isinstance(refusal, Code):
            return refusal
        if callable(refusal) and isinstance(code := refusal(array), Code):
            return code
        for i in range(array.count):
            field, scope = struct.unpack_from("<II", array.buffer, i * 40)
            answer = gpu.fields.get((field, scope), UNSUPPORTED)
            kind, value = (U64, 0) if isinstance(answer, Code) else answer
            code = answer.code if isinstance(answer, Code) else 0
            struct.pack_into("<II", array.buffer, i * 40 + 24, kind, code)
            struct.pack_into(_FORMATS[kind] if kind < 7 else "<Q", array.buffer, i * 40 + 32, value)
        return None

    def _nvmlDeviceGetCount_v2(self) -> int:  # noqa: N802
        return len(self.gpus)

    def _nvmlDeviceGetHandleByIndex_v2(self, index: int) -> object:  # noqa: N802
        return self.handles.get(index, f"handle of {self.gpus[index].uuid}")

    def _nvmlDeviceGetHandleByUUID(self, uuid: str) -> object:  # noqa: N802
        return f"handle of {uuid}"

    def _nvmlEventSetWait_v2(self, events: object, milliseconds: int) -> Any:  # noqa: N802
        self.waits.append(milliseconds)
        return self.events.pop(0) if self.events else TIMEOUT

    def _nvmlGpmSampleAlloc(self) -> int:  # noqa: N802
        self.samples += 1
        return 1000 + self.log.count("nvmlGpmSampleAlloc")

    def _sample_instance(self, instance: int, sample: int) -> Code | None:
        if instance not in self.instances:
            return INVALID
        self.sampled[sample] = self.instances[instance]
        return self.instances[instance].failing

    def _nvmlGpmSampleFree(self, sample: int) -> None:  # noqa: N802
        self.samples -= 1

    def _nvmlGpmMetricsGet(self, array: GpmArray) -> None:  # noqa: N802
        gpm = self.sampled.get(array.later, self.gpus[0]).gpm
        for i, metric in enumerate(array.ids):
            answer = gpm.get(metric, UNSUPPORTED)
            code, value = (answer.code, 0.0) if isinstance(answer, Code) else (0, answer)
            array.store(i, code, value)


_TOTAL, _KEPT = 85_520_809_984, 551_550_976


def _common(gpu: FakeGpu) -> FakeGpu:
    gpu.fields |= {
        (3, 0): (U64, 2), (4, 0): (U64, 0), (5, 0): (U64, 9), (6, 0): (U64, 1),
        (74, 0): (U64, 1_500_000_000), (75, 0): (U64, 250_000_000), (76, 0): (U64, 0), (77, 0): (U64, 0),
        (78, 0): (U64, 0), (79, 0): (U64, 0), (82, 0): (U32, 64), (83, 0): (U64, 12_345_678),
        (94, 0): (U32, 3), (142, 0): (U32, 0), (143, 0): (U32, 1), (144, 0): (U32, 0), (145, 0): (U32, 0),
        (185, 0): (U32, 412_345), (186, 0): (U32, 430_000), (189, 0): (U32, 700_000), (190, 0): (U32, 650_000),
        (230, 0): (U32, 1),
    }  # fmt: skip
    gpu.calls |= {
        "nvmlDeviceGetUtilizationRates": {"gpu": 57, "memory": 29},
        "nvmlDeviceGetMemoryInfo_v2": {"total": _TOTAL, "reserved": _KEPT, "free": _TOTAL - _KEPT, "used": 0},
        "nvmlDeviceGetMemoryInfo": {"total": _TOTAL, "free": _TOTAL - _KEPT, "used": _KEPT},
        "nvmlDeviceGetTemperatureV": 61,
        "nvmlDeviceGetTemperature": 61,
        "nvmlDeviceGetMarginTemperature": -1,
        "nvmlDeviceGetCurrentClocksEventReasons": 0x24,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 0x24,
        ("nvmlDeviceGetClockInfo", 0): 1755, ("nvmlDeviceGetClockInfo", 1): 1740,
        ("nvmlDeviceGetClockInfo", 2): 2619, ("nvmlDeviceGetClockInfo", 3): 1500,
        ("nvmlDeviceGetMaxClockInfo", 1): 1980, ("nvmlDeviceGetMaxClockInfo", 2): 2619,
        "nvmlDeviceGetEncoderUtilization": 7, "nvmlDeviceGetDecoderUtilization": 0,
        "nvmlDeviceGetCurrPcieLinkGeneration": 5, "nvmlDeviceGetMaxPcieLinkGeneration": 5,
        "nvmlDeviceGetCurrPcieLinkWidth": 16, "nvmlDeviceGetMaxPcieLinkWidth": 16,
        "nvmlDeviceGetEccMode": 1, "nvmlDeviceGetPersistenceMode": 1,
        "nvmlDeviceGetPowerUsage": 400_000,
        "nvmlDeviceGetPowerManagementLimit": 640_000,
        "nvmlDeviceGetPowerManagementDefaultLimit": 690_000,
        "nvmlDeviceGetGpuFabricInfoV": {"cluster_uuid": "00" * 16, "clique": 0, "state": 3, "status": 0, "health": 0},
    }  # fmt: skip
    return gpu


def _older_links(gpu: FakeGpu, links: int) -> FakeGpu:
    gpu.fields |= {(91, 0): (U32, links), (138, ALL): (U64, 5), (139, ALL): (U64, 7)}
    gpu.fields |= {(field, 0): (U64, 0) for field in (38, 45, 52, 59, 160)}
    for link in range(links):
        gpu.fields |= {(161, link): (U64, link), (162, link): (U64, 0), (163, link): (U64, 0)}
        gpu.fields |= {(164, link): (U32, 26_562), (165, link): (U32, 1)}
    return gpu


Given = Mapping[Any, Any]
"""Answers that differ from the usual ones, by the keys of `FakeGpu`."""


def h100(number: int = 0, *, calls: Given | None = None, fields: Given | None = None) -> FakeGpu:
    """Hopper: GPM, NVLink 4, the newer throttle counters."""
    gpu = _older_links(_common(FakeGpu(number, "NVIDIA H100 80GB HBM3")), 18)
    gpu.fields |= {(269, 0): (U64, 0), (270, 0): (U64, 0), (271, 0): (U64, 0), (197, 0): (U64, 11), (198, 0): (U64, 13)}
    gpu.calls |= {"nvmlDeviceGetArchitecture": 9, "nvmlDeviceGetCudaComputeCapability": (9, 0)}
    gpu.calls |= {"nvmlGpmQueryDeviceSupport": 1, "nvmlGpmSampleGet": None}
    gpu.gpm = {2: 57.0, 3: 12.5, 5: 29.0, 10: 70.0, 11: 0.0, 12: 1.0, 13: 2.0, 20: 6.0, 21: 15.0}
    return gpu.given(calls, fields)


def a100(number: int = 0, *, calls: Given | None = None, fields: Given | None = None) -> FakeGpu:
    """Ampere: no GPM, none of the fields 269 to 271."""
    gpu = _older_links(_common(FakeGpu(number, "NVIDIA A100-SXM4-80GB")), 12)
    gpu.calls |= {"nvmlDeviceGetArchitecture": 7, "nvmlDeviceGetCudaComputeCapability": (8, 0)}
    return gpu.given(calls, fields)


def b200(number: int = 0, *, calls: Given | None = None, fields: Given | None = None) -> FakeGpu:
    """Blackwell: NVLink 5's own counters and error ratios, by link, and none of the older ones."""
    gpu = h100(number)
    gpu.calls |= {"nvmlDeviceGetName": "NVIDIA B200", "nvmlDeviceGetArchitecture": 10}
    for field, scope in list(gpu.fields):
        if field in (38, 45, 52, 59, 138, 139, 160, 161, 162, 163):
            del gpu.fields[field, scope]
    for link in range(18):
        gpu.fields |= {(202, link): (U64, 100), (204, link): (U64, 200 + link)}
        gpu.fields |= {(field, link): (U64, 0) for field in (*range(206, 215), 219, 221, *range(235, 251), 289, 290)}
        gpu.fields |= {(220, link): (U64, 0xFFF), (222, link): (U64, 0xFFF), (293, link): (U64, 0x109)}
        gpu.fields |= {(294, link): (U64, 1000), (295, link): (U64, 0)}
    return gpu.given(calls, fields)


def instance(number: int) -> FakeGpu:
    """A MIG device of an H100."""
    gpu = FakeGpu(0, f"NVIDIA H100 80GB HBM3 MIG {number}g.{number}0gb")
    gpu.calls |= {
        "nvmlDeviceGetUUID": f"MIG-{number}",
        "nvmlDeviceGetGpuInstanceId": number + 6,
        "nvmlDeviceGetComputeInstanceId": 0,
        "nvmlDeviceGetMemoryInfo_v2": {"total": 1000 * number, "reserved": 0, "free": 1, "used": 10 * number},
    }
    return gpu
