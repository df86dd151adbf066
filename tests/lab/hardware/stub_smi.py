"""A stand-in for nvidia-smi over the stand-in library: the values are pynvml's own, not coldplate's.

Only for the tests of the hardware checks. A JSON file named by COLDPLATE_FAKE_SMI may hold answers that are
to be false, by CSV field or by XML element, and `"refuse": [FIELD]` for fields that it lists and then refuses.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nvml


def _field(handle: Any, number: int) -> int:
    value = nvml.nvmlDeviceGetFieldValues(handle, [number])[0]
    return int(value.value.uiVal if value.valueType == 1 else value.value.ullVal)


def _memory(part: str) -> Callable[[Any], str]:
    return lambda h: str(getattr(nvml.nvmlDeviceGetMemoryInfo(h, version=nvml.nvmlMemory_v2), part) >> 20)


def _watts(number: int) -> Callable[[Any], str]:
    return lambda h: f"{_field(h, number) / 1000:.2f}"


def _microseconds(number: int) -> Callable[[Any], str]:
    return lambda h: str(_field(h, number) // 1000)


CSV: dict[str, Callable[[Any], str]] = {
    "index": lambda h: str(nvml.nvmlDeviceGetIndex(h)),
    "uuid": nvml.nvmlDeviceGetUUID,
    "serial": nvml.nvmlDeviceGetSerial,
    "pci.bus_id": lambda h: nvml.nvmlDeviceGetPciInfo(h).busId,
    "name": nvml.nvmlDeviceGetName,
    "driver_version": lambda h: nvml.nvmlSystemGetDriverVersion(),
    "vbios_version": nvml.nvmlDeviceGetVbiosVersion,
    "utilization.gpu": lambda h: str(nvml.nvmlDeviceGetUtilizationRates(h).gpu),
    "utilization.memory": lambda h: str(nvml.nvmlDeviceGetUtilizationRates(h).memory),
    "utilization.encoder": lambda h: str(nvml.nvmlDeviceGetEncoderUtilization(h)[0]),
    "memory.total": _memory("total"),
    "memory.reserved": _memory("reserved"),
    "memory.used": _memory("used"),
    "memory.free": _memory("free"),
    "power.draw": lambda h: f"{nvml.nvmlDeviceGetPowerUsage(h) / 1000:.2f}",
    "power.draw.average": _watts(185),
    "power.draw.instant": _watts(186),
    "module.power.draw.instant": lambda h: "[N/A]",
    "enforced.power.limit": lambda h: f"{nvml.nvmlDeviceGetEnforcedPowerLimit(h) / 1000:.2f}",
    "power.default_limit": lambda h: f"{nvml.nvmlDeviceGetPowerManagementDefaultLimit(h) / 1000:.2f}",
    "temperature.gpu": lambda h: str(nvml.nvmlDeviceGetTemperatureV(h, 0)),
    "temperature.memory": lambda h: str(_field(h, 82)),
    "clocks.sm": lambda h: str(nvml.nvmlDeviceGetClockInfo(h, 1)),
    "clocks.mem": lambda h: str(nvml.nvmlDeviceGetClockInfo(h, 2)),
    "clocks.max.sm": lambda h: str(nvml.nvmlDeviceGetMaxClockInfo(h, 1)),
    "ecc.errors.corrected.volatile.total": lambda h: str(_field(h, 3)),
    "ecc.errors.uncorrected.aggregate.total": lambda h: str(_field(h, 6)),
    "pcie.link.gen.gpucurrent": lambda h: str(nvml.nvmlDeviceGetCurrPcieLinkGeneration(h)),
    "pcie.link.width.current": lambda h: str(nvml.nvmlDeviceGetCurrPcieLinkWidth(h)),
    "mig.mode.current": lambda h: ("Disabled", "Enabled")[nvml.nvmlDeviceGetMigMode(h)[0]],
    "clocks_event_reasons_counters.sw_power_cap": _microseconds(74),
    "clocks_event_reasons_counters.hw_thermal_slowdown": _microseconds(270),
}


def _active(bit: int) -> Callable[[Any], str]:
    return lambda h: "Active" if nvml.nvmlDeviceGetCurrentClocksEventReasons(h) & bit else "Not Active"


XML: dict[str, Callable[[Any], str]] = {
    "uuid": nvml.nvmlDeviceGetUUID,
    "remapped_rows/remapped_row_corr": lambda h: str(_field(h, 142)),
    "remapped_rows/remapped_row_pending": lambda h: ("No", "Yes")[_field(h, 144)],
    "temperature/gpu_temp_tlimit": lambda h: f"{nvml.nvmlDeviceGetMarginTemperature(h)} C",
    "clocks_event_reasons/clocks_event_reason_sw_power_cap": _active(4),
    "clocks_event_reasons/clocks_event_reason_gpu_idle": _active(1),
    "pci/replay_counter": lambda h: str(_field(h, 94)),
}


def _handles() -> list[Any]:
    nvml.nvmlInit()
    return [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]


def query(names: list[str], lies: dict[str, Any]) -> int:
    for name in names:
        if name not in CSV or name in lies.get("refuse", ()):
            print(f'Field "{name}" is not a valid field to query.\n')
            return 2
    for handle in _handles():
        print(", ".join(str(lies.get(name, CSV[name](handle))) for name in names))
    return 0


def document(lies: dict[str, Any]) -> int:
    print('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>')
    for handle in _handles():
        print("<gpu>")
        for path, value in XML.items():
            parts = path.split("/")
            text = f"{lies.get(path, value(handle))}"
            print("".join(f"<{part}>" for part in parts) + text + "".join(f"</{part}>" for part in reversed(parts)))
        print("</gpu>")
    print("</nvidia_smi_log>")
    return 0


def main(arguments: list[str]) -> int:
    source = os.environ.get("COLDPLATE_FAKE_SMI")
    lies = json.loads(Path(source).read_text()) if source else {}
    if arguments == ["--help-query-gpu"]:
        print("\n".join(f'"{name}"\nThe {name}.\n' for name in CSV))
        return 0
    if arguments == ["-q", "-x"] and "-q -x" in lies.get("refuse", ()):
        print("no XML today")
        return 1
    if arguments == ["-q", "-x"]:
        return document(lies)
    return query(arguments[0].removeprefix("--query-gpu=").split(","), lies)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
