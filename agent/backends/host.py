"""The host's own figures: processors, memory, disks, network, pressure.

A GPU that waits is often starved by its host, so the rules need these beside the GPUs' figures. This
is no replacement for node_exporter: only physical disks and interfaces and local filesystems are
shown, and nothing that grows with the number of containers, partitions or virtual interfaces.
Network and cluster filesystems are left out, because asking one whose server is away blocks.

Each group of figures is read apart, so that one unreadable file costs its own rows only.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import psutil

from agent.backends.protocol import Sample
from agent.catalogue.node import BY_NAME, IDENTITY, MEMORY
from agent.model import Gap, Instant, Lane, Metric, Node, Reading, Reason, Series

CPU = BY_NAME["coldplate_node_cpu_seconds_total"]
CPUS = BY_NAME["coldplate_node_cpus"]
LOADS = tuple(BY_NAME[f"coldplate_node_load{minutes}"] for minutes in (1, 5, 15))
PRESSURE = BY_NAME["coldplate_node_pressure_stall_seconds_total"]
MEMORY_TOTAL, MEMORY_AVAILABLE, MEMORY_USED, SWAP_USED = MEMORY
DISK = tuple(BY_NAME[f"coldplate_node_disk_{what}_bytes_total"] for what in ("read", "written"))
FILESYSTEM = tuple(BY_NAME[f"coldplate_node_filesystem_{what}_bytes"] for what in ("size", "used"))
NETWORK = tuple(
    (BY_NAME[f"coldplate_node_network_{what}_total"], field)
    for what, field in (
        ("receive_bytes", "bytes_recv"),
        ("transmit_bytes", "bytes_sent"),
        ("receive_errors", "errin"),
        ("transmit_errors", "errout"),
        ("receive_drops", "dropin"),
        ("transmit_drops", "dropout"),
    )
)
BOOT, INFO = IDENTITY

CPU_MODES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
"""Without guest and guest_nice: the kernel counts them in user and nice too, and a sum would be wrong."""

CPU_FALLBACK = 3.0
"""Seconds by which one processor's idle or iowait time may step back without having been reset.

