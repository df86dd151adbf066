"""Read a recording: its header, its segments, and its snapshots in order; and many nodes' recordings by wall clock.

A file may end anywhere, and any of its bytes may be wrong: what is intact is returned, the rest is in `problems`.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from heapq import merge
from itertools import groupby
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

from msgspec import Struct

from agent.lib.wording import one_line, utc
from agent.model import BackendReport, Frame, Instant, Snapshot
from agent.recording.file_records import (
    BLOCK,
    DEFINITIONS,
    HEADER,
    START,
    BrokenRecordError,
    FileRecord,
    RecordingError,
    RecordingHeader,
    decoded,
    inflated,
    next_segment,
    records,
    unpack_columns,
)
from agent.recording.recording_file import PREAMBLE
from agent.recording.segment_definitions import KnownDefinitions, ReadDefinitions

BLOCK_BYTES = 32 * 2**20
"""Bytes of a block when it is decompressed: a writer packs one when it has eight mebibytes."""
OUTLINE_BYTES = 4 * 2**20
"""Bytes of the part of a block that says which rows belong to which snapshot."""
TICKS = 100_000
"""Snapshots of a block."""
PROBLEMS = 100
"""Problems of one file that are listed."""
_ODD = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, struct.error)
"""What comes of a document that is not as it should be."""


_P = TypeVar("_P")
Opened = tuple[int, float, _P]
"""A piece of a block: its number of snapshots, the wall second of the last, and what a reader makes of it."""
Opener = Callable[[RecordingHeader, bytes, ReadDefinitions], Iterable[Opened[_P]]]
"""Opens a block's payload. Raises ValueError, TypeError or LookupError for what makes no sense."""


class RecordedSnapshot(NamedTuple):
    """A snapshot, and where it comes from."""

    header: RecordingHeader
    snapshot: Snapshot


class SegmentSpan(Struct):
    """A segment of a file: the byte at which it begins, its header, and its snapshots' number and wall seconds.

    In a segment without snapshots the seconds are not finite.
    """

    at: int
    header: RecordingHeader
    count: int = 0
    first: float = inf
    last: float = -inf


