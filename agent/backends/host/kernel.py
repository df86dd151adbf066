"""Figures of the kernel: processor time, load, pressure, memory and its errors, and the kernel release."""

import errno
import os
from functools import partial

import psutil

from agent.backends.host.reading_groups import GroupReadings, ReadingGroup
from agent.backends.sysfs import list_names, text
from agent.catalogue import BY_NAME
from agent.catalogue.node import IDENTITY, MEMORY, MEMORY_ERRORS

CPU = BY_NAME["coldplate_node_cpu_seconds_total"]
CPUS = BY_NAME["coldplate_node_cpus"]
LOADS = tuple(BY_NAME[f"coldplate_node_load{minutes}"] for minutes in (1, 5, 15))
WAITING = BY_NAME["coldplate_node_pressure_waiting_seconds_total"]
STALLED = BY_NAME["coldplate_node_pressure_stalled_seconds_total"]
PRESSURE = {"some": WAITING, "full": STALLED}
MEMORY_TOTAL, MEMORY_AVAILABLE, MEMORY_USED, SWAP_USED = MEMORY
BOOT, INFO = IDENTITY

CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Without guest and guest_nice: the kernel counts them in user and nice too, and a sum would be wrong."""

CPU_FALLBACK_SECONDS = 3.0
"""Seconds by which one processor's idle or iowait time may step back without having been reset.

proc(5) warns that iowait may decrease; node_exporter tolerates the same 3 s.
"""

PRESSURE_RESOURCES = ("cpu", "memory", "io")

EDAC = "devices/system/edac/mc"
"""Where sysfs has the memory controllers (the kernel's Documentation/ABI/testing/sysfs-devices-edac)."""
ERROR_TYPES = {"corrected": "ce_count", "uncorrected": "ue_count"}
MOST_DIMMS = 512
"""Most memory modules that are shown: the largest nodes have 64."""


def parse_pressure(content: str) -> dict[str, float]:
    """Return seconds stalled by kind, from a file of /proc/pressure, which counts microseconds."""
    stalled = {}
    for line in content.splitlines():
        kind, *fields = line.split()
        stalled[kind] = int(dict(field.split("=", 1) for field in fields)["total"]) / 1e6
    return stalled


class KernelGroups:
    """Reads procfs, the memory controllers in sysfs, and what the C library knows."""

    def __init__(self, procfs: str, sysfs: str) -> None:
        self._procfs = procfs
        self._sysfs = sysfs
        self._cpu_before: dict[str, float] = {}
        self._boot: float | None = None

    def groups(self) -> list[ReadingGroup]:
        at = self._procfs
        groups = [
            ReadingGroup(f"{at}/stat", self._cpu_times, (CPU,)),
            ReadingGroup("sysconf", _cpu_count, (CPUS,)),
            ReadingGroup(f"{at}/loadavg", self._load, LOADS),
            ReadingGroup(f"{at}/meminfo", _memory, (MEMORY_TOTAL, MEMORY_AVAILABLE, MEMORY_USED)),
            ReadingGroup(f"{at}/vmstat", _swap, (SWAP_USED,)),
            ReadingGroup(f"{at}/stat: btime", self._boot_time, (BOOT,)),
            ReadingGroup("uname", _info, (INFO,)),
            ReadingGroup(f"{self._sysfs}/{EDAC}", self._memory_errors, MEMORY_ERRORS),
        ]
        # One gap for all three: a kernel without pressure figures has none of them.
        detail = f"{at}/pressure: "
        for resource in PRESSURE_RESOURCES:
            read_pressure = partial(self._pressure, resource)
            groups.append(ReadingGroup(f"{at}/pressure/{resource}", read_pressure, (WAITING, STALLED), detail))
        return groups

    def _cpu_times(self, figures: GroupReadings) -> None:
        tolerated = CPU_FALLBACK_SECONDS * os.sysconf("SC_NPROCESSORS_ONLN")
        times = psutil.cpu_times()
        for mode in CPU_MODES:
            value = float(getattr(times, mode))
            before = self._cpu_before.get(mode, value)
            if 0 < before - value <= tolerated:
                value = before
            self._cpu_before[mode] = value
            figures.add(CPU, value, mode)

    def _load(self, figures: GroupReadings) -> None:
        # Not os.getloadavg: it would not follow the procfs root.
        fields = text(f"{self._procfs}/loadavg").split()
        for row, field in zip(LOADS, fields[:3], strict=True):
            figures.add(row, float(field))

    def _pressure(self, resource: str, figures: GroupReadings) -> None:
        seconds = parse_pressure(text(f"{self._procfs}/pressure/{resource}"))
        for kind in PRESSURE.keys() & seconds.keys():
            figures.add(PRESSURE[kind], seconds[kind], resource)

    def _boot_time(self, figures: GroupReadings) -> None:
        # Read once: it does not change, and /proc/stat is long on a large machine.
        if self._boot is None:
            self._boot = psutil.boot_time()
        figures.add(BOOT, self._boot)

    def _memory_errors(self, figures: GroupReadings) -> None:
        """Add the errors of all controllers, and those of each module.

        A controller counts the errors of its modules and those that it cannot attribute to one. A kernel without a
        driver for the controllers has none, which is a gap: no errors counted is not the same as no errors.
        """
        root = f"{self._sysfs}/{EDAC}"
        controllers = [f"{root}/{name}" for name in list_names(root) if name.startswith("mc")]
        if not controllers:
            raise FileNotFoundError(errno.ENOENT, "no memory controller is known to the kernel", root)
        total, of_dimm = MEMORY_ERRORS
        for kind, file in ERROR_TYPES.items():
            figures.add(total, sum(int(text(f"{controller}/{file}")) for controller in controllers), kind)
        dimms = [
            (controller, name)
            for controller in controllers
            for name in list_names(controller)
            if name.startswith(("dimm", "rank"))
        ]
        for controller, name in dimms[:MOST_DIMMS]:
            folder = f"{controller}/{name}"
            labels = (os.path.basename(controller), name, text(f"{folder}/dimm_label"))  # noqa: PTH119 - no Path is needed
            for kind, file in ERROR_TYPES.items():
                figures.add(of_dimm, int(text(f"{folder}/dimm_{file}")), *labels, kind)
        figures.left_out += max(len(dimms) - MOST_DIMMS, 0) * len(ERROR_TYPES)


def _cpu_count(figures: GroupReadings) -> None:
    figures.add(CPUS, os.sysconf("SC_NPROCESSORS_ONLN"))


def _memory(figures: GroupReadings) -> None:
    memory = psutil.virtual_memory()
    figures.add(MEMORY_TOTAL, memory.total)
    figures.add(MEMORY_AVAILABLE, memory.available)
    # Not psutil's `used`, whose definition changed between its versions.
    figures.add(MEMORY_USED, memory.total - memory.available)


def _swap(figures: GroupReadings) -> None:
    figures.add(SWAP_USED, psutil.swap_memory().used)


def _info(figures: GroupReadings) -> None:
    system = os.uname()
    figures.add(INFO, 1.0, system.release, system.machine)
