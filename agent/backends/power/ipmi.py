"""Node power from the management controller, in-band: IPMI with the DCMI extension.

The kernel's IPMI device is read directly if the agent may open it. Write access to that device also allows switching
the node off, so the shipped unit gives it only to the broker (see `agent.broker`), which is then asked instead. Nothing
but Get Power Reading is ever sent, and no program is run.
"""

from collections.abc import Callable

from agent.backends.polled_source import PollableSource
from agent.backends.protocol import AbsentError, DeviceError, reason_of
from agent.broker.asking import REMEDY, BrokerClient, BrokerError, explained
from agent.broker.ipmidev import DEVICES, DeviceTransport, device
from agent.broker.questions import DCMI, TIMEOUT_SECONDS, IpmiDevice
from agent.model import Reason

MEASURING = 0x40
"""Bit 6 of the power reading state."""
MEASURING_REVERSED = 0x02
"""The same where the bits are in reverse order, as in some versions of OpenBMC (phosphor-host-ipmid issue 167)."""
NO_READING = 0xFFFF
"""Watts that some controllers answer without a measurement (xen-api pull request 5561)."""

_COMPLETION = {
    0xC1: (Reason.UNSUPPORTED, "the controller does not support DCMI power readings"),
    0xC0: (Reason.TIMEOUT, "the controller is busy"),
    0xC3: (Reason.TIMEOUT, "the controller timed out"),
    0xD4: (Reason.DENIED, "the controller refuses: insufficient privilege"),
    0xFF: (Reason.TIMEOUT, "the controller gives no reason"),  # also if it is asked too often
}


def parse_power_reading(response: bytes) -> int:
    """Return the watts in a response. Raises DeviceError if it is a refusal or malformed, or none are measured.

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
    if not _is_measuring(response):
        raise DeviceError(Reason.UNSUPPORTED, "DCMI power reading: the controller is not measuring power")
    watts = int.from_bytes(response[2:4], "little")
    if watts == NO_READING:
        raise DeviceError(Reason.IMPLAUSIBLE, f"DCMI power reading: {watts} W stands for no value")
    return watts


def _is_measuring(response: bytes) -> bool:
    """Return whether a response holds a measurement, by its state.

    Older versions of OpenBMC leave state and statistics out, and repeat the current power in their place (openbmc issue
    3257).
    """
    current, minimum, maximum, average = (response[place : place + 2] for place in range(2, 10, 2))
    is_repeated = current == minimum == maximum == average and any(current)
    has_statistics = any(response[10:18])
    return bool(response[18] & (MEASURING | MEASURING_REVERSED)) or (is_repeated and not has_statistics)


def open_transport(
    find: Callable[[], str | None] = device,
    opener: Callable[[str], IpmiDevice] = DeviceTransport,
    broker: BrokerClient | None = None,
) -> IpmiDevice:
    """Return the kernel's IPMI device, or the broker if only that may open it.

    Raises AbsentError if this node has none, OSError if it cannot be opened.
    """
    path = find()
    if path is None:
        raise AbsentError(f"no IPMI device: {', '.join(DEVICES)} (kernel module ipmi_devintf)")
    try:
        return opener(path)
    except PermissionError as error:
        client = broker if broker is not None else BrokerClient()
        if not client.installed:
            raise PermissionError(error.errno, f"{error.strerror}; {REMEDY}", path) from error
        return client


def _fault(error: OSError) -> DeviceError:
    if isinstance(error, TimeoutError):
        return DeviceError(Reason.TIMEOUT, f"DCMI power reading: no answer within {TIMEOUT_SECONDS:g} s")
    where = f"{error.filename}: " if error.filename and not isinstance(error, BrokerError) else ""
    return DeviceError(reason_of(error), f"DCMI power reading: {where}{explained(error)}")


class IpmiPower(PollableSource):
    """The management controller, asked in-band."""

    name = "ipmi"
    period = 5.0  # asked in a thread: the kernel's driver may wait for a dead controller, and nothing can interrupt it
    answer_wait = 0.25  # a controller answers in-band within some tens of milliseconds
    timeout = 4.0

    def __init__(self, opener: Callable[[], IpmiDevice] = open_transport) -> None:
        self._opener = opener
        self._transport: IpmiDevice | None = None

    def watts(self) -> float:
        try:
            if self._transport is None:
                self._transport = self._opener()
            response = self._transport.power_reading()
        except OSError as error:
            self.close()
            raise _fault(error) from error
        return float(parse_power_reading(response))

    def close(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()