class Recording:
    """A file. Use it in a `with` statement, or close it.

    `problems` are what was found wrong with the file so far, in texts that name it; a file that ends in the middle of a
    record, because its writer was killed, is the most frequent.
    """

    def __init__(self, path: Path | str) -> None:
        """Open the file and read its first header. Raises RecordingError if it is no recording."""
        self.path = Path(path)
        self.problems: list[str] = []
        self._file, self._end = _opened(self.path)
        self._given = 0
        self._last: float | None = None
        try:
            self.header = self._first_header()
        except RecordingError:
            self.close()
            raise

    def __enter__(self) -> Recording:  # noqa: PYI034 Self came with Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; may be called more than once."""
        self._file.close()

    def snapshots(self) -> Iterator[Snapshot]:
        """Return all snapshots, in the order of the file. Raises RecordingError if the disk does not give it."""
        return (each.snapshot for each in self.recorded())

    def recorded(self, segments: list[int] | None = None) -> Iterator[RecordedSnapshot]:
        """Return all snapshots with their headers; of these segments only, if their first bytes are given. As
        `snapshots`.
        """
        return self.pieces(_SnapshotBlock, segments)

    def pieces(self, opener: Opener[_P], segments: list[int] | None = None) -> Iterator[_P]:
        """Yield what an opener makes of all blocks, or of those in these segments. As `recorded`."""
        known = KnownDefinitions()
        self._given, self._last = 0, None
        for start in [0] if segments is None else segments:
            at: int | None = start
            while at is not None:
                at, known = yield from self._whole(opener, at, known, only=segments is not None)

    def survey(self) -> list[SegmentSpan]:
        """Return the segments, found without decompressing their blocks: a second for a recording of days. As
        `snapshots`.
        """
        spans: list[SegmentSpan] = []
        at: int | None = 0
        while at is not None:
            try:
                for record in records(self._file, at, self._end, PREAMBLE.size):
                    _enter(spans, record)
                return spans
            except BrokenRecordError as error:
                self._note(error.at, str(error), torn=error.torn, count=False)
                at = self._behind(error.at)
            except _ODD as error:
                self._note(at, f"is damaged: {error}", count=False)
                at = self._behind(at)
            except OSError as error:
                raise self._unreadable(error) from None
        return spans

    def _whole(
        self, opener: Opener[_P], at: int, known: KnownDefinitions, *, only: bool
    ) -> Generator[_P, None, tuple[int | None, KnownDefinitions]]:
        """Yield what is whole of the segment at a byte and of those behind it, or of that one `only`.

        Returns where to go on behind damage, None at the end, and the objects of the segment that was read last.
        """
        place, has_begun = at, False
        header: RecordingHeader | None = None
        definitions = ReadDefinitions(known)
        try:
            for record in records(self._file, at, self._end):
                place = record.at
                if record.kind is None:
                    if has_begun and only:
                        break
                    if has_begun:
                        definitions = ReadDefinitions(definitions.known)
                    has_begun, header = True, None
                elif record.kind == HEADER:
                    header = decoded(record.payload)
                elif record.kind == DEFINITIONS:
                    definitions.take(record.payload)
                elif header is None:
                    raise ValueError("a block without a header")
                else:
                    for count, self._last, piece in opener(header, record.payload, definitions):
                        self._given += count
                        yield piece
            return None, definitions.known
        except BrokenRecordError as error:
            self._note(error.at, str(error), torn=error.torn)
            place = error.at
        except _ODD as error:
            self._note(place, f"is damaged: {error}")
        except OSError as error:
            raise self._unreadable(error) from None
        return None if only else self._behind(place), definitions.known

    def _behind(self, at: int) -> int | None:
        """Return where the next segment begins after damage, and add a problem."""
        try:
            found = next_segment(self._file, at, self._end)
        except OSError as error:
            raise self._unreadable(error) from None
        if found is not None and self.problems:
            self.problems[-1] += f"; read on from byte {found}"
        return found

    def _note(self, at: int, problem: str, *, torn: bool = False, count: bool = True) -> None:
        whole = ""
        if count:
            until = "" if self._last is None else f", until {utc(self._last)}"
            whole = f"; {self._given} snapshots before are whole{until}"
        why = " (its writer was stopped, or it was cut)" if torn else ""
        text = f"{self._shown}: {problem} at byte {at} of {self._end}{why}{whole}"
        if len(self.problems) < PROBLEMS and text not in self.problems:
            self.problems.append(text)

    def _first_header(self) -> RecordingHeader:
        self._file.seek(0)
        begin = self._file.read(len(START))
        if not begin:
            raise RecordingError(f"{self._shown}: is empty; a recording begins with its header")
        if not START.startswith(begin[: len(START) - 2]):
            raise RecordingError(f"{self._shown}: is not a recording of coldplate's")
        try:
            for record in records(self._file, 0, self._end):
                if record.kind not in (None, HEADER):
                    raise ValueError("has no header")
                if record.kind is not None:
                    return decoded(record.payload)
            problem = "ends before its header"
        except (BrokenRecordError, ValueError) as error:
            problem = str(error)
        except OSError as error:
            raise self._unreadable(error) from None
        raise RecordingError(f"{self._shown}: {problem} at byte 0 of {self._end}; nothing of it can be read")

    def _unreadable(self, error: OSError) -> RecordingError:
        return RecordingError(f"{self._shown}: cannot be read: {error.strerror or error}")

    @property
    def _shown(self) -> str:
        return one_line(str(self.path), 4096)


class BlockOutline:
    """What a block says of itself: its snapshots' times, and which rows of which tracks each of them has.

    Raises ValueError, TypeError, LookupError or struct.error where it makes no sense.
    """

    def __init__(self, payload: bytes) -> None:
        count, _, _ = PREAMBLE.unpack_from(payload)
        if count > TICKS:
            raise ValueError(f"more than {TICKS} snapshots in a block")
        self.body = inflated(payload[PREAMBLE.size :], BLOCK_BYTES)
        (length,) = struct.unpack_from("<I", self.body)
        if length > OUTLINE_BYTES:
            raise ValueError(f"an outline of more than {OUTLINE_BYTES} bytes")
        document = json.loads(self.body[4 : 4 + length])
        self.shapes: list[list[int]] = document["shapes"]
        self.ticks: list[Any] = document["ticks"]
        if len(self.ticks) != count:
            raise ValueError("a block with another number of snapshots than it says")
        self.tracks: list[tuple[str, int, int]] = document["tracks"]
        if not all(0 < height <= TICKS for _, _, height in self.tracks):
            raise ValueError(f"a track with no rows or more than {TICKS}")
        self.times, self.at = unpack_columns(self.body, 4 + length, 3, count)
        """Rows of sequence, monotonic and wall seconds; and the place of the body at which the first track begins."""


