"""The records that a recording's file consists of: a kind, a length and a checksum before each payload.

A segment begins with a magic number that occurs nowhere by chance, so that a reader finds the next one behind damage.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

MAGIC = b"\x89coldplate\r\n\x1a\n"
VERSION = 1
START = MAGIC + struct.pack("<H", VERSION)

HEADER, DEFINITIONS, BLOCK = b"H", b"D", b"B"
_HEAD = struct.Struct("<cII")
HEAD_BYTES = _HEAD.size

PAYLOAD = 32 * 2**20
"""Bytes of a payload that a reader takes: a block of the largest node has less than one mebibyte."""
_STRIDE = 2**20


class RecordingError(Exception):
    """A recording cannot be read or written; the text names the file, the place and what is whole."""


class BrokenRecordError(Exception):
    """Something in the file is not what it should be. `at` is the byte where it begins; `torn` where the file ends."""

    def __init__(self, at: int, problem: str, *, torn: bool = False) -> None:
        super().__init__(problem)
        self.at = at
        self.torn = torn


class Record(NamedTuple):
    """One record. `kind` is None for the beginning of a segment, which has no payload."""

    kind: bytes | None
    at: int
    payload: bytes


def sealed(kind: bytes, payload: bytes) -> bytes:
    """A record as it stands in the file."""
    return _HEAD.pack(kind, len(payload), _checksum(kind, payload)) + payload


def _checksum(kind: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(kind + struct.pack("<I", len(payload))))


def records(file: BinaryIO, start: int, end: int, preamble: int | None = None) -> Iterator[Record]:
    """The records from byte `start` to `end`. Raises BrokenRecordError, and OSError.

    With `preamble`, no more than so many bytes of each block are read, whose checksum is not looked at: this is how a
    long recording is surveyed quickly.
    """
    at = start
    while at < end:
        file.seek(at)
        begin = file.read(len(START))
        if begin.startswith(MAGIC[: len(begin)]):
            _check_start(begin, at)
            yield Record(None, at, b"")
            at += len(START)
            continue
        record, at = _record(file, begin, at, end, preamble)
        yield record


def _check_start(begin: bytes, at: int) -> None:
    if len(begin) < len(START):
        raise BrokenRecordError(at, "ends in the beginning of a segment", torn=True)
    version = int.from_bytes(begin[len(MAGIC) :], "little")
    if version != VERSION:
        raise BrokenRecordError(at, f"is of version {version} of the format, and this program knows {VERSION}")


def _record(file: BinaryIO, begin: bytes, at: int, end: int, preamble: int | None) -> tuple[Record, int]:
    """A record whose first bytes are known, and where the next one begins."""
    if len(begin) < HEAD_BYTES:
        raise BrokenRecordError(at, "ends in the middle of a record", torn=True)
    kind, length, checksum = _HEAD.unpack(begin[:HEAD_BYTES])
    if kind not in (HEADER, DEFINITIONS, BLOCK) or length > PAYLOAD:
        raise BrokenRecordError(at, "is damaged: there is no record here")
    after = at + HEAD_BYTES + length
    if after > end:
        raise BrokenRecordError(at, "ends in the middle of a record", torn=True)
    file.seek(at + HEAD_BYTES)
    if preamble is not None and kind == BLOCK:
        return Record(kind, at, file.read(min(length, preamble))), after
    payload = file.read(length)
    if len(payload) != length or _checksum(kind, payload) != checksum:
        raise BrokenRecordError(at, "is damaged: a record does not agree with its checksum")
    return Record(kind, at, payload), after


def next_segment(file: BinaryIO, after: int, end: int) -> int | None:
    """The first byte behind `after` at which a segment begins; None where there is none. Raises OSError."""
    at = after + 1
    while at < end:
        file.seek(at)
        window = file.read(_STRIDE + len(MAGIC) - 1)
        found = window.find(MAGIC)
        if found >= 0:
            return at + found
        at += _STRIDE
    return None


def inflated(payload: bytes, most: int) -> bytes:
    """What was compressed into a payload, if it is no more than `most` bytes. Raises ValueError."""
    expander = zlib.decompressobj()
    try:
        content = expander.decompress(payload, most)
    except zlib.error as error:
        raise ValueError(f"cannot be decompressed: {error}") from None
    if not expander.eof or expander.unused_data:
        raise ValueError(f"is longer than {most} bytes, or cut")
    return content
