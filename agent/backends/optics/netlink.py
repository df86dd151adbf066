"""Netlink's messages and attributes as bytes, within bounds, and one request to the kernel over generic netlink.

Layouts and constants are those of include/uapi/linux/netlink.h and genetlink.h. All numbers are in the machine's own
byte order; messages and attributes begin at multiples of four bytes.

Each request has a socket of its own, which costs some 20 microseconds: there is no answer to an earlier request to
be taken for this one's, and one in which the kernel hangs holds nothing that another needs.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from typing import Protocol

ERROR = 2
"""The type of a message with an error number: the negative of errno, or 0, an acknowledgement."""
REQUEST = 1
"""The flag of a question."""
LONGEST = 1 << 16
"""Most bytes of a datagram that are read: the kernel's answers about one port have some hundred."""

_MESSAGE = struct.Struct("=IHHII")
_GENERIC_HEADER = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_ERRNO = struct.Struct("=i")
_NUMBERS = {layout.size: layout for layout in map(struct.Struct, ("=B", "=H", "=I", "=Q"))}
_TYPE_BITS = 0x3FFF
"""The two bits above say that an attribute is a nest, or in network byte order."""
_NEST = 0x8000
_ALIGN = 4
MOST_ATTRIBUTES = 4096
"""Of one message or nest. An answer about a port with a histogram of 32 bins has some hundred."""


class NetlinkFormatError(ValueError):
    """Bytes that are no netlink message, or an answer that does not have the documented form."""


def attribute(number: int, payload: bytes) -> bytes:
    """Return one attribute, with what fills it up."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), number) + payload + bytes(-len(payload) % _ALIGN)


def nest(number: int, *attributes: bytes) -> bytes:
    return attribute(number | _NEST, b"".join(attributes))


def u8(number: int, value: int) -> bytes:
    return attribute(number, bytes((value,)))


def u32(number: int, value: int) -> bytes:
    return attribute(number, struct.pack("=I", value))


def question(family: int, command: int, version: int, sequence: int, *attributes: bytes) -> bytes:
    """Return a generic message to the kernel."""
    payload = _GENERIC_HEADER.pack(command, version, 0) + b"".join(attributes)
    return _MESSAGE.pack(_MESSAGE.size + len(payload), family, REQUEST, sequence, 0) + payload


def messages_in(datagram: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the type and sequence number of each message, and what follows its header.

    Raises NetlinkFormatError where one is cut off or has an impossible length.
    """
    at = 0
    while at < len(datagram):
        if len(datagram) - at < _MESSAGE.size:
            raise NetlinkFormatError(f"{len(datagram) - at} bytes where a message should begin")
        length, kind, _, sequence, _ = _MESSAGE.unpack_from(datagram, at)
        if not _MESSAGE.size <= length <= len(datagram) - at:
            raise NetlinkFormatError(f"a message of {length} bytes in {len(datagram) - at}")
        yield kind, sequence, datagram[at + _MESSAGE.size : at + length]
        at += length + -length % _ALIGN


def _first_number(layout: struct.Struct, payload: bytes, message: str) -> int:
    """Return the first number with which a message of this kind begins. Raises NetlinkFormatError."""
    if len(payload) < layout.size:
        raise NetlinkFormatError(f"{message} of {len(payload)} bytes")
    return int(layout.unpack_from(payload)[0])


def attributes_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield numbers and contents of the attributes in a message or nest. Raises NetlinkFormatError."""
    at = count = 0
    while len(data) - at >= _ATTRIBUTE.size:
        length, number = _ATTRIBUTE.unpack_from(data, at)
        if not _ATTRIBUTE.size <= length <= len(data) - at:
            raise NetlinkFormatError(f"an attribute of {length} bytes in {len(data) - at}")
        count += 1
        if count > MOST_ATTRIBUTES:
            raise NetlinkFormatError(f"more than {MOST_ATTRIBUTES} attributes")
        yield number & _TYPE_BITS, data[at + _ATTRIBUTE.size : at + length]
        at += length + -length % _ALIGN
    if at < len(data):
        raise NetlinkFormatError(f"{len(data) - at} bytes where an attribute should begin")


def whole_number(content: bytes) -> int:
    """Return an unsigned number of one, two, four or eight bytes. Raises NetlinkFormatError."""
    layout = _NUMBERS.get(len(content))
    if layout is None:
        raise NetlinkFormatError(f"a number of {len(content)} bytes")
    return int(layout.unpack(content)[0])


ANSWER_SECONDS = 0.4
"""The kernel answers before `send` returns; this is for one that never does."""
MOST_MESSAGES = 16
"""Messages that are looked at for one answer. It is the first one, unless the kernel sends what was not asked for."""
_SEQUENCE = 1
_GENERIC = 16
"""NETLINK_GENERIC: include/uapi/linux/netlink.h."""

_CONTROLLER, _GET_FAMILY, _NEW_FAMILY, _CONTROLLER_VERSION = 16, 3, 1, 2
_FAMILY_ID, _FAMILY_NAME = 1, 2
"""GENL_ID_CTRL, its commands and attributes: include/uapi/linux/genetlink.h."""


class NetlinkSocket(Protocol):
    """What is needed of a netlink socket. Each method raises OSError; `recv` gives one datagram."""

    def send(self, data: bytes, /) -> int: ...

    def recv(self, size: int, /) -> bytes: ...

    def close(self) -> None: ...


Connect = Callable[[], NetlinkSocket]
"""Opens a socket to the kernel. Raises OSError."""


def connect_netlink() -> NetlinkSocket:
    """Return a socket to generic netlink, whose answers are waited for ANSWER_SECONDS. Raises OSError."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _GENERIC)
    opened.settimeout(ANSWER_SECONDS)
    return opened


def send_request(
    connect: Connect, family: int, command: int, answer: int, version: int, *attributes: bytes
) -> list[tuple[int, bytes]]:
    """Return the attributes of the message `answer` with which the kernel answers `command`.

    Raises OSError with what the kernel refuses it with, TimeoutError if it says nothing, and NetlinkFormatError.
    """
    talk = connect()
    try:
        talk.send(question(family, command, version, _SEQUENCE, *attributes))
        for kind, payload in _replies(talk):
            if kind == ERROR:
                number = -_first_number(_ERRNO, payload, "an error message")
                raise OSError(number, "refused") if number > 0 else NetlinkFormatError("an acknowledgement, no answer")
            if kind == family and _first_number(_GENERIC_HEADER, payload, "a generic message") == answer:
                return list(attributes_in(payload[_GENERIC_HEADER.size :]))
    finally:
        talk.close()
    raise NetlinkFormatError(f"no answer among {MOST_MESSAGES} messages")


def resolve_family(connect: Connect, name: str) -> int:
    """Return this kernel's number of a family. Raises as `send_request`; FileNotFoundError without."""
    named = attribute(_FAMILY_NAME, name.encode() + b"\0")
    reply = dict(send_request(connect, _CONTROLLER, _GET_FAMILY, _NEW_FAMILY, _CONTROLLER_VERSION, named))
    if _FAMILY_ID not in reply:
        raise NetlinkFormatError(f"the family {name} has no number")
    return whole_number(reply[_FAMILY_ID])


def _replies(talk: NetlinkSocket) -> Iterator[tuple[int, bytes]]:
    """Yield type and payload of the first messages that belong to the question."""
    count = 0
    while count < MOST_MESSAGES:
        datagram = talk.recv(LONGEST)
        for kind, sequence, payload in messages_in(datagram):
            count += 1
            if sequence == _SEQUENCE:
                yield kind, payload
        count += not datagram
