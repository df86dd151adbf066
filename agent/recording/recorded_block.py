"""A block of a recording, whose snapshots are read one by one, or in columns; both are made when they are asked for.

Making every snapshot takes some 100 us each, most of it for values that a report does not look at.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, groupby, repeat
from typing import Any, NamedTuple, Union

from agent.model import EMPTY_LAYOUT, BackendReport, Frame, Instant, Layout, Snapshot
from agent.recording.file_records import PackedColumns, RecordingHeader, inflate
from agent.recording.recording_file import PREAMBLE
from agent.recording.segment_definitions import ReadDefinitions

BLOCK_BYTES = 32 * 2**20
"""Bytes of a block when it is decompressed: a writer packs one when it has eight mebibytes."""
OUTLINE_BYTES = 4 * 2**20
"""Bytes of the part of a block that says which rows belong to which snapshot."""
TICKS = 100_000
"""Snapshots of a block."""


class RecordedSnapshot(NamedTuple):
    """A snapshot, and where it comes from."""

    header: RecordingHeader
    snapshot: Snapshot


Held = Union[float, Sequence[float]]
"""The values of a series in some snapshots; one number where all have the same."""


def written_out(held: Held, count: int) -> Sequence[float]:
    """Return the value in each of `count` snapshots."""
    return [held] * count if isinstance(held, float) else held


class SelectedColumns:
    """The places of the series of a layout that a reader wants, and where their values are in its tracks."""

    _REMEMBERED = 64

    def __init__(self, places: Sequence[int]) -> None:
        self.places = places
        self._keys: dict[tuple[bytes, int], Sequence[Any]] = {}

    def keys(self, changes: bytes, height: int) -> Sequence[Any]:
        """Return for each place its index among the values of a track, or its slice if it changes there."""
        keys = self._keys.get((changes, height))
        if keys is None:
            if len(self._keys) >= self._REMEMBERED:
                self._keys.clear()
            before = [0, *accumulate(changes)]
            still = len(changes) - before[-1]
            keys = self._keys[changes, height] = [
                slice(still + before[place] * height, still + (before[place] + 1) * height)
                if changes[place]
                else place - before[place]
                for place in self.places
            ]
        return keys


class BlockTrack:
    """The rows of one layout, or of the list of reports of this number, in a block.

    `ticks` are the places of the snapshots that have it among those of the block, None where all do.
    """

    __slots__ = ("_rows", "columns", "layout", "reports", "ticks")

    def __init__(self, layout: Layout, reports: int | None, columns: PackedColumns) -> None:
        self.layout, self.reports, self.columns = layout, reports, columns
        self.ticks: Sequence[int] | None = ()
        self._rows: Sequence[int] = ()

    def place(self, ticks: Sequence[int] | None, fresh: str) -> None:
        """Note which snapshots have it, and those of them that have its next row. Raises ValueError if it has fewer."""
        self.ticks, self._rows = ticks, _rows(fresh)
        if self._rows and self._rows[-1] >= self.columns.height:
            raise ValueError("a track with fewer rows than are used")

    def values(self, chosen: SelectedColumns) -> list[float | tuple[float, ...]]:
        """Return the values of each chosen series in the snapshots that have it; one number if it never changed."""
        columns = self.columns.select(chosen.keys(self.columns.changes, self.columns.height))
        rows = self._rows
        if len(rows) == self.columns.height == rows[-1] + 1:
            return columns
        return [column if isinstance(column, float) else tuple([column[row] for row in rows]) for column in columns]


class RecordedBlock:
    """Some snapshots one after the other. `walls` and `monos` are their times in seconds, `header` is the segment's."""

    def __init__(self, header: RecordingHeader, payload: bytes, definitions: ReadDefinitions) -> None:
        """Read the payload. Raises ValueError, TypeError, LookupError or struct.error for what makes no sense."""
        self.header, self._definitions = header, definitions
        count, _, _ = PREAMBLE.unpack_from(payload)
        if count > TICKS:
            raise ValueError(f"more than {TICKS} snapshots in a block")
        body = inflate(payload[PREAMBLE.size :], BLOCK_BYTES)
        (length,) = struct.unpack_from("<I", body)
        if length > OUTLINE_BYTES:
            raise ValueError(f"an outline of more than {OUTLINE_BYTES} bytes")
        outline = json.loads(body[4 : 4 + length])
        self._shapes: list[list[int]] = outline["shapes"]
        self._ticks: list[tuple[int, str]] = outline["ticks"]
        if len(self._ticks) != count:
            raise ValueError("a block with another number of snapshots than it says")
        columns = PackedColumns(body, 4 + length, 3, count)
        self._sequences, self.monos, self.walls = list(zip(*columns.rows(), strict=True)) or [(), (), ()]
        self._tracks: list[BlockTrack] = []
        for kind, number, height in outline["tracks"]:
            if not 0 < height <= TICKS:
                raise ValueError(f"a track with no rows or more than {TICKS}")
            is_layout = kind == "L"
            layout = definitions.layouts[number] if is_layout else EMPTY_LAYOUT
            width = len(layout) if is_layout else 2 * len(definitions.reports(number))
            columns = PackedColumns(body, columns.after, width, height)
            self._tracks.append(BlockTrack(layout, None if is_layout else number, columns))
        self._place_tracks()
        self.tracks = [track for track in self._tracks if track.reports is None and track.ticks != ()]
        """The layouts that any snapshot has."""
        self.is_even = all(track.ticks is None for track in self.tracks)
        """Whether every snapshot has every layout, so that no series is in two of the tracks at different times."""

    def _place_tracks(self) -> None:
        ticks: list[list[int]] = [[] for _ in self._tracks]
        fresh: list[list[str]] = [[] for _ in self._tracks]
        for shape, ticks_of_shape in groupby(enumerate(self._ticks), key=lambda pair: pair[1][0]):
            shape_ticks, marks = zip(*((tick, marks) for tick, (_, marks) in ticks_of_shape), strict=True)
            for place, more in zip(self._shapes[shape], zip(*marks, strict=True), strict=True):
                if place < 0:
                    raise ValueError("not a number of a track")
                ticks[place] += shape_ticks
                fresh[place] += more
        for track, its_ticks, its_marks in zip(self._tracks, ticks, fresh, strict=True):
            if its_ticks:
                track.place(None if len(its_ticks) == len(self._ticks) else its_ticks, "".join(its_marks))

    @property
    def most_series(self) -> int:
        """How many series the largest snapshot has."""
        widths = [len(track.layout) for track in self._tracks]
        return max(sum(widths[place] for place in self._shapes[shape]) for shape in {shape for shape, _ in self._ticks})

    def snapshots(self) -> Iterator[RecordedSnapshot]:
        """Yield the snapshots, each made when it is asked for."""
        rows = [track.columns.rows() for track in self._tracks]
        last: dict[int, Frame | tuple[BackendReport, ...]] = {}
        times = zip(self._sequences, self.monos, self.walls, self._ticks, strict=True)
        for sequence, mono, wall, (shape, marks) in times:
            frames: list[Frame] = []
            reports: tuple[BackendReport, ...] = ()
            for place, mark in zip(self._shapes[shape], marks, strict=True):
                if mark == "1":
                    last[place] = self._item_of_row(self._tracks[place], next(rows[place]))
                item = last[place]
                if isinstance(item, Frame):
                    frames.append(item)
                else:
                    reports = item
            yield RecordedSnapshot(self.header, Snapshot(int(sequence), Instant(mono, wall), tuple(frames), reports))

    def _item_of_row(self, track: BlockTrack, row: tuple[float, ...]) -> Frame | tuple[BackendReport, ...]:
        if track.reports is None:
            return Frame(track.layout, row)
        pairs = zip(self._definitions.reports(track.reports), row[::2], row[1::2], strict=True)
        return tuple(report._replace(duration=duration, calls=int(calls)) for report, duration, calls in pairs)

    def reports(self) -> Iterator[tuple[BackendReport, ...]]:
        """Return each list of reports that occurs in the block; their durations and calls are 0."""
        return (self._definitions.reports(track.reports) for track in self._tracks if track.reports is not None)


@lru_cache(maxsize=1024)
def _rows(fresh: str) -> Sequence[int]:
    """Return which row each snapshot has, of marks of those that have the next one."""
    if fresh.startswith("0"):
        raise ValueError("a snapshot that has the row before the first")
    if fresh.strip("01"):
        raise ValueError("a mark that is neither 0 nor 1")
    return tuple(row - 1 for row in accumulate(map(int, fresh)))


def join_columns(tracks: Sequence[BlockTrack], counts: Sequence[int], chosen: SelectedColumns) -> Iterator[Held]:
    """Yield the columns of blocks one after the other that all have this layout, as `BlockTrack.values`.

    `counts` are the numbers of the blocks' snapshots.
    """
    if len(tracks) == 1:
        yield from tracks[0].values(chosen)
        return
    for parts in zip(*(track.values(chosen) for track in tracks), strict=True):
        first = parts[0]
        if isinstance(first, float) and parts.count(first) == len(parts):
            yield first
        else:
            pieces = (
                repeat(part, count) if isinstance(part, float) else part
                for part, count in zip(parts, counts, strict=True)
            )
            yield tuple(chain.from_iterable(pieces))
