"""Reads a recording block by block in columns, which are decoded when they are asked for.

Making every snapshot takes some 100 us each, most of it for values that a report does not look at.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate, chain, repeat
from math import isfinite
from typing import Any, Union

from agent.model import BackendReport, Layout
from agent.recording.file_records import VALUE, RecordingHeader, end_of_columns
from agent.recording.recording_reader import BlockOutline, Opened, Recording, track_width
from agent.recording.segment_definitions import ReadDefinitions

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
        self._known: dict[tuple[bytes, int], Sequence[Any]] = {}

    def keys(self, changes: bytes, height: int) -> Sequence[Any]:
        """For each place its index among the values of a track, or its slice if it changes there."""
        keys = self._known.get((changes, height))
        if keys is None:
            if len(self._known) >= self._REMEMBERED:
                self._known.clear()
            before = [0, *accumulate(changes)]
            still = len(changes) - before[-1]
            keys = self._known[changes, height] = [
                slice(still + before[place] * height, still + (before[place] + 1) * height)
                if changes[place]
                else place - before[place]
                for place in self.places
            ]
        return keys


class ColumnTrack:
    """The rows of one layout in a block.

    `ticks` are the places of the snapshots that have the layout among those of the block, None where all do.
    """

    __slots__ = ("_body", "_changes", "_first", "_height", "_rows", "after", "layout", "ticks")

    def __init__(self, layout: Layout, body: bytes, at: int, height: int) -> None:
        """`at` is the place of the body at which the track begins. Raises ValueError if it is no track."""
        self.layout = layout
        self._body, self._height = body, height
        width = len(layout)
        self._changes = body[at : at + width]
        self._first = at + width
        self.after = end_of_columns(body, at, width, height)
        """The place of the body behind the track."""
        self.ticks: Sequence[int] | None = None
        self._rows: Sequence[int] | None = None

    def show(self, ticks: Sequence[int] | None, fresh: str) -> None:
        """Say which snapshots have the layout, None for all, and mark those of them that have its next row.

        Raises ValueError where there are fewer rows.
        """
        rows = _rows(fresh)
        if (rows[-1] if rows else -1) >= self._height:
            raise ValueError("a track with fewer rows than are used")
        self.ticks, self._rows = ticks, None if len(rows) == self._height == rows[-1] + 1 else rows

    def columns(self, chosen: SelectedColumns) -> list[float | tuple[float, ...]]:
        """Return the values of each chosen series in the snapshots that have it; one number if it did not change in the
        block.

        Raises ValueError for a value that is not finite.
        """
        values = struct.unpack_from(f"<{(self.after - self._first) // VALUE}d", self._body, self._first)
        if not isfinite(sum(values)) and not all(map(isfinite, values)):
            raise ValueError("a value that is not finite")
        found: list[float | tuple[float, ...]] = list(map(values.__getitem__, chosen.keys(self._changes, self._height)))
        if self._rows is None:
            return found
        rows = self._rows
        return [each if isinstance(each, float) else tuple([each[row] for row in rows]) for each in found]


class ColumnBlock:
    """Some snapshots one after the other. `walls` and `monos` are their times in seconds, `header` is the segment's."""

    def __init__(self, header: RecordingHeader, payload: bytes, definitions: ReadDefinitions) -> None:
        """Read the payload. Raises ValueError, TypeError or LookupError for what makes no sense."""
        self.header = header
        self._definitions = definitions
        outline = BlockOutline(payload)
        _, self.monos, self.walls = list(zip(*outline.times, strict=True)) or [(), (), ()]
        self.tracks: list[ColumnTrack] = []
        self._lists: list[int] = []
        placed: dict[int, ColumnTrack] = {}
        at = outline.at
        for place, (kind, number, height) in enumerate(outline.tracks):
            if kind == "L":
                track = ColumnTrack(definitions.layouts[number], outline.body, at, height)
                placed[place], at = track, track.after
                self.tracks.append(track)
            else:
                self._lists.append(number)
                at = end_of_columns(outline.body, at, track_width(kind, number, definitions), height)
        _show(placed, outline)
        self.is_even = all(track.ticks is None for track in self.tracks)
        """Whether every snapshot has every layout, so that no series is in two of the tracks at different times."""

    def reports(self) -> Iterator[tuple[BackendReport, ...]]:
        """Return each list of reports that occurs in the block; their durations and calls are 0."""
        return map(self._definitions.reports, self._lists)


def _show(tracks: dict[int, ColumnTrack], outline: BlockOutline) -> None:
    """Note for each track which snapshots have it."""
    shapes = {shape for shape, _ in outline.ticks}
    if len(shapes) == 1:
        tracked = outline.shapes[shapes.pop()]
        for place, marks in zip(tracked, zip(*(fresh for _, fresh in outline.ticks), strict=True), strict=True):
            if place in tracks:
                tracks[place].show(None, "".join(marks))
        return
    ticks: dict[int, list[int]] = {place: [] for place in tracks}
    marked: dict[int, list[str]] = {place: [] for place in tracks}
    for tick, (shape, fresh) in enumerate(outline.ticks):
        for place, mark in zip(outline.shapes[shape], fresh, strict=True):
            if place in tracks:
                ticks[place].append(tick)
                marked[place].append(mark)
    for place, track in tracks.items():
        everywhere = len(ticks[place]) == len(outline.ticks)
        track.show(None if everywhere else ticks[place], "".join(marked[place]))


@lru_cache(maxsize=1024)
def _rows(fresh: str) -> Sequence[int]:
    """Return which row each snapshot has, of marks of those that have the next one."""
    if fresh[:1] == "0":
        raise ValueError("a snapshot that has the row before the first")
    return tuple(row - 1 for row in accumulate(map(int, fresh)))


def joined(tracks: Sequence[ColumnTrack], counts: Sequence[int], chosen: SelectedColumns) -> Iterator[Held]:
    """Yield the columns of blocks one after the other that all have this layout, as `ColumnTrack.columns`.

    `counts` are the numbers of the blocks' snapshots.
    """
    if len(tracks) == 1:
        yield from tracks[0].columns(chosen)
        return
    for parts in zip(*(track.columns(chosen) for track in tracks), strict=True):
        first = parts[0]
        if isinstance(first, float) and parts.count(first) == len(parts):
            yield first
        else:
            pieces = (
                repeat(part, count) if isinstance(part, float) else part
                for part, count in zip(parts, counts, strict=True)
            )
            yield tuple(chain.from_iterable(pieces))


def blocks(recording: Recording, segments: list[int] | None = None) -> Iterator[ColumnBlock]:
    """Return the blocks of a recording, or of those segments that begin at these bytes. As `Recording.recorded`."""
    return recording.pieces(_opened_block, segments)


def _opened_block(
    header: RecordingHeader, payload: bytes, definitions: ReadDefinitions
) -> Iterator[Opened[ColumnBlock]]:
    block = ColumnBlock(header, payload, definitions)
    if block.walls:
        yield len(block.walls), float(block.walls[-1]), block
