"""Packs snapshots into the bytes of one segment, for a file as for the flight recorder. It opens no file."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from agent.model import BackendReport, Layout, Snapshot
from agent.recording import columns
from agent.recording.definitions import LEVEL, WrittenDefinitions
from agent.recording.file_records import BLOCK, DEFINITIONS, HEADER, START, sealed
from agent.recording.provenance import Provenance, encoded
from agent.recording.redaction import Redaction

PREAMBLE = struct.Struct("<Idd")
"""The number of a block's snapshots and the wall seconds of the first and the last: not compressed, to be skimmed."""
FULL = 1_000_000
"""Values in a block after which it is to be packed, however short the time: eight mebibytes in memory."""

_Row = Sequence[float]


class _Track:
    """The rows of one layout, or of one list of reports, in a block."""

    def __init__(self, kind: str, number: int) -> None:
        self.kind = kind
        self.number = number
        self.rows: list[_Row] = []


class SegmentPacker:
    """One segment. Call `begin` once, `add` for each snapshot, and `pack` for what goes to the file."""

    def __init__(self, header: Provenance, redaction: Redaction | None = None) -> None:
        self._header = redaction.header(header) if redaction else header
        self._definitions = WrittenDefinitions(redaction)
        self._clear()

    def begin(self) -> bytes:
        """The segment's first bytes."""
        return START + sealed(HEADER, encoded(self._header))

    @property
    def plenty(self) -> bool:
        """Whether the segment should be followed by another before its tables get large."""
        return self._definitions.plenty

    @property
    def waiting(self) -> int:
        """Snapshots that are not packed yet."""
        return len(self._times)

    @property
    def full(self) -> bool:
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
                self._enter(self._layout(layout), values, shape, fresh)
        if snapshot.reports:
            numbers = [number for each in snapshot.reports for number in (each.duration, each.calls)]
            self._enter(self._reports(snapshot.reports), numbers, shape, fresh)
        known = self._shapes.setdefault(tuple(shape), len(self._shapes))
        self._ticks.append([known, "".join(fresh)])

    def pack(self) -> bytes:
        """The records of what was added since the last call; empty if nothing was."""
        if not self._times:
            return b""
        definitions = self._definitions.take()
        before = sealed(DEFINITIONS, definitions) if definitions else b""
        tracks = self._tracks
        document = {
            "tracks": [[track.kind, track.number, len(track.rows)] for track in tracks],
            "shapes": [list(shape) for shape in self._shapes],
            "ticks": self._ticks,
        }
        text = json.dumps(document, separators=(",", ":")).encode()
        body = [struct.pack("<I", len(text)), text, columns.packed(self._times)]
        body += [columns.packed(track.rows) for track in tracks]
        preamble = PREAMBLE.pack(len(self._times), self._times[0][2], self._times[-1][2])
        block = sealed(BLOCK, preamble + zlib.compress(b"".join(body), LEVEL))
        self._clear()
        return before + block

    def _clear(self) -> None:
        self._times: list[tuple[float, float, float]] = []
        self._tracks: list[_Track] = []
        self._places: dict[object, int] = {}
        self._shapes: dict[tuple[int, ...], int] = {}
        self._ticks: list[list[Any]] = []
        self._cells = 0

    def _enter(self, place: int, values: _Row, shape: list[int], fresh: list[str]) -> None:
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
        self._tracks.append(_Track(kind, number))
        return place
