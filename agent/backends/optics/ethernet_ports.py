"""Which interfaces of the node are Ethernet ports of hardware, by sysfs, and the statistics of their physical layer."""

import os
import re
from contextlib import suppress

from agent.backends.file_reader_pool import CaughtRead, DeviceReads, FileReaderPool, PathRead, UnansweredError
from agent.backends.optics.ethtool_requests import (
    LONGEST_NAME,
    QUESTIONS,
    EthtoolRequest,
    MissingPortMetrics,
    PortValue,
    tried,
)
from agent.backends.optics.netlink import Connect, resolve_family
from agent.backends.protocol import AbsentError, BackendSample, DeviceError, device_error
from agent.backends.sysfs import is_physical_interface, list_names, printable, text_if_possible
from agent.model import Reading, Series

PORTS = 64
"""Most ports that are asked. The largest node has eight for GPUs, and some for storage and management."""
_ETHERNET = "1"
"""ARPHRD_ETHER: include/uapi/linux/if_arp.h. InfiniBand's own interfaces have no such statistics."""
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+$")
"""The name of a switch's port to a function of its card (Documentation/networking/switchdev.rst)."""


class PortList:
    """The ports of `sysfs`/class/net, and the number of ethtool's family, for statistics and modules.

    `connect` opens a socket to the kernel.
    """

    def __init__(self, sysfs: str, pool: FileReaderPool, connect: Connect) -> None:
        self._sysfs = sysfs
        self._folder = CaughtRead(f"{sysfs}/class/net", self._ports_in, OSError)
        self._pool = pool
        self._connect = connect
        self._family: int | None = None
        self._ports: list[str] = []

    @property
    def left_out(self) -> int:
        """How many of the ports that were found last are not asked."""
        return max(len(self._ports) - PORTS, 0)

    def find_ports(self, mono: float) -> list[str]:
        """Return the ports that are asked; those of the last time while sysfs does not answer.

        Raises AbsentError without ports, and DeviceError.
        """
        answer = self._pool.read(self._folder, mono)
        if isinstance(answer, list):
            self._ports = answer
        elif isinstance(answer, FileNotFoundError):
            self._ports = []
        elif isinstance(answer, OSError):
            raise device_error(self._folder.path, answer)
        elif not self._ports:
            raise answer
        if not self._ports:
            raise AbsentError(f"{self._folder.path} has no Ethernet port of hardware")
        return self._ports[:PORTS]

    def _ports_in(self, folder: str) -> list[str]:
        """Return the names of all Ethernet ports of hardware, in order. What a driver is asked for one may hang."""
        return [name for name in list_names(folder) if self._is_port(folder, name)]

    def _is_port(self, folder: str, name: str) -> bool:
        if len(os.fsencode(name)) > LONGEST_NAME or not is_physical_interface(self._sysfs, name):
            return False
        port = f"{folder}/{name}"
        # Most drivers answer EOPNOTSUPP for the second, and by now the interface may be gone.
        kind, name_of_port = (text_if_possible(f"{port}/{file}") for file in ("type", "phys_port_name"))
        return kind == _ETHERNET and not _REPRESENTOR.match(name_of_port)

    def find_family(self, mono: float) -> int:
        """Return the number. Raises AbsentError without the kernel's interface, and DeviceError."""
        if self._family is None:
            request = PathRead("GETFAMILY ethtool", lambda _: tried(self._number_of_family))
            answer = self._pool.read(request, mono)
            if answer is None:
                raise AbsentError("the kernel has no ethtool netlink (CONFIG_ETHTOOL_NETLINK, from Linux 5.6 on)")
            if isinstance(answer, UnansweredError):
                raise answer
            if isinstance(answer, DeviceError):
                raise DeviceError(answer.reason, f"{request.path}: {answer.detail}")
            self._family = answer
        return self._family

    def _number_of_family(self) -> int | None:
        with suppress(FileNotFoundError):
            return resolve_family(self._connect, "ethtool")
        return None


class PortStatistics:
    """The physical layer of every Ethernet port of the census, in one round of questions.

    All of them go through a pool, one batch for each port: the kernel answers under a lock, so that one driver whose
    firmware does not answer may hold a question for long. It costs only its own port. `connect` opens a socket to the
    kernel.
    """

    rows = tuple(row for question in QUESTIONS for row in question.rows)
    """What is missing where nothing can be asked."""

    def __init__(self, census: PortList, pool: FileReaderPool, connect: Connect) -> None:
        self._census = census
        self._connect = connect
        self._pool = pool

    def read(self, mono: float) -> BackendSample:
        """Ask about every port. Raises AbsentError without ports or without the kernel's interface, and DeviceError."""
        ports = self._census.find_ports(mono)
        family = self._census.find_family(mono)
        batches = [
            DeviceReads(port, [self._request(question, family, port) for question in QUESTIONS]) for port in ports
        ]
        answers = self._pool.round(batches, mono)
        readings: dict[Series, Reading] = {}
        missing = MissingPortMetrics()
        calls = 0
        for port, batch in zip(ports, answers, strict=True):
            device = printable(port)
            for question, answer in zip(QUESTIONS, batch, strict=True):
                calls += not isinstance(answer, UnansweredError)
                for value in answer if isinstance(answer, list) else ():
                    reading = value.reading(device)
                    readings[reading.series] = reading  # once, should the kernel say it twice
                missing.record_answer(question, device, answer)
        left_out = self._census.left_out * len(self.rows)
        return BackendSample(list(readings.values()), list(missing.gaps()), calls=calls, left_out=left_out)

    def _request(self, question: EthtoolRequest, family: int, port: str) -> PathRead[list[PortValue] | DeviceError]:
        return PathRead(f"{question.name} {port}", lambda _: tried(lambda: question.ask(self._connect, family, port)))
