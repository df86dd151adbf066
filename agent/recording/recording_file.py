"""Write a recording: pack snapshots into segments, and append whole records to a new file.

A recording is readable wherever its writer ends. The flight recorder uses the packer, which opens no file.
"""

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from agent.lib.wording import shown_path
from agent.model import BackendReport, Instant, Layout, Snapshot
from agent.recording.file_records import (
    BLOCK,
    DEFINITIONS,
    HEADER,
    START,
    RecordingError,
    RecordingHeader,
    encode_header,
    encode_record,
    pack_columns,
)
from agent.recording.redaction import Redaction
from agent.recording.segment_definitions import LEVEL, WrittenDefinitions

PREAMBLE = struct.Struct("<Idd")
"""The number of a block's snapshots and the wall seconds of the first and the last: not compressed, to be skimmed."""
FULL = 1_000_000
"""Values in a block after which it is to be packed, however short the time: eight mebibytes in memory."""

_Row = Sequence[float]


class _PackerTrack(NamedTuple):
    """The rows of one layout, or of one list of reports, in a block."""

    kind: str
    number: int
    rows: list[_Row]


class SegmentPacker:
    """One segment. Call `begin` once, `add` for each snapshot, and `pack` for what goes to the file."""

    def __init__(self, header: RecordingHeader, redaction: Redaction | None = None) -> None:
        self._header = redaction.header(header) if redaction else header
        self._definitions = WrittenDefinitions(redaction)
        self._clear()

    def header_record(self) -> bytes:
        return START + encode_record(HEADER, encode_header(self._header))

    @property
    def is_large(self) -> bool:
        """Whether the segment should be followed by another before its tables get large."""
        return self._definitions.is_large

    @property
    def waiting(self) -> int:
        """Snapshots that are not packed yet."""
        return len(self._times)

    @property
    def is_full(self) -> bool:
        """Whether the block should be packed before it gets large."""
        return self._cells >= FULL

    @property
    def since(self) -> float | None:
        """The monotonic second of the first snapshot that is not packed yet."""
        return self._times[0][1] if self._times else None

    def add(self, snapshot: Snapshot) -> None:
        """Take in a snapshot. Its frames are kept as they are until they are packed."""
        self._times.append((snapshot.sequence, snapshot.at.mono, snapshot.at.wall))
        shape: list[int] = []
        fresh: list[str] = []
        for layout, values in snapshot.frames:
            if values:
                self._add_row(self._layout(layout), values, shape, fresh)
        if snapshot.reports:
            numbers = [number for report in snapshot.reports for number in (report.duration, report.calls)]
            self._add_row(self._reports(snapshot.reports), numbers, shape, fresh)
        shape_number = self._shapes.setdefault(tuple(shape), len(self._shapes))
        self._ticks.append([shape_number, "".join(fresh)])

    def pack(self) -> bytes:
        """Return the records of what was added since the last call; empty if nothing was."""
        if not self._times:
            return b""
        definitions = self._definitions.drain()
        before = encode_record(DEFINITIONS, definitions) if definitions else b""
        tracks = self._tracks
        document = {
            "tracks": [[track.kind, track.number, len(track.rows)] for track in tracks],
            "shapes": [list(shape) for shape in self._shapes],
            "ticks": self._ticks,
        }
        text = json.dumps(document, separators=(",", ":")).encode()
        body = [struct.pack("<I", len(text)), text, pack_columns(self._times)]
        body += [pack_columns(track.rows) for track in tracks]
        preamble = PREAMBLE.pack(len(self._times), self._times[0][2], self._times[-1][2])
        block = encode_record(BLOCK, preamble + zlib.compress(b"".join(body), LEVEL))
        self._clear()
        return before + block

    def _clear(self) -> None:
        self._times: list[tuple[float, float, float]] = []
        self._tracks: list[_PackerTrack] = []
        self._places: dict[object, int] = {}
        self._shapes: dict[tuple[int, ...], int] = {}
        self._ticks: list[list[Any]] = []
        self._cells = 0

    def _add_row(self, place: int, values: _Row, shape: list[int], fresh: list[str]) -> None:
        """Note a row of a track, unless it is the very one of the snapshot before, as those of the slow lanes are."""
        rows = self._tracks[place].rows
        is_fresh = not rows or rows[-1] is not values
        if is_fresh:
            rows.append(values)
            self._cells += len(values)
        shape.append(place)
        fresh.append("1" if is_fresh else "0")

    def _layout(self, layout: Layout) -> int:
        place = self._places.get(layout)
        return self._track(layout, "L", self._definitions.layout(layout)) if place is None else place

    def _reports(self, reports: Sequence[BackendReport]) -> int:
        number = self._definitions.reports(reports)
        place = self._places.get(number)
        return self._track(number, "R", number) if place is None else place

    def _track(self, key: object, kind: str, number: int) -> int:
        place = self._places[key] = len(self._tracks)
        self._tracks.append(_PackerTrack(kind, number, []))
        return place


