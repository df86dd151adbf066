"""Node power from the management controller, in-band: IPMI with the DCMI extension.

One DCMI command, Get Power Reading, through the kernel's IPMI device. Nothing else is ever sent, and
no program is run. The layout follows the DCMI specification 1.5, section 6.6.1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

from agent.backends.protocol import AbsentError, DeviceError
from agent.model import Reason

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")

NETFN_GROUP = 0x2C
GET_POWER_READING = 0x02
DCMI = 0xDC
REQUEST = bytes((DCMI, 0x01, 0x00, 0x00))  # system power statistics, no attributes, reserved
MEASURING = 0x40  # bit 6 of the power reading state
TIMEOUT = 1.5
"""Seconds. A controller answers within a few tenths; the kernel's driver itself gives up after 5."""

_COMPLETION = {
    0xC1: (Reason.UNSUPPORTED, "the controller does not know DCMI power readings"),
    0xC0: (Reason.TIMEOUT, "the controller is busy"),
    0xC3: (Reason.TIMEOUT, "the controller timed out"),
    0xD4: (Reason.DENIED, "the controller refuses: insufficient privilege"),
}


class PowerReading(NamedTuple):
    """What Get Power Reading tells, in watts and seconds."""

    current: int
    minimum: int
    maximum: int
    average: int
    period: float
    measuring: bool


def parse_power_reading(response: bytes) -> PowerReading:
    """The response with its completion code. Raises DeviceError if it is a refusal or no such response.

    Bytes: 0 completion code, 1 group extension 0xDC, then little-endian 2 current, 4 minimum, 6 maximum,
    8 average (watts), 10 time stamp, 14 statistics period (milliseconds), 18 power reading state.
    """
    if not response:
        raise DeviceError(Reason.MALFORMED, "DCMI power reading: empty response")
    if response[0] != 0:
        reason, text = _COMPLETION.get(response[0], (Reason.UNSUPPORTED, "refused"))
        raise DeviceError(reason, f"DCMI power reading: {text} (completion code 0x{response[0]:02x})")
    if len(response) < 19 or response[1] != DCMI:
        raise DeviceError(Reason.MALFORMED, f"DCMI power reading: unexpected response {response[:24].hex(' ')}")
    current, minimum, maximum, average = (int.from_bytes(response[at : at + 2], "little") for at in (2, 4, 6, 8))
    period = int.from_bytes(response[14:18], "little") / 1000
    return PowerReading(current, minimum, maximum, average, period, bool(response[18] & MEASURING))


class Transport(Protocol):
    """A way to send one IPMI request to the controller of this node."""

    def request(self, netfn: int, command: int, data: bytes, timeout: float) -> bytes:
        """The response, completion code first. Raises OSError, TimeoutError among them."""

    def close(self) -> None:
        """Release the device; may be called more than once."""


def open_transport() -> Transport:
    """The kernel's IPMI device. Raises AbsentError if there is none, OSError if it cannot be opened."""
    for path in DEVICES:
        if Path(path).exists():
            from agent.backends.power.ipmidev import DeviceTransport  # ctypes, only where there is a device

            return DeviceTransport(path)
    raise AbsentError(f"no IPMI device: {', '.join(DEVICES)} (kernel module ipmi_devintf)")


class Ipmi:
    """The management controller, asked in-band."""

    name = "ipmi"
    period = 5.0
    configured = False
    slow = True  # the kernel's driver may wait for a dead controller, and nothing can interrupt it
    grace = 0.25  # a controller answers in-band within some tens of milliseconds
    patience = 4.0

    def __init__(self, opener: Callable[[], Transport] = open_transport) -> None:
        self._opener = opener
        self._transport: Transport | None = None

    def watts(self) -> float:
        try:
            if self._transport is None:
                self._transport = self._opener()
            response = self._transport.request(NETFN_GROUP, GET_POWER_READING, REQUEST, TIMEOUT)
        except TimeoutError as error:
            self.close()
            raise DeviceError(Reason.TIMEOUT, f"DCMI power reading: no answer within {TIMEOUT:g} s") from error
        except PermissionError as error:
            self.close()
            remedy = "give the agent's group read and write access to the device by a udev rule"
            raise DeviceError(Reason.DENIED, f"{error.filename or 'IPMI'}: {error.strerror}; {remedy}") from error
        except OSError as error:
            self.close()
            raise DeviceError(Reason.LOST, f"DCMI power reading: {error}") from error
        reading = parse_power_reading(response)
        if not reading.measuring:
            raise DeviceError(Reason.UNSUPPORTED, "DCMI power reading: the controller does not measure power now")
        return float(reading.current)

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
