"""Readings of physical disks, filesystems on block devices, and network interfaces.

The list of mounts is parsed here, because psutil reads it in C with the interpreter's lock held: a mount that hangs
there would block every thread of the agent.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

import psutil

from agent.backends.host.reading_groups import GroupReadings, ReadingGroup
from agent.backends.sysfs import is_physical_interface
from agent.catalogue import BY_NAME

MAX_LIST_BYTES = 4 << 20
"""Bytes read of the list of mounts; on a node with hundreds of containers it has some hundred KiB."""

_ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")
"""Escapes of blanks, backslashes and #, in octal (`seq_path` and `mangle` in the kernel's fs/proc_namespace.c)."""


class Mount(NamedTuple):
    """One line of /proc/self/mounts."""

    device: str
    mountpoint: str
    fstype: str


def all_mounts(procfs: str) -> list[Mount]:
    """Return the mounts in the kernel's order. Raises OSError."""
    lines = _complete_lines(f"{procfs}/self/mounts").split(b"\n")
    fields = ([_unescape(field) for field in line.split(b" ", 3)[:3]] for line in lines)
    return [Mount(*f) for f in fields if len(f) == 3]


def block_mounts(procfs: str) -> list[Mount]:
    """Return the mounts of block devices and of ZFS, in the kernel's order. Raises OSError."""
    types = _block_device_types(_complete_lines(f"{procfs}/filesystems"))
    return [mount for mount in all_mounts(procfs) if mount.device not in ("", "none") and mount.fstype in types]


def _block_device_types(filesystems: bytes) -> set[str]:
    """Return the types in /proc/filesystems that need a block device, and ZFS, which is listed as needing none."""
    rows = [line.split() for line in filesystems.split(b"\n")]
    return {_unescape(row[-1]) for row in rows if len(row) == 1 or row == [b"nodev", b"zfs"]}


def _complete_lines(path: str) -> bytes:
    """Return a file's complete lines within its first MAX_LIST_BYTES."""
    with Path(path).open("rb") as file:
        content = file.read(MAX_LIST_BYTES)
    return content[: content.rfind(b"\n") + 1]


def _unescape(field: bytes) -> str:
    return os.fsdecode(_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), field))


DISK = tuple(BY_NAME[f"coldplate_node_disk_{direction}_bytes_total"] for direction in ("read", "written"))
FILESYSTEM = tuple(BY_NAME[f"coldplate_node_filesystem_{kind}_bytes"] for kind in ("size", "used"))
NETWORK = tuple(
    (BY_NAME[f"coldplate_node_network_{counter}_total"], field)
    for counter, field in (
        ("receive_bytes", "bytes_recv"),
        ("transmit_bytes", "bytes_sent"),
        ("receive_errors", "errin"),
        ("transmit_errors", "errout"),
        ("receive_drops", "dropin"),
        ("transmit_drops", "dropout"),
    )
)

MAX_DEVICES = 256
"""Disks, and interfaces, that are exposed at most."""
MAX_FILESYSTEMS = 8
READ_ONLY_IMAGES = frozenset({"squashfs", "iso9660", "erofs"})
"""Types of filesystems that are always full."""
SHORT_LIVED_MOUNTS = ("/dev", "/proc", "/sys", "/run", "/snap", "/var/snap", "/var/lib/docker", "/var/lib/containers",
                  "/var/lib/containerd", "/var/lib/kubelet")  # fmt: skip
"""Directories in which the system and container engines mount short-lived filesystems, which are not exposed."""


class DiskAndNetworkGroups:
    """Reads procfs through psutil, and distinguishes physical devices from virtual ones by sysfs."""

    def __init__(self, procfs: str, sysfs: str) -> None:
        self._procfs = procfs
        self._sysfs = sysfs

    def groups(self) -> list[ReadingGroup]:
        return [
            ReadingGroup(f"{self._procfs}/diskstats", self._disks, DISK),
            ReadingGroup(f"{self._procfs}/net/dev", self._network, tuple(row for row, _ in NETWORK)),
        ]

    def _disks(self, readings: GroupReadings) -> None:
        os.stat(f"{self._procfs}/diskstats")  # noqa: PTH116 - raises if missing: psutil would read sysfs instead
        # nowrap=False: the sampler handles counters that fall, so psutil need not keep a history.
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False)
        disks = [device for device in sorted(counters) if self._is_physical_disk(device)]
        for device in disks[:MAX_DEVICES]:
            readings.add(DISK[0], counters[device].read_bytes, device)
            readings.add(DISK[1], counters[device].write_bytes, device)
        readings.left_out = len(DISK) * max(len(disks) - MAX_DEVICES, 0)

    def _is_physical_disk(self, device: str) -> bool:
        # Only a whole physical disk has a `device`; partitions, loop, ram, md and dm have none, and the last two would
        # count the bytes of their members again. In a name, sysfs replaces / by !.
        return os.path.exists(f"{self._sysfs}/block/{device.replace('/', '!')}/device")  # noqa: PTH110 - Path's may raise

    def _network(self, readings: GroupReadings) -> None:
        counters = psutil.net_io_counters(pernic=True, nowrap=False)
        if not counters:
            raise ValueError(f"{self._procfs}/net/dev shows no interface, not even lo")
        interfaces = [device for device in sorted(counters) if is_physical_interface(self._sysfs, device)]
        for device in interfaces[:MAX_DEVICES]:
            for row, field in NETWORK:
                readings.add(row, getattr(counters[device], field), device)
        readings.left_out = len(NETWORK) * max(len(interfaces) - MAX_DEVICES, 0)


def shown_mount_points(procfs: str) -> list[str]:
    """Return / and for each other block device its shortest mount point, shortest first. Raises OSError."""
    chosen = ["/"]
    mounts = [
        mount
        for mount in block_mounts(procfs)
        if mount.fstype not in READ_ONLY_IMAGES
        and not any(mount.mountpoint == at or mount.mountpoint.startswith(f"{at}/") for at in SHORT_LIVED_MOUNTS)
    ]
    devices = {mount.device for mount in mounts if mount.mountpoint == "/"}
    for mount in sorted(mounts, key=lambda m: (len(m.mountpoint), m.mountpoint)):
        if mount.device not in devices:
            devices.add(mount.device)
            chosen.append(mount.mountpoint)
    return chosen


def filesystem(mountpoint: str) -> ReadingGroup:
    """Return the readings of one filesystem, which may have been unmounted since it was listed, or be hidden."""

    def read(readings: GroupReadings) -> None:
        usage = psutil.disk_usage(mountpoint)
        readings.add(FILESYSTEM[0], usage.total, mountpoint)
        readings.add(FILESYSTEM[1], usage.used, mountpoint)

    return ReadingGroup(mountpoint, read, FILESYSTEM)
