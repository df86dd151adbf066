"""Reads the wire format of protocol buffers, as far as one small message needs it, with bounds on everything.

Generated code would need the protobuf library for three strings and a list. Unknown field numbers
are skipped, as the format requires of readers older than the writer.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class ProtobufError(ValueError):
    """The bytes are not a valid message."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_LONGEST_VARINT):
        if at >= len(data):
            raise ProtobufError("ends within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at
    raise ProtobufError("has a number of more than ten bytes")


def parts(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The number and content of each field that holds bytes: a text or a message. Raises ProtobufError."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            _, at = _varint(data, at)
            continue
        if kind == BYTES:
            size, at = _varint(data, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ProtobufError(f"has the wire type {kind}")
        if at + size > len(data):
            raise ProtobufError("ends within a field")
        if kind == BYTES:
            yield tag >> 3, data[at : at + size]
        at += size


def text(data: memoryview) -> str:
    """A string field. Raises ProtobufError."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtobufError(f"has invalid text: {error.reason}") from error
