"""Which interfaces of the node are Ethernet ports of hardware, by sysfs."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from agent.backends.optics.ethtool_questions import LONGEST_NAME
from agent.backends.sysfs import is_physical_interface, names, text

PORTS = 64
"""Most ports that are asked. The largest node has eight for GPUs, and some for storage and management."""
_ETHERNET = "1"
"""ARPHRD_ETHER: include/uapi/linux/if_arp.h. InfiniBand's own interfaces have no such statistics."""
_REPRESENTOR = re.compile(r"(c\d+)?pf\d+(vf|sf)\d+$")
"""The name of a switch's port to a function of its card (Documentation/networking/switchdev.rst)."""


class PortFolder:
    """The list of ports, as an item of a relay: what a driver is asked for its port's name may hang."""

    def __init__(self, sysfs: str) -> None:
        self._sysfs = sysfs
        self.path = f"{sysfs}/class/net"

    def read(self) -> list[str] | OSError:
        """The names of all Ethernet ports of hardware, in order."""
        try:
            found = names(self.path)
        except OSError as error:
            return error
        return [name for name in found if self._is_port(name)]

    def _is_port(self, name: str) -> bool:
        if len(os.fsencode(name)) > LONGEST_NAME or not is_physical_interface(self._sysfs, name):
            return False
        return self._fact(name, "type") == _ETHERNET and not _REPRESENTOR.match(self._fact(name, "phys_port_name"))

    def _fact(self, name: str, file: str) -> str:
        with suppress(OSError):  # EOPNOTSUPP, or the interface is gone by now
            return text(f"{self.path}/{name}/{file}")
        return ""
