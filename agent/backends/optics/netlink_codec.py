"""Netlink's messages and attributes as bytes: built, and taken apart within bounds.

Layouts and constants are those of include/uapi/linux/netlink.h and genetlink.h. All numbers are in the machine's own
byte order; messages and attributes begin at multiples of four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

ERROR = 2
"""The type of a message with an error number: 0, or the negative of errno."""
REQUEST = 1
"""The flag of a question."""
LONGEST = 1 << 16
"""Most bytes of a datagram that are read: the kernel's answers about one port have some hundred."""

_MESSAGE = struct.Struct("=IHHII")
_GENERIC = struct.Struct("=BBH")
_ATTRIBUTE = struct.Struct("=HH")
_ERRNO = struct.Struct("=i")
_NUMBERS = {layout.size: layout for layout in map(struct.Struct, ("=B", "=H", "=I", "=Q"))}
_TYPE_BITS = 0x3FFF
"""The two bits above tell that an attribute is a nest, or in network byte order."""
_NEST = 0x8000
_ALIGN = 4
MOST_ATTRIBUTES = 4096
"""Of one message or nest. An answer about a port with a histogram of 32 bins has some hundred."""


class NetlinkFormatError(ValueError):
    """Bytes that are no netlink message, or an answer that does not have the documented form."""


class NetlinkMessage(NamedTuple):
    """One message: its type and sequence number, and what follows its header."""

    type: int
    sequence: int
    payload: bytes

    def errno(self) -> int:
        """What a message of the type ERROR reports; 0 is an acknowledgement. Raises NetlinkFormatError."""
        if len(self.payload) < _ERRNO.size:
            raise NetlinkFormatError(f"an error message of {len(self.payload)} bytes")
        return -int(_ERRNO.unpack_from(self.payload)[0])

    def command(self) -> int:
        """Which generic message it is. Raises NetlinkFormatError."""
        if len(self.payload) < _GENERIC.size:
            raise NetlinkFormatError(f"a generic message of {len(self.payload)} bytes")
        return int(_GENERIC.unpack_from(self.payload)[0])

    def attributes(self) -> Iterator[tuple[int, bytes]]:
        """The attributes of a generic message. Raises NetlinkFormatError."""
        return attributes_in(self.payload[_GENERIC.size :])


def attribute(number: int, payload: bytes) -> bytes:
    """One attribute, with what fills it up."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(payload), number) + payload + bytes(-len(payload) % _ALIGN)


def nest(number: int, *attributes: bytes) -> bytes:
    """An attribute that holds others."""
    return attribute(number | _NEST, b"".join(attributes))


def u8(number: int, value: int) -> bytes:
    """An attribute that holds a small number."""
    return attribute(number, bytes((value,)))


def u32(number: int, value: int) -> bytes:
    """An attribute that holds a number."""
    return attribute(number, struct.pack("=I", value))


def question(family: int, command: int, version: int, sequence: int, *attributes: bytes) -> bytes:
    """A generic message to the kernel."""
    payload = _GENERIC.pack(command, version, 0) + b"".join(attributes)
    return _MESSAGE.pack(_MESSAGE.size + len(payload), family, REQUEST, sequence, 0) + payload


def messages_in(datagram: bytes) -> Iterator[NetlinkMessage]:
    """The messages of one datagram. Raises NetlinkFormatError where one is cut off or has an impossible length."""
    at = 0
    while at < len(datagram):
        if len(datagram) - at < _MESSAGE.size:
            raise NetlinkFormatError(f"{len(datagram) - at} bytes where a message should begin")
        length, kind, _, sequence, _ = _MESSAGE.unpack_from(datagram, at)
        if not _MESSAGE.size <= length <= len(datagram) - at:
            raise NetlinkFormatError(f"a message of {length} bytes in {len(datagram) - at}")
        yield NetlinkMessage(kind, sequence, datagram[at + _MESSAGE.size : at + length])
        at += length + -length % _ALIGN


def attributes_in(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the attributes in a message or nest. Raises NetlinkFormatError likewise."""
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
    """An unsigned number of one, two, four or eight bytes. Raises NetlinkFormatError."""
    layout = _NUMBERS.get(len(content))
    if layout is None:
        raise NetlinkFormatError(f"a number of {len(content)} bytes")
    return int(layout.unpack(content)[0])
