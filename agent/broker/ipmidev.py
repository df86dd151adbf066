"""Where the kernel shows a management controller, and one IPMI request through it: linux/ipmi.h.

The structures are packed here, with the addresses of buffers in them. Tried with the driver of Linux 6.12 and QEMU's
simulated controller, which answers a request for its identity and refuses one for its power; never with a real one.
"""

import errno
import fcntl
import os
import select
from array import array
from collections.abc import Callable
from struct import Struct

from agent.broker.questions import GET_POWER_READING, NETFN_GROUP, REQUEST, TIMEOUT_SECONDS, IpmiDevice

DEVICES = ("/dev/ipmi0", "/dev/ipmi/0", "/dev/ipmidev/0")
SYSTEM_INTERFACE = 0x0C  # IPMI_SYSTEM_INTERFACE_ADDR_TYPE
BMC_CHANNEL = 0x0F  # IPMI_BMC_CHANNEL
RESPONSE = 1  # IPMI_RESPONSE_RECV_TYPE
MAX_MESSAGE = 272  # IPMI_MAX_MSG_LENGTH
STALE_MESSAGES = 8
"""Most late answers to earlier requests that are discarded while waiting for ours."""

ADDRESS = Struct("@ihB0i")
"""struct ipmi_system_interface_addr: addr_type, channel, lun."""
IPMI_REQUEST = Struct("@PIlBBHP")
"""struct ipmi_req: addr, addr_len, msgid, and a struct ipmi_msg: netfn, cmd, data_len, data."""
IPMI_RESPONSE = Struct("@iPIlBBHP")
"""struct ipmi_recv: recv_type, and the same."""


def _call_number(direction: int, number: int, size: int) -> int:
    """Return the _IOR (2) and _IOWR (3) of asm-generic/ioctl.h, for the IPMI magic 'i'."""
    return direction << 30 | size << 16 | ord("i") << 8 | number


SEND_COMMAND = _call_number(2, 13, IPMI_REQUEST.size)
RECEIVE_MSG_TRUNC = _call_number(3, 11, IPMI_RESPONSE.size)


def device() -> str | None:
    """Return the kernel's IPMI device; None on a node without one."""
    return next((path for path in DEVICES if os.path.exists(path)), None)  # noqa: PTH110 - pathlib costs memory


def _wait(file: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


class DeviceTransport(IpmiDevice):
    """An open IPMI device."""

    def __init__(
        self,
        path: str,
        ioctl: Callable[[int, int, bytearray], object] = fcntl.ioctl,
        wait: Callable[[int, float], bool] = _wait,
    ) -> None:
        """Raise OSError."""
        self._ioctl = ioctl
        self._wait = wait
        self._msgid = 0
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def power_reading(self) -> bytes:
        """Return the controller's response, completion code first. Raises TimeoutError, or OSError from the device."""
        self._msgid += 1
        address, data = array("B", ADDRESS.pack(SYSTEM_INTERFACE, BMC_CHANNEL, 0)), array("B", REQUEST)
        message = (NETFN_GROUP, GET_POWER_READING, len(data), data.buffer_info()[0])
        request = IPMI_REQUEST.pack(*address.buffer_info(), self._msgid, *message)
        self._ioctl(self._file, SEND_COMMAND, bytearray(request))
        for _ in range(STALE_MESSAGES):
            if not self._wait(self._file, TIMEOUT_SECONDS):
                break
            kind, msgid, body = self._receive()
            if (kind, msgid) == (RESPONSE, self._msgid):
                return body
        raise TimeoutError(errno.ETIMEDOUT, "no answer from the management controller")

    def _receive(self) -> tuple[int, int, bytes]:
        """Return the type, the number and the content of the next message."""
        address, data = array("B", bytes(64)), array("B", bytes(MAX_MESSAGE))
        response = bytearray(IPMI_RESPONSE.pack(0, *address.buffer_info(), 0, 0, 0, len(data), data.buffer_info()[0]))
        self._ioctl(self._file, RECEIVE_MSG_TRUNC, response)
        kind, _, _, msgid, _, _, size, _ = IPMI_RESPONSE.unpack(response)
        return kind, msgid, data.tobytes()[:size]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
