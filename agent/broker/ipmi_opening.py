"""Where the kernel shows a management controller, and how it is opened."""

from __future__ import annotations

import os

from agent.broker.questions import IpmiDevice

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")


def device() -> str | None:
    """Return the kernel's IPMI device; None on a node without one."""
    return next((path for path in DEVICES if os.path.exists(path)), None)  # noqa: PTH110 - pathlib costs memory


def open_device(path: str) -> IpmiDevice:
    """Return the device, ready to be asked. Raises OSError."""
    from agent.broker.ipmidev import DeviceTransport  # ctypes, only where there is a device

    return DeviceTransport(path)
