"""The host backend: every group of figures in a round, then every filesystem."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import psutil

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, UnansweredRead
from agent.backends.host.disks_and_network import (
    FILESYSTEM,
    MAX_FILESYSTEMS,
    DiskAndNetworkGroups,
    MountPoints,
    filesystem,
)
from agent.backends.host.kernel import KernelGroups
from agent.backends.host.reading_groups import GroupReadings, ReadingGroup, SeriesCache, gap_reason
from agent.backends.protocol import BackendSample
from agent.catalogue import metric
from agent.model import Backend, Gap, Instant, Lane, Metric, Node, Reading, Reason, Series

log = logging.getLogger("coldplate.host")

PATIENCE_SECONDS = 1.0
"""Seconds to wait for a group: the lane is slow, and a busy disk is not a dead one."""
READERS = 24
"""More readers than there are groups and filesystems: all of them may hang."""
LEFT_OUT = Series(metric("coldplate_backend_series_left_out"), Backend("host"))


class _HostSample:
    """What a read has gathered so far."""

    def __init__(self) -> None:
        self.readings: list[Reading] = []
        self.gaps: dict[tuple[Metric, Reason], Gap] = {}
        """One for each row and reason: three pressure files that are not there are one absence."""
        self.left_out = 0
        self.calls = 0

    def take(self, answer: GroupReadings | UnansweredRead | Exception, rows: Sequence[Metric], path: str) -> None:
        """Add what one group answered."""
        if isinstance(answer, GroupReadings):
            self.calls += 1
            self.readings += answer.readings
            self.left_out += answer.left_out
            self._miss(answer.gaps)
        elif isinstance(answer, UnansweredRead):
            self._miss([Gap(row, Node(), answer.reason, f"{path}: {answer.detail}") for row in rows])
        else:
            detail = f"{type(answer).__name__}: {answer}"
            self._miss([Gap(row, Node(), gap_reason(answer), detail) for row in rows])

    def _miss(self, gaps: Sequence[Gap]) -> None:
        for gap in gaps:
            self.gaps.setdefault((gap.metric, gap.reason), gap)


class HostBackend:
    """Reads the host through psutil, and two files that psutil does not cover directly from procfs."""

    name = "host"
    lanes = frozenset({Lane.SLOW})
    shortest = 1.0

    def __init__(self, procfs: str = "/proc", sysfs: str = "/sys") -> None:
        # The only way to tell psutil the root is this setting of its module, which applies to the whole process.
        psutil.PROCFS_PATH = procfs
        self._book = SeriesCache()
        self._relay = FileReaderPool(self.name, PATIENCE_SECONDS, READERS)
        groups = [
            *KernelGroups(procfs, sysfs).groups(self._book),
            *DiskAndNetworkGroups(procfs, sysfs).groups(self._book),
        ]
        self._groups = [DeviceReads(group.path, [group]) for group in groups]
        self._rows = [group.rows for group in groups]
        self._mounts = DeviceReads("mounts", [MountPoints(procfs)])
        self._filesystems: dict[str, ReadingGroup] = {}
        self._left_out = 0

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - it has one lane
        """Read every group; a group that fails or hangs becomes one gap for each of its rows."""
        sample = _HostSample()
        for leg, rows, (answer,) in zip(
            self._groups, self._rows, self._relay.round(self._groups, now.mono), strict=True
        ):
            sample.take(answer, rows, leg.name)
        self._read_filesystems(sample, now.mono)
        self._tell_left_out(sample)
        return BackendSample(sample.readings, list(sample.gaps.values()), calls=sample.calls)

    def close(self) -> None:
        """End the reader."""
        self._relay.close()

    def _read_filesystems(self, sample: _HostSample, mono: float) -> None:
        ((listed,),) = self._relay.round([self._mounts], mono)
        if not isinstance(listed, list):
            sample.take(listed, FILESYSTEM, "mounts")
            return
        chosen = listed[:MAX_FILESYSTEMS]
        sample.left_out += len(FILESYSTEM) * (len(listed) - len(chosen))
        known = self._filesystems
        self._filesystems = {at: known.get(at) or filesystem(at, self._book) for at in chosen}
        legs = [DeviceReads(f"mount {at}", [group]) for at, group in self._filesystems.items()]
        for at, (answer,) in zip(self._filesystems, self._relay.round(legs, mono), strict=True):
            sample.take(answer, FILESYSTEM, at)

    def _tell_left_out(self, sample: _HostSample) -> None:
        if sample.left_out:
            sample.readings.append(Reading(LEFT_OUT, sample.left_out))
        if bool(sample.left_out) != bool(self._left_out):
            facts = {"left_out": sample.left_out}
            log.info("disks, filesystems or interfaces over the limit are not exposed", extra={"facts": facts})
        self._left_out = sample.left_out