def track_width(kind: str, number: int, definitions: ReadDefinitions) -> int:
    """Return columns of a track. Raises LookupError."""
    return len(definitions.layouts[number]) if kind == "L" else 2 * len(definitions.reports(number))


class _SnapshotBlock:
    """The snapshots of a block, made one by one."""

    def __init__(self, header: RecordingHeader, payload: bytes, definitions: ReadDefinitions) -> None:
        outline = BlockOutline(payload)
        self._header, self._definitions = header, definitions
        self._shapes, self._ticks, self._times = outline.shapes, outline.ticks, outline.times
        at = outline.at
        self._tracks: list[tuple[str, int, Iterator[tuple[float, ...]]]] = []
        for kind, number, height in outline.tracks:
            rows, at = unpack_columns(outline.body, at, track_width(kind, number, definitions), height)
            self._tracks.append((kind, number, rows))
        self._last: dict[int, Frame | tuple[BackendReport, ...]] = {}

    def __iter__(self) -> Iterator[Opened[RecordedSnapshot]]:
        for (sequence, mono, wall), (shape, fresh) in zip(self._times, self._ticks, strict=True):
            frames: list[Frame] = []
            reports: tuple[BackendReport, ...] = ()
            for track, is_fresh in zip(self._shapes[shape], fresh, strict=True):
                item = self._next(track) if is_fresh == "1" else self._last[track]
                if isinstance(item, Frame):
                    frames.append(item)
                else:
                    reports = item
            snapshot = Snapshot(int(sequence), Instant(mono, wall), tuple(frames), reports)
            yield 1, wall, RecordedSnapshot(self._header, snapshot)

    def _next(self, track: int) -> Frame | tuple[BackendReport, ...]:
        kind, number, rows = self._tracks[track]
        row = next(rows, None)
        if row is None:
            raise ValueError("a track with fewer rows than are used")
        made: Frame | tuple[BackendReport, ...]
        if kind == "L":
            made = Frame(self._definitions.layouts[number], row)
        else:
            plain = self._definitions.reports(number)
            pairs = zip(plain, row[::2], row[1::2], strict=True)
            made = tuple(each._replace(duration=duration, calls=int(calls)) for each, duration, calls in pairs)
        self._last[track] = made
        return made


def _enter(spans: list[SegmentSpan], record: FileRecord) -> None:
    if record.kind == HEADER:
        spans.append(SegmentSpan(record.at - len(START), decoded(record.payload)))
    elif record.kind == BLOCK and spans:
        count, first, last = PREAMBLE.unpack_from(record.payload)
        span = spans[-1]
        span.first, span.last = span.first if span.count else first, last
        span.count += count


def _opened(path: Path) -> tuple[BinaryIO, int]:
    """Return the file and its length. Never waits for a writer of a pipe. Raises RecordingError."""
    shown = one_line(str(path), 4096)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise RecordingError(f"{shown}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise RecordingError(f"{shown}: is no file; give a recording")
    return os.fdopen(descriptor, "rb"), status.st_size


def open_recordings(
    paths: Iterable[Path | str], stack: ExitStack, report: Callable[[str], object] = lambda _: None
) -> list[Recording]:
    """Return the recordings that can be read, which the stack closes; report why the others cannot."""
    recordings = []
    for path in paths:
        try:
            recordings.append(stack.enter_context(Recording(path)))
        except RecordingError as error:
            report(str(error))
    return recordings


def by_time(recordings: Iterable[Recording]) -> Iterator[RecordedSnapshot]:
    """Return the snapshots of all, the earliest first. A file may hold several nodes: `cat a b` makes such a one.

    One block of each node is held at a time. Raises RecordingError.
    """
    streams: list[Iterator[RecordedSnapshot]] = []
    for recording in recordings:
        spans = [span for span in recording.survey() if span.count]
        spans.sort(key=attrgetter("header.node", "first", "at"))
        for _, one in groupby(spans, key=attrgetter("header.node")):
            streams.append(recording.recorded([span.at for span in one]))
    return merge(*streams, key=attrgetter("snapshot.at.wall"))
