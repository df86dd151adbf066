"""The records of a recording's file: a kind, a length and a checksum before each payload; its header and its columns.

A segment begins with a magic number that does not occur by chance, so that a reader finds the next one after damage.
Rows of numbers are stored by column: a column that does not change takes one value, the others one for each row, as
64-bit floats. Exclusive-or with the value before, or bytes sorted by their place, compressed worse and took longer.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain, compress, islice, repeat
from math import isfinite
from typing import Any, BinaryIO, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

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


class FileRecord(NamedTuple):
    """One record. A record without `kind` is the beginning of a segment, and has no payload."""

    kind: bytes | None
    at: int
    payload: bytes


def encode_record(kind: bytes, payload: bytes) -> bytes:
    return _HEAD.pack(kind, len(payload), _checksum(kind, payload)) + payload


def _checksum(kind: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(kind + struct.pack("<I", len(payload))))


def records(file: BinaryIO, start: int, end: int, preamble: int | None = None) -> Iterator[FileRecord]:
    """Yield the records from byte `start` to `end`. Raises BrokenRecordError, and OSError.

    With `preamble`, no more than this many bytes of each block are read, whose checksum is not looked at: this is how a
    long recording is surveyed quickly.
    """
    at = start
    while at < end:
        file.seek(at)
        begin = file.read(len(START))
        if begin.startswith(MAGIC[: len(begin)]):
            _check_start(begin, at)
            yield FileRecord(None, at, b"")
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


def _record(file: BinaryIO, begin: bytes, at: int, end: int, preamble: int | None) -> tuple[FileRecord, int]:
    """Return a record whose first bytes are known, and where the next one begins."""
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
        return FileRecord(kind, at, file.read(min(length, preamble))), after
    payload = file.read(length)
    if len(payload) != length or _checksum(kind, payload) != checksum:
        raise BrokenRecordError(at, "is damaged: a record does not agree with its checksum")
    return FileRecord(kind, at, payload), after


def next_segment(file: BinaryIO, after: int, end: int) -> int | None:
    """Return the first byte behind `after` at which a segment begins; None if no segment follows. Raises OSError."""
    at = after + 1
    while at < end:
        file.seek(at)
        window = file.read(_STRIDE + len(MAGIC) - 1)
        offset = window.find(MAGIC)
        if offset >= 0:
            return at + offset
        at += _STRIDE
    return None


def inflate(payload: bytes, most: int) -> bytes:
    """Return what was compressed into a payload, if it is no more than `most` bytes. Raises ValueError."""
    expander = zlib.decompressobj()
    try:
        content = expander.decompress(payload, most)
    except zlib.error as error:
        raise ValueError(f"cannot be decompressed: {error}") from None
    if not expander.eof or expander.unused_data:
        raise ValueError(f"is longer than {most} bytes, or cut")
    return content


VALUE = 8
"""Bytes of a value."""


def pack_columns(rows: Sequence[Sequence[float]]) -> bytes:
    """Return rows of equal width: a byte for each column, 1 where it changes; the constants; the changing columns."""
    height, width = len(rows), len(rows[0])
    step = VALUE * height
    columns = struct.pack(f"<{width * height}d", *chain.from_iterable(zip(*rows, strict=True)))
    held = [columns[start : start + step] for start in range(0, width * step, step)]
    # Compared as bytes: 0.0 equals -0.0, and must not become it.
    changes = bytes([column != column[:VALUE] * height for column in held])
    constants = [column[:VALUE] for column, changing in zip(held, changes, strict=True) if not changing]
    return b"".join((changes, *constants, *compress(held, changes)))


class PackedColumns:
    """Rows that were packed at a place of some data, and `after`, the place behind; decoded when they are asked for.

    `changes` has a byte for each column, 1 where it changes.
    """

    __slots__ = ("_data", "_start", "after", "changes", "height")

    def __init__(self, data: bytes, at: int, width: int, height: int) -> None:
        """Read where they end. Raises ValueError for what makes no sense, and for a value that is not finite."""
        self._data, self._start, self.height = data, at + width, height
        self.changes = data[at : at + width]
        moving, still = self.changes.count(1), self.changes.count(0)
        self.after = self._start + VALUE * (still + moving * height)
        if still + moving != width or self.after > len(data):
            raise ValueError("columns invalid or truncated")
        exponents = data[self._start + VALUE - 1 : self.after : VALUE]  # the sign, and all bits but four
        if (b"\x7f" in exponents or b"\xff" in exponents) and not all(map(isfinite, self._values())):
            raise ValueError("a value that is not finite")

    def _values(self) -> tuple[float, ...]:
        return struct.unpack_from(f"<{(self.after - self._start) // VALUE}d", self._data, self._start)

    def rows(self) -> Iterator[tuple[float, ...]]:
        """Return the rows, made one by one: a few bytes of a hostile file stand for any number of them."""
        values, still = self._values(), self.changes.count(0)
        constants = iter(values[:still])
        changing = (values[start : start + self.height] for start in range(still, len(values), self.height))
        columns = [next(changing) if changed else repeat(next(constants)) for changed in self.changes]
        if not columns:
            return repeat((), self.height)
        return islice(zip(*columns), self.height)  # noqa: B905 constants have no end

    def select(self, keys: Sequence[Any]) -> list[Any]:
        """Return what is at these indexes and slices of the constants and the columns that change."""
        return list(map(self._values().__getitem__, keys))


HEADER_BYTES = 256 * 2**10
TEXT = 64 * 2**10
"""Characters of a text in a header that a reader takes."""


class RecordingHeader(Struct, frozen=True):
    """What is known of a recording before its first snapshot. Texts are empty where there is no such thing.

    `wall` and `mono` are when it began, in seconds on both clocks, `interval` the seconds between two snapshots.
    `maker` says what recorded, `command` what ran meanwhile, `job` the job's id. `scenario` names what synthetic
    devices played. `redacted` says that what identifies people and machines was replaced.
    """

    coldplate: str
    node: str
    wall: float
    mono: float
    interval: float
    maker: str = ""
    command: tuple[str, ...] = ()
    job: str = ""
    scenario: str = ""
    redacted: bool = False


def encode_header(header: RecordingHeader) -> bytes:
    """Return it as it stands in the file: JSON, not compressed, to be read with a pager."""
    return json.dumps(asdict(header), separators=(",", ":")).encode()


def decode_header(payload: bytes) -> RecordingHeader:
    """Return the header in a payload; members that this version does not know are passed over. Raises ValueError."""
    if len(payload) > HEADER_BYTES:
        raise ValueError("its header is too long")
    try:
        header = msgspec.convert(json.loads(payload), RecordingHeader)
        texts = [value for value in (*header.command, *asdict(header).values()) if isinstance(value, str)]
        if not all(map(isfinite, (header.wall, header.mono, header.interval))) or max(map(len, texts)) > TEXT:
            raise ValueError("a time is not finite, or a text is too long")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its header is not understood: {type(error).__name__}: {error}") from None
    return header
