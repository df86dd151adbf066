"""The part of a push's queue that survives a restart: segments of whole requests, and how far they have been sent.

Segments are numbered files of records: requests one after the other, each behind its length, time and checksum. New
requests are appended to the last one, and the first one is removed when all of it has been sent, so what a crash leaves
is a whole file with a torn record at its end. How far the first one has been sent is in a small file, which is
rewritten in place: without it, the receiver would see requests twice after a restart, and refuse them as out of order.

Not thread-safe by itself: its owner holds a lock.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import zlib
from pathlib import Path

from msgspec import Struct

from exporters.push.write_request import WriteRequest

MAGIC = b"cppb"
MAX_BODY_BYTES = 32 * 2**20
"""Bytes of a body that a reader takes: far more than the largest node has."""
_BEGIN = struct.Struct("<4sI")
_REST = struct.Struct("<IdI")
HEAD_BYTES = _BEGIN.size + _REST.size


class TornRecordError(ValueError):
    """There is something, but no whole record."""


def encode_record(request: WriteRequest) -> bytes:
    """Return a request as it stands in the file."""
    rest = _REST.pack(len(request.body), request.wall, request.samples)
    return _BEGIN.pack(MAGIC, _checksum(rest, request.body)) + rest + request.body


def read_record(descriptor: int, at: int) -> WriteRequest | None:
    """Return the record at a byte of an open file; None at its end. Raises TornRecordError, and OSError."""
    head = os.pread(descriptor, HEAD_BYTES, at)
    if not head:
        return None
    if len(head) < HEAD_BYTES:
        raise TornRecordError("ends in the head of a record")
    magic, checksum = _BEGIN.unpack_from(head)
    length, wall, samples = _REST.unpack_from(head, _BEGIN.size)
    if magic != MAGIC or length > MAX_BODY_BYTES:
        raise TornRecordError("there is no record where one should begin")
    body = os.pread(descriptor, length, at + HEAD_BYTES)
    if len(body) != length or _checksum(head[_BEGIN.size :], body) != checksum:
        raise TornRecordError("a record does not agree with its checksum")
    return WriteRequest(wall, samples, body)


def _checksum(rest: bytes, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(rest))


SEGMENTS = 16
"""Parts that the buffer consists of when it is full: so much of it is dropped at a time."""
MIN_SEGMENT_BYTES = 64 * 1024
_NAME = re.compile(r"([0-9]{10})\.segment")
_SENT = "sent"
_SENT_FORM = struct.Struct("<QQI")


class BufferSegment(Struct):
    """One file: its number, bytes, samples, and the times of its first and last request in wall seconds."""

    number: int
    bytes: int = 0
    samples: int = 0
    first: float = 0.0
    last: float = 0.0

    def add(self, request: WriteRequest) -> None:
        """Count a request that stands behind the others."""
        if not self.samples:
            self.first = request.wall
        self.bytes += HEAD_BYTES + len(request.body)
        self.samples += request.samples
        self.last = request.wall


class DiskBuffer:
    """Requests in a folder, in order. `limit` in bytes. Raises OSError where the folder cannot be used."""

    def __init__(self, folder: Path, limit: float) -> None:
        self.folder = folder
        self._limit = limit
        self._segments: list[BufferSegment] = []
        self._read = -1
        """The descriptor of the first segment, while it is read from."""
        self._write = -1
        self._at = 0
        """The byte of the first segment up to which it has been sent."""
        self._head: WriteRequest | None = None
        self._unused = 0
        """The number of the next segment."""
        self.damage: list[tuple[str, int]] = []
        """Damage found in segments: a text, and the number of lost samples if known. The queue takes it from here."""
        folder.mkdir(parents=True, exist_ok=True)
        self._load_segments()

    @property
    def bytes(self) -> int:
        """Bytes that are not sent yet."""
        return sum(each.bytes for each in self._segments) - self._at

    @property
    def oldest(self) -> float | None:
        """The time of the oldest request that is not sent, in wall seconds, as far as it is known."""
        if self._head is not None:
            return self._head.wall
        return self._segments[0].first if self._segments else None

    def append(self, request: WriteRequest) -> int:
        """Add a request, and have it on the disk; returns the samples that were dropped for it. Raises OSError."""
        segment = self._segments[-1] if self._write >= 0 else self._begin_segment()
        try:
            left = memoryview(encode_record(request))
            while left:
                left = left[os.write(self._write, left) :]
            os.fsync(self._write)
        except OSError:
            self._abandon_segment(segment)
            raise
        segment.add(request)
        if segment.bytes >= max(self._limit / SEGMENTS, MIN_SEGMENT_BYTES):
            self._close_write()
        dropped = 0
        while self.bytes > self._limit and len(self._segments) > 1:
            dropped += self.drop_first()
        return dropped

    def head(self) -> WriteRequest | None:
        """Return the oldest request that is not sent; None if all are. Raises OSError."""
        while self._head is None and self._segments:
            segment = self._segments[0]
            if self._at >= segment.bytes:
                if len(self._segments) == 1 and self._write >= 0:
                    return None
                self.drop_first()
                continue
            try:
                if self._read < 0:
                    self._read = os.open(self._path(segment), os.O_RDONLY | os.O_CLOEXEC)
                self._head = read_record(self._read, self._at)
                if self._head is None:
                    raise TornRecordError("is shorter than it was")
            except (TornRecordError, FileNotFoundError) as error:
                why = "is gone" if isinstance(error, FileNotFoundError) else str(error)
                self.damage.append((f"{self._path(segment)}: {why}", segment.samples))
                self._close_write_of(segment)
                segment.bytes, segment.samples = self._at, 0
        return self._head

    def advance(self) -> None:
        """Note that the head has been sent, or is not to be sent any more. Raises OSError."""
        head, self._head = self._head, None
        if head is None:
            return
        segment = self._segments[0]
        segment.samples -= head.samples
        self._at += HEAD_BYTES + len(head.body)
        if self._at >= segment.bytes:
            self._close_write_of(segment)
            self.drop_first()
        else:
            self._write_sent()

    def drop_first(self) -> int:
        """Remove the first segment, sent or not; returns the samples in it that were not."""
        segment = self._segments.pop(0)
        self._close_write_of(segment)
        self._head, self._at = None, 0
        self._close_read()
        self._path(segment).unlink(missing_ok=True)
        return segment.samples

    def drop_older(self, wall: float) -> int:
        """Drop what is older than a time; returns the samples. Raises OSError."""
        dropped = 0
        while self._segments and self._segments[0].samples and self._segments[0].last < wall:
            dropped += self.drop_first()
        while (head := self.head()) is not None and head.wall < wall:
            dropped += head.samples
            self.advance()
        return dropped

    def close(self) -> None:
        """Close the files; what is in them stays."""
        self._close_write()
        self._close_read()

    def _begin_segment(self) -> BufferSegment:
        number = self._segments[-1].number + 1 if self._segments else self._unused
        segment = BufferSegment(number)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._write = os.open(self._path(segment), flags, 0o640)
        self._segments.append(segment)
        self._unused = number + 1
        return segment

    def _abandon_segment(self, segment: BufferSegment) -> None:
        """Write no more to a segment after a failure, and leave nothing behind its last whole request."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._write, segment.bytes)
        self._close_write()
        if not segment.bytes:
            self._segments.remove(segment)
            with contextlib.suppress(OSError):
                self._path(segment).unlink()

    def _close_write_of(self, segment: BufferSegment) -> None:
        if self._segments[-1:] in ([], [segment]):
            self._close_write()

    def _close_write(self) -> None:
        if self._write >= 0:
            os.close(self._write)
            self._write = -1

    def _close_read(self) -> None:
        if self._read >= 0:
            os.close(self._read)
            self._read = -1

    def _path(self, segment: BufferSegment) -> Path:
        return self.folder / f"{segment.number:010d}.segment"

    def _load_segments(self) -> None:
        """Find what an earlier run left."""
        found = sorted((int(match[1]), path) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name)))
        number, sent = self._read_sent()
        self._unused = max([each for each, _ in found] + [number]) + 1
        for each, path in found:
            segment = self._scan_segment(each, path, sent if each == number else 0)
            if each < number or segment.bytes <= (sent if each == number else 0):
                path.unlink(missing_ok=True)
                continue
            self._segments.append(segment)
        if self._segments and self._segments[0].number == number:
            self._at = sent

    def _scan_segment(self, number: int, path: Path, start: int) -> BufferSegment:
        """Return what a segment has from a byte on. A torn record, and what is behind it, is left out."""
        segment = BufferSegment(number, start)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while (request := read_record(descriptor, segment.bytes)) is not None:
                segment.add(request)
        except TornRecordError as error:
            self.damage.append((f"{path}: {error}", 0))
        finally:
            os.close(descriptor)
        return segment

    def _read_sent(self) -> tuple[int, int]:
        """Return the number of the first segment, and up to which byte it has been sent."""
        try:
            content = (self.folder / _SENT).read_bytes()[: _SENT_FORM.size + 1]
        except FileNotFoundError:
            return 0, 0
        if len(content) != _SENT_FORM.size:
            return 0, 0
        number, at, checksum = _SENT_FORM.unpack(content)
        return (number, at) if checksum == zlib.crc32(content[:16]) else (0, 0)

    def _write_sent(self) -> None:
        """Write how far the first segment has been sent: in one call, so that a crash of the agent cannot cut it."""
        place = struct.pack("<QQ", self._segments[0].number, self._at)
        descriptor = os.open(self.folder / _SENT, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            os.pwrite(descriptor, place + struct.pack("<I", zlib.crc32(place)), 0)
        finally:
            os.close(descriptor)
