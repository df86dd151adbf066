"""One IPMI request through the kernel's device: the structures and calls of linux/ipmi.h.

A separate module, so that ctypes is loaded only on a node that has the device. Tested with the kernel's driver and an
emulated controller (`make test-systemd MACHINE=full`), never with a real one.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select
from collections.abc import Callable

from agent.broker.questions import GET_POWER_READING, NETFN_GROUP, REQUEST, TIMEOUT_SECONDS, IpmiDevice

SYSTEM_INTERFACE = 0x0C  # IPMI_SYSTEM_INTERFACE_ADDR_TYPE
BMC_CHANNEL = 0x0F  # IPMI_BMC_CHANNEL
RESPONSE = 1  # IPMI_RESPONSE_RECV_TYPE
MAX_MESSAGE = 272  # IPMI_MAX_MSG_LENGTH
STALE_MESSAGES = 8
"""Most late answers to earlier requests that are discarded while waiting for ours."""


class Address(ctypes.Structure):
    """struct ipmi_system_interface_addr"""

    _fields_ = (("addr_type", ctypes.c_int), ("channel", ctypes.c_short), ("lun", ctypes.c_ubyte))


class Message(ctypes.Structure):
    """struct ipmi_msg"""

    _fields_ = (
        ("netfn", ctypes.c_ubyte),
        ("cmd", ctypes.c_ubyte),
        ("data_len", ctypes.c_ushort),
        ("data", ctypes.c_void_p),
    )


class IpmiRequest(ctypes.Structure):
    """struct ipmi_req"""

    _fields_ = (
        ("addr", ctypes.c_void_p),
        ("addr_len", ctypes.c_uint),
        ("msgid", ctypes.c_long),
        ("msg", Message),
    )


class IpmiResponse(ctypes.Structure):
    """struct ipmi_recv"""

    _fields_ = (
        ("recv_type", ctypes.c_int),
        ("addr", ctypes.c_void_p),
        ("addr_len", ctypes.c_uint),
        ("msgid", ctypes.c_long),
        ("msg", Message),
    )


def _call_number(direction: int, number: int, size: int) -> int:
    """Return the _IOR (2) and _IOWR (3) of asm-generic/ioctl.h, for the IPMI magic 'i'."""
    return direction << 30 | size << 16 | ord("i") << 8 | number


SEND_COMMAND = _call_number(2, 13, ctypes.sizeof(IpmiRequest))
RECEIVE_MSG_TRUNC = _call_number(3, 11, ctypes.sizeof(IpmiResponse))


def _ioctl(file: int, number: int, argument: ctypes.Structure) -> None:
    fcntl.ioctl(file, number, argument)


def _wait(file: int, timeout: float) -> bool:
    poll = select.poll()
    poll.register(file, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


class DeviceTransport(IpmiDevice):
    """An open IPMI device."""

    def __init__(
        self,
        path: str,
        ioctl: Callable[[int, int, ctypes.Structure], None] = _ioctl,
        wait: Callable[[int, float], bool] = _wait,
    ) -> None:
        self._ioctl = ioctl
        self._wait = wait
        self._msgid = 0
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def power_reading(self) -> bytes:
        """Return the controller's response, completion code first. Raises TimeoutError, or OSError from the device."""
        return self._request(NETFN_GROUP, GET_POWER_READING, REQUEST, TIMEOUT_SECONDS)

    def _request(self, netfn: int, command: int, data: bytes, timeout: float) -> bytes:
        self._msgid += 1
        payload = ctypes.create_string_buffer(data, len(data))
        address = Address(SYSTEM_INTERFACE, BMC_CHANNEL, 0)
        message = Message(netfn, command, len(data), ctypes.addressof(payload))
        request = IpmiRequest(ctypes.addressof(address), ctypes.sizeof(address), self._msgid, message)
        self._ioctl(self._file, SEND_COMMAND, request)
        for _ in range(STALE_MESSAGES):
            if not self._wait(self._file, timeout):
                break
            response, body = self._receive()
            if response.recv_type == RESPONSE and response.msgid == self._msgid:
                return body
        raise TimeoutError(errno.ETIMEDOUT, "no answer from the management controller")

    def _receive(self) -> tuple[IpmiResponse, bytes]:
        payload = ctypes.create_string_buffer(MAX_MESSAGE)
        address = ctypes.create_string_buffer(64)
        message = Message(0, 0, len(payload), ctypes.addressof(payload))
        response = IpmiResponse(0, ctypes.addressof(address), len(address), 0, message)
        self._ioctl(self._file, RECEIVE_MSG_TRUNC, response)
        return response, payload.raw[: min(response.msg.data_len, MAX_MESSAGE)]

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
