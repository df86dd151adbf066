"""The host backend: every group of figures in a round, then every filesystem."""

import logging
from collections.abc import Sequence

import psutil

from agent.backends.file_reader_pool import CaughtRead, FileReaderPool, PathRead, UnansweredError
from agent.backends.host.disks_and_network import (
    FILESYSTEM,
    MAX_FILESYSTEMS,
    DiskAndNetworkGroups,
    filesystem,
    shown_mount_points,
)
from agent.backends.host.host_faults import MAX_MOUNTS, MOUNT_UP, HostFaultGroups, answers, network_mounts
from agent.backends.host.kernel import KernelGroups
from agent.backends.host.reading_groups import GroupReadings, ReadingGroup, gap_reason
from agent.backends.protocol import BackendSample
from agent.lib.wording import one_line
from agent.model import Gap, Instant, Lane, Metric, Node, Reading, Reason

log = logging.getLogger("coldplate.host")

TIMEOUT_SECONDS = 1.0
"""Seconds to wait for a group: the lane is slow, and a busy disk is not a dead one."""
READERS = 24
"""More readers than there are groups and filesystems: all of them may hang."""


class _HostSample:
    """What a read has gathered so far."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.gaps: dict[tuple[Metric, Reason], Gap] = {}
        """One for each row and reason: three pressure files that are not there are one absence."""
        self.left_out = 0
        self.calls = 0

    def add_group(self, answer: GroupReadings | Exception, rows: Sequence[Metric], prefix: str = "") -> None:
        if isinstance(answer, GroupReadings):
            self.readings += answer.readings
            self.left_out += answer.left_out
            return
        if isinstance(answer, UnansweredError):
            reason, detail = answer.reason, answer.detail
        else:  # psutil quotes whole lines
            reason, detail = gap_reason(answer), f"{prefix}{type(answer).__name__}: {one_line(str(answer))}"
        for row in rows:
            self.gaps.setdefault((row, reason), Gap(row, Node(), reason, detail))


class HostBackend:
    """Reads the host through psutil, and two files that psutil does not cover directly from procfs."""

    name = "host"
    lanes = frozenset({Lane.SLOW, Lane.COLD})
    shortest = 1.0

    def __init__(self, procfs: str = "/proc", sysfs: str = "/sys") -> None:
        # psutil takes the root only from this setting of its module, which applies to the whole process.
        psutil.PROCFS_PATH = procfs
        self._pool = FileReaderPool(self.name, TIMEOUT_SECONDS, READERS)
        groups = [*KernelGroups(procfs, sysfs).groups(), *DiskAndNetworkGroups(procfs, sysfs).groups()]
        self._faults = HostFaultGroups(procfs, sysfs)
        self._groups = {Lane.SLOW: groups, Lane.COLD: self._faults.groups()}
        mounts = f"{procfs}/self/mounts"
        self._mounts = CaughtRead(mounts, lambda _: shown_mount_points(procfs), OSError)
        self._network_mounts = CaughtRead(mounts, lambda _: network_mounts(procfs), OSError)
        self._mounts_left_out = 0
        self._filesystems: dict[str, ReadingGroup] = {}
        self._left_out = 0

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Read every group of the lane; a group that fails or hangs becomes one gap for each of its rows."""
        sample = _HostSample()
        self._faults.mono = now.mono
        self._read_groups(self._groups[lane], sample, now.mono)
        if lane is Lane.COLD:
            self._read_network_mounts(sample, now.mono)
        else:
            self._read_filesystems(sample, now.mono)
            sample.left_out += self._mounts_left_out
            self._log_left_out(sample)
        return BackendSample(sample.readings, list(sample.gaps.values()), calls=sample.calls, left_out=sample.left_out)

    def close(self) -> None:
        self._pool.close()

    def _read_filesystems(self, sample: _HostSample, mono: float) -> None:
        listed = self._pool.read(self._mounts, mono, "mounts")
        if not isinstance(listed, list):
            sample.add_group(listed, FILESYSTEM)
            return
        chosen = listed[:MAX_FILESYSTEMS]
        sample.left_out += len(FILESYSTEM) * (len(listed) - len(chosen))
        previous = self._filesystems
        self._filesystems = {at: previous.get(at) or filesystem(at) for at in chosen}
        self._read_groups(list(self._filesystems.values()), sample, mono)

    def _read_groups(self, groups: Sequence[ReadingGroup], sample: _HostSample, mono: float) -> None:
        for group, answer in zip(groups, self._pool.read_each(groups, mono), strict=True):
            sample.calls += not isinstance(answer, UnansweredError)
            sample.add_group(answer, group.rows, group.prefix)

    def _read_network_mounts(self, sample: _HostSample, mono: float) -> None:
        """Ask every network filesystem; one that gives no answer is down."""
        listed = self._pool.read(self._network_mounts, mono, "network mounts")
        if not isinstance(listed, list):
            sample.add_group(listed, (MOUNT_UP,))
            return
        self._mounts_left_out = max(len(listed) - MAX_MOUNTS, 0)
        mounts = listed[:MAX_MOUNTS]
        reads = [PathRead(mount.mountpoint, answers) for mount in mounts]
        figures = GroupReadings()
        for mount, answer in zip(mounts, self._pool.read_each(reads, mono), strict=True):
            if answer is not None:
                figures.add(MOUNT_UP, answer is True, mount.mountpoint, mount.fstype)
        sample.calls += 1
        sample.add_group(figures, (MOUNT_UP,))

    def _log_left_out(self, sample: _HostSample) -> None:
        if bool(sample.left_out) != bool(self._left_out):
            facts = {"left_out": sample.left_out}
            log.info("disks, filesystems or interfaces over the limit are not exposed", extra={"facts": facts})
        self._left_out = sample.left_out
