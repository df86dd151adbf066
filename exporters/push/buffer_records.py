"""The records of a push's buffer: requests one after the other, each behind its length, time and checksum.

A file is only ever appended to, so what a crash leaves is a whole file with a torn record at its end.
"""

from __future__ import annotations

import os
import struct
import zlib

from exporters.push.write_request import WriteRequest

MAGIC = b"cppb"
MOST_BODY = 32 * 2**20
"""Bytes of a body that a reader takes: far more than the largest node has."""
_BEGIN = struct.Struct("<4sI")
_REST = struct.Struct("<IdI")
HEAD_BYTES = _BEGIN.size + _REST.size


class TornRecordError(ValueError):
    """There is something, but no whole record."""


def sealed(request: WriteRequest) -> bytes:
    """A request as it stands in the file."""
    rest = _REST.pack(len(request.body), request.wall, request.samples)
    return _BEGIN.pack(MAGIC, _checksum(rest, request.body)) + rest + request.body


def read_record(descriptor: int, at: int) -> WriteRequest | None:
    """The record at a byte of an open file; None at its end. Raises TornRecordError, and OSError."""
    head = os.pread(descriptor, HEAD_BYTES, at)
    if not head:
        return None
    if len(head) < HEAD_BYTES:
        raise TornRecordError("ends in the head of a record")
    magic, checksum = _BEGIN.unpack_from(head)
    length, wall, samples = _REST.unpack_from(head, _BEGIN.size)
    if magic != MAGIC or length > MOST_BODY:
        raise TornRecordError("there is no record where one should begin")
    body = os.pread(descriptor, length, at + HEAD_BYTES)
    if len(body) != length or _checksum(head[_BEGIN.size :], body) != checksum:
        raise TornRecordError("a record does not agree with its checksum")
    return WriteRequest(wall, samples, body)


def _checksum(rest: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(rest))