BLOCK_SECONDS = 9.0
"""Most seconds of snapshots in a block: with one a second, nothing waits longer than ten for being written."""
EARLY_SHARE, LEAST_BLOCK_SECONDS = 0.2, 1.0
"""At first a block is this share of the recording so far, or this long: of a short one that is killed, most is left."""
SEGMENT_SECONDS = 600.0
"""Seconds after which another segment begins: damage to a file costs no more than this."""
SUFFIX = ".coldplate"


class RecordingFile:
    """A recording that is being written. After an error it takes nothing more, and what was written stays."""

    def __init__(self, path: Path, header: RecordingHeader, redaction: Redaction | None = None) -> None:
        """Create the file. Raises RecordingError where there is one of that name, or none can be made."""
        self.path = path
        self.snapshots = 0
        """Those in the file; what waits for its block is not counted."""
        self.bytes = 0
        self._header, self._redaction = header, redaction
        self._packer = SegmentPacker(header, redaction)
        self._began = self._segment_began = header.mono
        self._file = create_file(path)
        self._broken = False
        self._append(self._packer.header_record())

    def add(self, snapshot: Snapshot) -> None:
        """Take in a snapshot, and write if it is time. Raises RecordingError if the disk is full, say."""
        if self._broken:
            return
        is_over = self._packer.is_large or snapshot.at.mono - self._segment_began >= SEGMENT_SECONDS
        if self._packer.waiting == 0 and is_over:
            self._begin_another(snapshot.at)
        try:
            self._packer.add(snapshot)
            since, mono = self._packer.since, snapshot.at.mono
            seconds = min(BLOCK_SECONDS, max(LEAST_BLOCK_SECONDS, EARLY_SHARE * (mono - self._began)))
            if self._packer.is_full or (since is not None and mono - since >= seconds):
                self.flush()
        except RecordingError:
            raise
        except Exception:  # what the packer has half taken in would spoil the rest of the segment
            self._begin_another(snapshot.at)
            raise

    def flush(self) -> None:
        """Write what waits. Raises RecordingError."""
        waiting = self._packer.waiting
        if waiting and not self._broken:
            self._append(self._packer.pack())
            self.snapshots += waiting

    def continue_as(self, header: RecordingHeader, redaction: Redaction | None) -> None:
        """Go on with what comes from elsewhere, in a segment of its own. Raises RecordingError."""
        self.flush()
        self._header, self._redaction = header, redaction
        self._begin_another(Instant(header.mono, header.wall))

    def close(self) -> None:
        """Write what waits, and have it outlast a power failure. Raises RecordingError."""
        try:
            self.flush()
            if not self._broken:
                with contextlib.suppress(OSError):  # a pipe or an odd filesystem: nothing needs it to be right
                    os.fsync(self._file)
        finally:
            if self._file >= 0:
                os.close(self._file)
            self._file, self._broken = -1, True

    def _begin_another(self, at: Instant) -> None:
        self._packer = SegmentPacker(replace(self._header, wall=at.wall, mono=at.mono), self._redaction)
        self._segment_began = at.mono
        self._append(self._packer.header_record())

    def _append(self, data: bytes) -> None:
        """Write all of it, or nothing: a half record at the end would hide what may be written once there is room."""
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            self._broken = True
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.bytes)
            raise RecordingError(
                f"{shown_path(self.path)}: cannot be written any more: {error.strerror}; "
                f"the {self.snapshots} snapshots before are whole"
            ) from None
        self.bytes += len(data)


def create_file(path: Path) -> int:
    """Return the descriptor of a new file. Raises RecordingError where there is one of that name."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        raise RecordingError(f"{shown_path(path)}: exists already; remove it, or give another name") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordingError(
            f"{shown_path(path)}: cannot be created: {reason}; name a file in a folder that you may write to"
        ) from None
