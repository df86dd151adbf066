"""The physical layer of Ethernet and RoCE ports, from the kernel's ethtool netlink.

Most links that fail have been getting worse for days, and forward error correction hides it from the counters of
packets: what it corrected, and what it could not, is counted here. It needs no privilege, starts no program and
changes nothing.
"""

from __future__ import annotations

from agent.backends.optics.optics_backend import OpticsBackend
from agent.backends.registration import BackendContext

__all__ = ["OpticsBackend", "make_backend"]


def make_backend(context: BackendContext) -> OpticsBackend | None:
    """The ports' physical layer, unless the configuration excludes it or another node is shown."""
    wanted = context.config.backends.optics and context.has_own_hardware
    return OpticsBackend(context.sysfs) if wanted else None