proc(5) warns that iowait may decrease; node_exporter tolerates the same 3 s.
"""

PRESSURE_RESOURCES = ("cpu", "memory", "io")
MAX_FILESYSTEMS = 8
READ_ONLY_IMAGES = frozenset({"squashfs", "iso9660", "erofs"})
"""Filesystems that are full by nature."""
FOREIGN_MOUNTS = ("/dev", "/proc", "/sys", "/run", "/snap", "/var/snap", "/var/lib/docker", "/var/lib/containers",
                  "/var/lib/containerd", "/var/lib/kubelet")  # fmt: skip
"""Where container engines and the system mount things of their own that come and go."""

UNREADABLE = (OSError, ValueError, LookupError, ArithmeticError, RuntimeError)
"""What psutil and the parsers here raise for a file that is missing, denied or garbled."""


def parse_pressure(text: str) -> dict[str, float]:
    """Seconds stalled by kind, from a file of /proc/pressure, which counts microseconds."""
    stalled = {}
    for line in text.splitlines():
        kind, *fields = line.split()
        stalled[kind] = int(dict(field.split("=", 1) for field in fields)["total"]) / 1e6
    return stalled


def gap_reason(error: Exception) -> Reason:
    """Why a group of figures is absent, from the error that its reading raised."""
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENOSYS):
        return Reason.UNSUPPORTED  # EOPNOTSUPP: a kernel that was started with psi=0
    if code in (errno.EACCES, errno.EPERM):
        return Reason.DENIED
    return Reason.LOST if code is not None else Reason.MALFORMED


class HostBackend:
    """Reads the host through psutil, and the two files that psutil does not know from procfs itself."""

    name = "host"
    lanes = frozenset({Lane.SLOW})
    shortest = 1.0

    def __init__(self, procfs: str = "/proc", sysfs: str = "/sys") -> None:
        # psutil has no other way to be told the root: it is a setting of the module, so of the process.
        psutil.PROCFS_PATH = procfs
        self._procfs = Path(procfs)
        self._sysfs = Path(sysfs)
        self._series: dict[tuple[str, tuple[str, ...]], Series] = {}
        self._cpu_before: dict[str, float] = {}
        self._boot: float | None = None
        self._readings: list[Reading] = []
        self._gaps: list[Gap] = []
        self._groups: tuple[tuple[Callable[[], None], tuple[Metric, ...]], ...] = (
            (self._cpu_times, (CPU,)),
            (self._cpu_count, (CPUS,)),
            (self._load, LOADS),
            (self._pressure, (PRESSURE,)),
            (self._memory, (MEMORY_TOTAL, MEMORY_AVAILABLE, MEMORY_USED)),
            (self._swap, (SWAP_USED,)),
            (self._disks, DISK),
            (self._filesystems, FILESYSTEM),
            (self._network, tuple(row for row, _ in NETWORK)),
            (self._boot_time, (BOOT,)),
            (self._info, (INFO,)),
        )

    def read(self, lane: Lane, now: Instant) -> Sample:  # noqa: ARG002 - the protocol's signature
        """Read every group; a group that fails becomes one gap for each of its rows."""
        self._readings, self._gaps = [], []
        for read, rows in self._groups:
            taken = len(self._readings)
            try:
                read()
            except UNREADABLE as error:
                del self._readings[taken:]
                self._miss(error, *rows)
        return Sample(readings=self._readings, gaps=self._gaps, calls=len(self._groups))

    def close(self) -> None:
        """Nothing is held open between reads."""

    def _add(self, row: Metric, value: float, *labels: str) -> None:
        key = (row.name, labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(row, Node(), tuple(zip(row.labels, labels, strict=True)))
        self._readings.append(Reading(series, float(value)))

    def _miss(self, error: Exception, *rows: Metric, of: str = "") -> None:
        detail = f"{of}{type(error).__name__}: {error}"
        self._gaps.extend(Gap(row, Node(), gap_reason(error), detail) for row in rows)

    def _cpu_count(self) -> None:
        self._add(CPUS, os.sysconf("SC_NPROCESSORS_ONLN"))

    def _cpu_times(self) -> None:
        tolerated = CPU_FALLBACK * os.sysconf("SC_NPROCESSORS_ONLN")
        times = psutil.cpu_times()
        for mode in CPU_MODES:
            value = float(getattr(times, mode))
            before = self._cpu_before.get(mode, value)
            if 0 < before - value <= tolerated:
                value = before
            self._cpu_before[mode] = value
            self._add(CPU, value, mode)

    def _load(self) -> None:
        # Not os.getloadavg: it would not follow the procfs root.
        fields = (self._procfs / "loadavg").read_text(encoding="ascii").split()
        for row, text in zip(LOADS, fields[:3], strict=True):
            self._add(row, float(text))

    def _pressure(self) -> None:
        failed: Exception | None = None
        for resource in PRESSURE_RESOURCES:
            path = self._procfs / "pressure" / resource
            try:
                stalled = parse_pressure(path.read_text(encoding="ascii"))
            except UNREADABLE as error:
                failed = failed or error
                continue
            for kind, seconds in stalled.items():
                self._add(PRESSURE, seconds, resource, kind)
        if failed is not None:  # one gap, not three: a kernel without pressure figures has none of them
            self._miss(failed, PRESSURE, of=f"{self._procfs}/pressure: ")

    def _memory(self) -> None:
        memory = psutil.virtual_memory()
        self._add(MEMORY_TOTAL, memory.total)
        self._add(MEMORY_AVAILABLE, memory.available)
        # Not psutil's `used`, whose definition changed between its versions.
        self._add(MEMORY_USED, memory.total - memory.available)

    def _swap(self) -> None:
        self._add(SWAP_USED, psutil.swap_memory().used)

    def _disks(self) -> None:
        physical = self._physical_disks()
        # nowrap=False: counters that fall are the frame's work, and psutil would keep a history for it.
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False)
        for device, io in sorted(counters.items()):
            if device in physical:
                self._add(DISK[0], io.read_bytes, device)
                self._add(DISK[1], io.write_bytes, device)

    def _physical_disks(self) -> set[str]:
        # A whole disk with hardware behind it has a `device`; partitions, loop, ram, md and dm have none,
        # and the last two would count the bytes of their members again. sysfs writes / in a name as !.
        block = self._sysfs / "block"
        return {disk.name.replace("!", "/") for disk in block.iterdir() if (disk / "device").exists()}

    def _filesystems(self) -> None:
        for mountpoint in self._mountpoints():
            try:
                usage = psutil.disk_usage(mountpoint)
            except OSError as error:  # unmounted since it was listed, or not for this user to see
                self._miss(error, *FILESYSTEM)
                continue
            self._add(FILESYSTEM[0], usage.total, mountpoint)
            self._add(FILESYSTEM[1], usage.used, mountpoint)

    def _mountpoints(self) -> list[str]:
        """The root and the first mount of each local block device, the shortest paths first."""
        chosen = ["/"]
        mounts = [
            mount
            for mount in psutil.disk_partitions(all=False)
            if mount.fstype not in READ_ONLY_IMAGES
            and not any(mount.mountpoint == at or mount.mountpoint.startswith(f"{at}/") for at in FOREIGN_MOUNTS)
        ]
        seen = {mount.device for mount in mounts if mount.mountpoint == "/"}
        for mount in sorted(mounts, key=lambda each: (len(each.mountpoint), each.mountpoint)):
            if mount.device not in seen:
                seen.add(mount.device)
                chosen.append(mount.mountpoint)
        return chosen[:MAX_FILESYSTEMS]

    def _network(self) -> None:
        counters = psutil.net_io_counters(pernic=True, nowrap=False)
        for device, io in sorted(counters.items()):
            if self._is_physical_interface(device):
                for row, field in NETWORK:
                    self._add(row, getattr(io, field), device)

    def _is_physical_interface(self, device: str) -> bool:
        # Bridges, veth, bonds, VLANs and lo have no `device`. A virtual function of a card has one, and in
        # it the way back to its physical function, which counts for the whole card.
        hardware = self._sysfs / "class" / "net" / device / "device"
        return hardware.exists() and not (hardware / "physfn").exists()

    def _boot_time(self) -> None:
        # Read once: it does not change, and /proc/stat is long on a large machine.
        if self._boot is None:
            self._boot = psutil.boot_time()
        self._add(BOOT, self._boot)

    def _info(self) -> None:
        system = os.uname()
        self._add(INFO, 1.0, system.release, system.machine)
