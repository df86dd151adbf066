"""Faults of the host that stop GPU jobs: filesystems that do not answer, processes that are stuck in the kernel, a
Fabric Manager that does not run, the module for GPUDirect RDMA that is not loaded.

They are looked at once a minute. A filesystem is asked in a thread of its own, because the server of a network
filesystem may be gone, and then the question does not return.
"""

import errno
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agent.backends.host.disks_and_network import Mount, all_mounts
from agent.backends.host.reading_groups import GroupReadings, ReadingGroup
from agent.backends.sysfs import list_names, text, text_if_possible
from agent.catalogue import BY_NAME
from agent.lib.proc_stat import parse_stat

log = logging.getLogger("coldplate.host")

MOUNT_UP, STUCK, FABRIC_MANAGER, PEERMEM = (
    BY_NAME[f"coldplate_node_{name}"] for name in ("mount_up", "processes_stuck", "fabric_manager_up", "peermem_loaded")
)
MAX_MOUNTS = 16
NETWORK_TYPES = frozenset(
    ("nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "wekafs", "pvfs2", "panfs", "9p", "virtiofs")
)
NO_STORAGE = frozenset({"fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "fuse.snapfuse"})
DEAD = frozenset({errno.ESTALE, errno.ENOTCONN, errno.ESHUTDOWN, errno.EIO, errno.EHOSTDOWN, errno.ETIMEDOUT})
"""Errors of a filesystem whose server is gone: NFS, FUSE, Lustre, and in general."""
STUCK_SECONDS = 120.0
"""Seconds without running from which a process in uninterruptible sleep counts as stuck: as the kernel's hung tasks."""
KERNEL_THREAD = 0x200000
"""PF_KTHREAD in the flags of proc(5): threads of some drivers wait so for work."""
MAX_REMEMBERED = 4096
MANAGER = "nv-fabricmanage"
"""Fabric Manager's program, by the 15 characters that the kernel keeps."""
SWITCHES = "driver/nvidia-nvswitch/devices"
PEERMEM_MODULES = ("nvidia_peermem", "nv_peer_mem")


def network_mounts(procfs: str) -> list[Mount]:
    """Return network and FUSE filesystems; of several mounts on one point the last counts. Raises OSError."""
    last = {mount.mountpoint: mount for mount in all_mounts(procfs)}
    return [
        mount
        for mount in sorted(last.values(), key=lambda m: (len(m.mountpoint), m.mountpoint))
        if mount.fstype in NETWORK_TYPES or (mount.fstype.startswith("fuse.") and mount.fstype not in NO_STORAGE)
    ]


def answers(mountpoint: str) -> bool | None:
    """Return whether a filesystem answers; None if this user may not ask."""
    try:
        os.statvfs(mountpoint)
    except OSError as error:
        return False if error.errno in DEAD else None
    return True


class _Sleeper(NamedTuple):
    """Since when a process sleeps without running, in monotonic seconds, and how often it had run by then."""

    since: float
    switches: tuple[str, ...]


class HostFaultGroups:
    """Reads procfs and sysfs. `mono` is the time of the look, in monotonic seconds."""

    def __init__(self, procfs: str, sysfs: str) -> None:
        self._procfs = procfs
        self._sysfs = sysfs
        self._sleepers: dict[tuple[str, int], _Sleeper] = {}
        self._logged: set[tuple[str, int]] = set()
        self._manager = ""
        self.mono = 0.0

    def groups(self) -> list[ReadingGroup]:
        return [
            ReadingGroup(f"{self._procfs}: processes", self._stuck, (STUCK,)),
            ReadingGroup(f"{self._procfs}/{SWITCHES}", self._fabric_manager, (FABRIC_MANAGER,)),
            ReadingGroup(f"{self._sysfs}/module", self._peermem, (PEERMEM,)),
        ]

    def _stuck(self, figures: GroupReadings) -> None:
        self._refuse_hidden()
        sleepers = dict(self._asleep()) if self._blocked() else {}
        self._sleepers = dict(list(sleepers.items())[:MAX_REMEMBERED])
        stuck = {key for key, sleeper in self._sleepers.items() if self.mono - sleeper.since >= STUCK_SECONDS}
        for pid, started in sorted(stuck - self._logged):
            seconds = int(self.mono - self._sleepers[pid, started].since)
            facts = {"pid": pid, "command": self._command(pid), "seconds": seconds}
            log.warning("process is stuck in the kernel", extra={"facts": facts})
        self._logged = stuck
        figures.add(STUCK, len(stuck))

    def _refuse_hidden(self) -> None:
        """Raise OSError if this user does not see others' processes: then nothing can be said of them."""
        os.stat(f"{self._procfs}/1/stat")  # noqa: PTH116 - no Path is needed

    def _blocked(self) -> bool:
        """Return whether the kernel counts any task in uninterruptible sleep; mostly it counts none."""
        with open(f"{self._procfs}/stat", "rb") as file:  # noqa: PTH123 - no Path is needed
            for line in file:
                if line.startswith(b"procs_blocked"):
                    return int(line.split()[1]) > 0
        raise ValueError(f"{self._procfs}/stat has no line procs_blocked")

    def _asleep(self) -> Iterator[tuple[tuple[str, int], _Sleeper]]:
        """Yield each process in uninterruptible sleep, by number and start; since now if it ran since the last look."""
        for pid in filter(str.isdigit, list_names(self._procfs)):
            try:
                stat = parse_stat(Path(f"{self._procfs}/{pid}/stat").read_bytes())
                if stat.state != "D" or stat.flags & KERNEL_THREAD:
                    continue
                switches = tuple(
                    line.rpartition(":")[2].strip()
                    for line in text(f"{self._procfs}/{pid}/status").splitlines()
                    if "ctxt_switches" in line
                )
            except (OSError, ValueError):
                continue  # it ended
            key = (pid, stat.started)
            before = self._sleepers.get(key)
            yield key, before if before is not None and before.switches == switches else _Sleeper(self.mono, switches)

    def _command(self, pid: str) -> str:
        return text_if_possible(f"{self._procfs}/{pid}/comm")

    def _fabric_manager(self, figures: GroupReadings) -> None:
        """Read it only where the driver of NVSwitches has some: on later boards they are no devices of the host."""
        if not list_names(f"{self._procfs}/{SWITCHES}"):
            raise FileNotFoundError(errno.ENOENT, "the node has no NVSwitch", f"{self._procfs}/{SWITCHES}")
        self._refuse_hidden()
        if not self._manager or self._command(self._manager) != MANAGER:
            pids = filter(str.isdigit, list_names(self._procfs))
            self._manager = next((pid for pid in pids if self._command(pid) == MANAGER), "")
        figures.add(FABRIC_MANAGER, bool(self._manager))

    def _peermem(self, figures: GroupReadings) -> None:
        """Read it only where there are the driver and InfiniBand devices."""
        modules = f"{self._sysfs}/module"
        if not list_names(f"{self._sysfs}/class/infiniband") or not os.path.isdir(f"{modules}/nvidia"):  # noqa: PTH112
            raise FileNotFoundError(errno.ENOENT, "no driver of GPUs, or no InfiniBand device", modules)
        figures.add(PEERMEM, any(os.path.isdir(f"{modules}/{name}") for name in PEERMEM_MODULES))  # noqa: PTH112
