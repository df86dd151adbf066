"""Read a recording: its header, its segments, and its snapshots in order; and many nodes' recordings by wall clock.

A file may end anywhere, and any of its bytes may be wrong: what is intact is returned, the rest is in `problems`.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from heapq import merge
from itertools import chain, groupby
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from agent.lib.wording import shown_path, utc
from agent.model import Snapshot
from agent.recording.file_records import (
    BLOCK,
    DEFINITIONS,
    HEADER,
    START,
    BrokenRecordError,
    FileRecord,
    RecordingError,
    RecordingHeader,
    decode_header,
    next_segment,
    records,
)
from agent.recording.recorded_block import RecordedBlock, RecordedSnapshot
from agent.recording.recording_file import PREAMBLE
from agent.recording.segment_definitions import KnownDefinitions, ReadDefinitions

PROBLEMS = 100
"""Problems of one file that are listed."""
_ODD = (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError, struct.error)
"""What comes of a document that is not as it should be."""


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
        self._shown_path = shown_path(self.path)
        self.problems: list[str] = []
        self._file, self._end = _open_file(self.path)
        self._yielded = 0
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
        return (recorded.snapshot for recorded in self.recorded())

    def recorded(self, segments: list[int] | None = None) -> Iterator[RecordedSnapshot]:
        """Return all snapshots with their headers; only of segments whose first bytes are given. As `snapshots`."""
        return chain.from_iterable(block.snapshots() for block in self.blocks(segments))

    def blocks(self, segments: list[int] | None = None) -> Iterator[RecordedBlock]:
        """Yield all blocks, or those in these segments. As `recorded`."""
        known_definitions = KnownDefinitions()
        self._yielded, self._last = 0, None
        for start in [0] if segments is None else segments:
            at: int | None = start
            while at is not None:
                at, known_definitions = yield from self._read_segments(at, known_definitions, only=segments is not None)

    def survey(self) -> list[SegmentSpan]:
        """Return the segments, without decompressing blocks: a second for a recording of days. As `snapshots`."""
        spans: list[SegmentSpan] = []
        at: int | None = 0
        while at is not None:
            try:
                for record in records(self._file, at, self._end, PREAMBLE.size):
                    _add_to_spans(spans, record)
                return spans
            except BrokenRecordError as error:
                self._add_problem(error.at, str(error), torn=error.torn, count=False)
                at = self._next_segment(error.at)
            except _ODD as error:
                self._add_problem(at, f"is damaged: {error}", count=False)
                at = self._next_segment(at)
            except OSError as error:
                raise self._unreadable(error) from None
        return spans

    def _read_segments(
        self, at: int, known_definitions: KnownDefinitions, *, only: bool
    ) -> Generator[RecordedBlock, None, tuple[int | None, KnownDefinitions]]:
        """Yield what is whole of the segment at a byte and of those behind it, or of that one `only`.

        Returns where to go on behind damage, None at the end, and the objects of the segment that was read last.
        """
        place, has_begun = at, False
        header: RecordingHeader | None = None
        definitions = ReadDefinitions(known_definitions)
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
                    header = decode_header(record.payload)
                elif record.kind == DEFINITIONS:
                    definitions.add_payload(record.payload)
                elif header is None:
                    raise ValueError("a block without a header")
                else:
                    block = RecordedBlock(header, record.payload, definitions)
                    if block.walls:
                        self._yielded, self._last = self._yielded + len(block.walls), block.walls[-1]
                        yield block
            return None, definitions.known
        except BrokenRecordError as error:
            self._add_problem(error.at, str(error), torn=error.torn)
            place = error.at
        except _ODD as error:
            self._add_problem(place, f"is damaged: {error}")
        except OSError as error:
            raise self._unreadable(error) from None
        return None if only else self._next_segment(place), definitions.known

    def _next_segment(self, at: int) -> int | None:
        """Return where the next segment begins after damage, and add a problem."""
        try:
            start = next_segment(self._file, at, self._end)
        except OSError as error:
            raise self._unreadable(error) from None
        if start is not None and self.problems:
            self.problems[-1] += f"; read on from byte {start}"
        return start

    def _add_problem(self, at: int, problem: str, *, torn: bool = False, count: bool = True) -> None:
        """Add a problem, in the place of what the survey or an earlier reading said of it."""
        cause = " (its writer was stopped, or it was cut)" if torn else ""
        stem = text = f"{self._shown_path}: {problem} at byte {at} of {self._end}{cause}"
        if count:
            until = "" if self._last is None else f", until {utc(self._last)}"
            text += f"; {self._yielded} snapshots before are whole{until}"
        self.problems[:] = [earlier for earlier in self.problems if not earlier.startswith(stem)]
        if len(self.problems) < PROBLEMS:
            self.problems.append(text)

    def _first_header(self) -> RecordingHeader:
        self._file.seek(0)
        begin = self._file.read(len(START))
        if not begin:
            raise RecordingError(f"{self._shown_path}: is empty; a recording begins with its header")
        if not START.startswith(begin[: len(START) - 2]):
            raise RecordingError(f"{self._shown_path}: is not a recording of coldplate's")
        try:
            for record in records(self._file, 0, self._end):
                if record.kind not in (None, HEADER):
                    raise ValueError("has no header")
                if record.kind is not None:
                    return decode_header(record.payload)
            problem = "ends before its header"
        except (BrokenRecordError, ValueError) as error:
            problem = str(error)
        except OSError as error:
            raise self._unreadable(error) from None
        raise RecordingError(f"{self._shown_path}: {problem} at byte 0 of {self._end}; nothing of it can be read")

    def _unreadable(self, error: OSError) -> RecordingError:
        return RecordingError(f"{self._shown_path}: cannot be read: {error.strerror or error}")


def _add_to_spans(spans: list[SegmentSpan], record: FileRecord) -> None:
    if record.kind == HEADER:
        spans.append(SegmentSpan(record.at - len(START), decode_header(record.payload)))
    elif record.kind == BLOCK and spans:
        count, first, last = PREAMBLE.unpack_from(record.payload)
        span = spans[-1]
        if not span.count:
            span.first = first
        span.last = last
        span.count += count


def _open_file(path: Path) -> tuple[BinaryIO, int]:
    """Return the file and its length. Never waits for a writer of a pipe. Raises RecordingError."""
    shown_name = shown_path(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise RecordingError(f"{shown_name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise RecordingError(f"{shown_name}: is not a file; give a recording")
    return os.fdopen(descriptor, "rb"), status.st_size


def distinct_files(paths: Iterable[Path | str], report: Callable[[str], object] = lambda _: None) -> list[Path | str]:
    """Return the paths without those that lead to a file named before, which are reported.

    A path that leads nowhere stays: the caller fails to open it, and says why.
    """
    first: dict[tuple[int, int] | str, Path | str] = {}
    for path in paths:
        try:
            status = Path(path).stat()
            file: tuple[int, int] | str = (status.st_dev, status.st_ino)
        except (OSError, ValueError):
            file = str(path)
        if file in first:
            report(f"{shown_path(path)}: is the same file as {shown_path(first[file])}; it is read once")
        first.setdefault(file, path)
    return list(first.values())


@contextmanager
def open_recordings(
    paths: Iterable[Path | str], report: Callable[[str], object] = lambda _: None
) -> Iterator[list[Recording]]:
    """Hold the recordings that can be read open; report why the others cannot."""
    with ExitStack() as stack:
        recordings = []
        for path in paths:
            try:
                recordings.append(stack.enter_context(Recording(path)))
            except RecordingError as error:
                report(str(error))
        yield recordings


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
