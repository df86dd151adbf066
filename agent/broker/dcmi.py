"""The one IPMI request that coldplate ever sends: Get Power Reading of the DCMI specification 1.5, section 6.6.1."""

from __future__ import annotations

NETFN_GROUP = 0x2C
GET_POWER_READING = 0x02
DCMI = 0xDC
REQUEST = bytes((DCMI, 0x01, 0x00, 0x00))  # system power statistics, no attributes, reserved
TIMEOUT_SECONDS = 1.5
"""Seconds. A controller answers within a few tenths; the kernel's driver itself gives up after 5."""


class IpmiDevice:
    """An open connection to the controller. Not a Protocol: importing typing costs the broker a megabyte."""

    def power_reading(self) -> bytes:
        """The controller's response, completion code first. Raises TimeoutError, or OSError from the device."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the device; may be called more than once."""
        raise NotImplementedError
