"""Which ports there are, and the number of ethtool's family: what both the statistics and the modules ask with."""

from __future__ import annotations

from agent.backends.file_relay import FileRelay, Leg
from agent.backends.optics.kernel_asking import Connect
from agent.backends.optics.physical_ports import PORTS, PortFolder
from agent.backends.optics.relayed_questions import FamilyQuestion, no_answer
from agent.backends.protocol import AbsentError, DeviceError


class PortCensus:
    """The ports of `sysfs`/class/net. `connect` opens a socket to the kernel."""

    def __init__(self, sysfs: str, relay: FileRelay, connect: Connect) -> None:
        self._folder = PortFolder(sysfs)
        self._relay = relay
        self._connect = connect
        self._family: int | None = None
        self._ports: list[str] = []

    @property
    def left_out(self) -> int:
        """How many of the ports that were found last are not asked."""
        return max(len(self._ports) - PORTS, 0)

    def find_ports(self, mono: float) -> list[str]:
        """The ports that are asked; those of the last time while sysfs does not answer.

        Raises AbsentError without ports, and DeviceError.
        """
        ((answer,),) = self._relay.round([Leg("list of ports", [self._folder])], mono)
        if isinstance(answer, list):
            self._ports = answer
        elif isinstance(answer, FileNotFoundError):
            self._ports = []
        elif isinstance(answer, OSError):
            failed = no_answer(answer)
            raise DeviceError(failed.reason, f"{self._folder.path}: {failed.detail}")
        elif not self._ports:
            raise DeviceError(answer.reason, f"{self._folder.path}: {answer.detail}")
        if not self._ports:
            raise AbsentError(f"{self._folder.path} has no Ethernet port of hardware")
        return self._ports[:PORTS]

    def find_family(self, mono: float) -> int:
        """The number. Raises AbsentError without the kernel's interface, and DeviceError."""
        if self._family is None:
            ((answer,),) = self._relay.round([Leg("number of the family", [FamilyQuestion(self._connect)])], mono)
            if answer is None:
                raise AbsentError("the kernel has no ethtool netlink (CONFIG_ETHTOOL_NETLINK, from Linux 5.6 on)")
            if not isinstance(answer, int):
                raise DeviceError(answer.reason, f"{FamilyQuestion.path}: {answer.detail}")
            self._family = answer
        return self._family
