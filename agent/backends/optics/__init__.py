"""The physical layer of Ethernet and RoCE ports, from the kernel's ethtool netlink, and the temperatures of adapters.

Most links that fail have been getting worse for days, and forward error correction hides it from the counters of
packets: what it corrected, and what it could not, is counted here. It needs no privilege, starts no program and
changes nothing.
"""

from __future__ import annotations

from pathlib import Path

from agent.backends.file_reader_pool import FileReaderPool
from agent.backends.optics.adapter_temperatures import AdapterTemperatures
from agent.backends.optics.ethernet_ports import PortList, PortStatistics
from agent.backends.optics.netlink import Connect, connect_netlink
from agent.backends.optics.port_modules import TransceiverReader
from agent.backends.protocol import AbsentError, BackendSample, DeviceError, join_samples
from agent.backends.registration import BackendContext
from agent.model import Gap, Instant, Lane, Node

__all__ = ["OpticsBackend", "make_backend"]


def make_backend(context: BackendContext) -> OpticsBackend | None:
    """Return the ports' physical layer, unless the configuration excludes it or another node is shown."""
    is_enabled = context.config.backends.optics and context.has_own_hardware
    return OpticsBackend(context.sysfs) if is_enabled else None


class OpticsBackend:
    """Ports, their modules, and adapters under `sysfs`, of which a node may have any.

    `connect` opens a socket to the kernel.
    """

    name = "optics"
    lanes = frozenset({Lane.SLOW, Lane.COLD})
    shortest = 1.0

    def __init__(self, sysfs: Path | str = "/sys", connect: Connect = connect_netlink) -> None:
        self._pool = FileReaderPool(self.name)
        census = PortList(str(sysfs), self._pool, connect)
        self._parts = (PortStatistics(census, self._pool, connect), AdapterTemperatures(str(sysfs), self._pool))
        self._transceivers = TransceiverReader(str(sysfs), census, connect)
        self._is_absent = True
        """Whether both other parts were absent when they were last read."""

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Return the modules in the cold lane, else both other parts.

        Raises AbsentError if the node has neither, and DeviceError if what it has cannot be read.
        """
        if lane is Lane.COLD:
            return self._read_modules(now)
        samples: list[BackendSample] = []
        absences: list[str] = []
        faults: list[DeviceError] = []
        for part in self._parts:
            try:
                samples.append(part.read(now.mono))
            except AbsentError as absence:
                absences.append(str(absence))
            except DeviceError as fault:
                faults.append(fault)
                gaps = [Gap(row, Node(), fault.reason, fault.detail) for row in part.rows]
                samples.append(BackendSample(gaps=gaps))
        self._is_absent = len(absences) == len(self._parts)
        if self._is_absent:
            raise AbsentError("; ".join(absences))
        if len(absences) + len(faults) == len(self._parts):
            raise faults[0]
        return join_samples(samples)

    def _read_modules(self, now: Instant) -> BackendSample:
        """Return the modules. A node without ports may have adapters with sensors: only without either is it absent."""
        try:
            return self._transceivers.read(now.mono)
        except AbsentError:
            if self._is_absent:
                raise
            return BackendSample()

    def close(self) -> None:
        self._pool.close()
        self._transceivers.close()
