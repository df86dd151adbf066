"""Write selected series of recordings as OpenMetrics, CSV or lines of JSON.

OpenMetrics wants all samples of a family together, and a recording has them by time. So the recording is read as often
as it takes to hold no more than some samples at a time: a day of a node with 8 GPUs seven times.
"""

import csv
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple, TextIO

from msgspec import Struct

from agent.lib.layout_columns import picker
from agent.model import Frame, Labels, Layout, Series
from agent.recording.recording_reader import Recording, by_time
from exporters.encoder import escape_label, group, labels_of, openmetrics_heads

_Part = tuple[Layout, Callable[[Sequence[float]], tuple[float, ...]]]
"""The selected part of a layout, and the function that picks its values from those of a frame."""


class ExportSelection(Struct, frozen=True):
    """Patterns of metric names, wall seconds, and seconds between two snapshots of a node (0: all there are)."""

    metrics: tuple[str, ...] = ()
    start: float = float("-inf")
    end: float = float("inf")
    step: float = 0.0

    def wants(self, metric: str) -> bool:
        return not self.metrics or any(fnmatchcase(metric, pattern) for pattern in self.metrics)


class SelectedSnapshot(NamedTuple):
    """What is exported of one snapshot, each series once; `wall` is in whole milliseconds.

    Layouts stay the same objects.
    """

    node: str
    wall: float
    frames: tuple[Frame, ...]


class SelectedSnapshots:
    """The snapshots of recordings in the order of time; may be gone through several times.

    `stepped` is called for each snapshot, selected or not, with its wall second.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        selection: ExportSelection,
        stepped: Callable[[float], object] = lambda _: None,
    ) -> None:
        self._recordings = recordings
        self._selection = selection
        self._stepped = stepped
        self._pruned: dict[tuple[Layout, tuple[int, ...]], _Part] = {}
        self._parts = lru_cache(maxsize=64)(self._select)

    def __iter__(self) -> Iterator[SelectedSnapshot]:
        """Read the snapshots. Raises RecordingError if the disk does not give a recording."""
        selection = self._selection
        last: dict[str, float] = {}
        for header, snapshot in by_time(self._recordings):
            wall = round(snapshot.at.wall, 3)
            self._stepped(wall)
            if not selection.start <= wall <= selection.end:
                continue
            slot = wall if selection.step == 0 else wall // selection.step
            if slot > last.get(header.node, float("-inf")):  # what two recordings have comes twice
                last[header.node] = slot
                yield SelectedSnapshot(header.node, wall, tuple(self._select_frames(snapshot.frames)))

    @property
    def has_snapshots(self) -> bool:
        """Whether any snapshot was in the selected time, in all that was read so far."""
        return bool(self._pruned)

    @property
    def is_empty(self) -> bool:
        """Whether no series was selected, in all that was read so far."""
        return not any(len(layout) for layout, _ in self._pruned.values())

    def unmatched_patterns(self) -> list[str]:
        """Return the patterns of metric names that selected nothing, in all that was read so far."""
        names = {series.metric.name for layout, _ in self._pruned.values() for series in layout.series}
        return [pattern for pattern in self._selection.metrics if not any(fnmatchcase(name, pattern) for name in names)]

    def _select_frames(self, frames: Sequence[Frame]) -> Iterator[Frame]:
        parts = self._parts(tuple(frame.layout for frame in frames))
        for frame, (layout, pick) in zip(frames, parts, strict=True):
            yield frame if layout is frame.layout else Frame(layout, pick(frame.values))

    def _select(self, layouts: tuple[Layout, ...]) -> list[_Part]:
        """Return the selected part of each frame of a snapshot; of a repeated series the first place counts."""
        selected: set[Series] = set()
        parts = []
        for layout in layouts:
            kept = []
            for place, series in enumerate(layout.series):
                if series not in selected and self._selection.wants(series.metric.name):
                    selected.add(series)
                    kept.append(place)
            key = (layout, tuple(kept))
            if key not in self._pruned:
                is_whole = len(kept) == len(layout)
                part = layout if is_whole else Layout(tuple(layout.series[place] for place in kept))
                self._pruned[key] = part, picker(kept)
            parts.append(self._pruned[key])
        return parts


SAMPLES = 32_000_000
"""Samples that are held at a time: 256 MiB."""


class _NodeSeries(NamedTuple):
    node: str
    series: Series


class _Piece:
    """The samples of the selected series of one layout; the places of their times are the same for all."""

    def __init__(self, node: str, layout: Layout, selected: set[_NodeSeries]) -> None:
        places = [
            (place, _NodeSeries(node, series))
            for place, series in enumerate(layout.series)
            if _NodeSeries(node, series) in selected
        ]
        self.pick: Callable[[Sequence[float]], tuple[float, ...]] = picker([place for place, _ in places])
        self.times: array[int] = array("L")
        self.columns: dict[_NodeSeries, array[float]] = {line: array("d") for _, line in places}


def write_openmetrics(snapshots: SelectedSnapshots, targets: Callable[[str], Labels], out: TextIO) -> None:
    """Write all of it; `targets` gives the labels that a scrape adds to the series of a node. Raises RecordingError."""
    counts: Counter[_NodeSeries] = Counter()
    times: list[float] = []
    for node, wall, frames in snapshots:
        times.append(wall)
        for layout, _ in frames:
            counts.update(_NodeSeries(node, series) for series in layout.series)
    stamps = [f" {wall:.3f}\n" for wall in times]
    lines = _in_order(counts)
    rows = list(dict.fromkeys(line.series.metric for line in lines))
    heads = dict(zip((row.name for row in rows), openmetrics_heads(rows), strict=True))
    for part in _parts(lines, counts):
        pieces = _collect(snapshots, set(part))
        for line in part:
            out.write(heads.pop(line.series.metric.name, ""))
            _write_line(line, targets(line.node), pieces, stamps, out)
    out.write("# EOF\n")


def _in_order(lines: Iterable[_NodeSeries]) -> list[_NodeSeries]:
    """Return the series family by family, in the order of a page."""
    by_name: dict[str, list[_NodeSeries]] = {}
    for line in lines:
        by_name.setdefault(line.series.metric.name, []).append(line)
    families = group(list(dict.fromkeys(line.series for lines in by_name.values() for line in lines)))
    return [line for family in families for line in by_name[family.metric.name]]


def _parts(lines: Sequence[_NodeSeries], counts: dict[_NodeSeries, int]) -> Iterator[list[_NodeSeries]]:
    """Yield the series that are written in one pass, as far as their samples can be held."""
    part: list[_NodeSeries] = []
    room = SAMPLES
    for line in lines:
        if part and counts[line] > room:
            yield part
            part, room = [], SAMPLES
        part.append(line)
        room -= counts[line]
    if part:
        yield part


def _collect(snapshots: SelectedSnapshots, selected: set[_NodeSeries]) -> dict[_NodeSeries, list[_Piece]]:
    pieces: dict[tuple[str, Layout], _Piece] = {}
    for number, (node, _, frames) in enumerate(snapshots):
        for layout, values in frames:
            piece = pieces.get((node, layout))
            if piece is None:
                piece = pieces[node, layout] = _Piece(node, layout, selected)
            if piece.columns:
                piece.times.append(number)
                for column, value in zip(piece.columns.values(), piece.pick(values), strict=True):
                    column.append(value)
    by_series: dict[_NodeSeries, list[_Piece]] = {}
    for piece in pieces.values():
        for line in piece.columns:
            by_series.setdefault(line, []).append(piece)
    return by_series


def _write_line(
    line: _NodeSeries, target: Labels, pieces: dict[_NodeSeries, list[_Piece]], stamps: Sequence[str], out: TextIO
) -> None:
    labels = {**dict(labels_of(line.series)), **dict(target)}
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels.items())
    start = f"{line.series.metric.name}{{{pairs}}} " if pairs else f"{line.series.metric.name} "
    samples: Iterable[tuple[int, float]] = chain.from_iterable(
        zip(piece.times, piece.columns[line], strict=True) for piece in pieces[line]
    )
    if len(pieces[line]) > 1:
        samples = sorted(samples)
    out.writelines([f"{start}{value!r}{stamps[number]}" for number, value in samples])


def write_long(snapshots: SelectedSnapshots, out: TextIO) -> None:
    """Write CSV: a row for each value, its labels in Prometheus's notation without braces. Raises RecordingError."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("time", "node", "metric", "labels", "value"))
    names = cache(lambda layout: [(series.metric.name, _labels(series)) for series in layout.series])
    for node, wall, frames in snapshots:
        for layout, values in frames:
            pairs = zip(names(layout), values, strict=True)
            writer.writerows((_moment(wall), node, *name, value) for name, value in pairs)


def write_wide(snapshots: SelectedSnapshots, out: TextIO) -> None:
    """Write CSV with a row for each snapshot and a column for each series; a cell is empty where there was no value.

    The recordings are gone through twice. Raises RecordingError.
    """
    columns: dict[Series, int] = {}
    for snapshot in snapshots:
        for frame in snapshot.frames:
            for series in frame.layout.series:
                columns.setdefault(series, len(columns))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", "node", *map(_column_name, columns)])
    places = cache(lambda layout: [columns[series] for series in layout.series])
    for node, wall, frames in snapshots:
        row: list[object] = [""] * len(columns)
        for layout, values in frames:
            for place, value in zip(places(layout), values, strict=True):
                row[place] = value
        writer.writerow([_moment(wall), node, *row])


def write_json_lines(snapshots: SelectedSnapshots, out: TextIO) -> None:
    """Write a JSON object in a line for each value; `time` is in seconds since the epoch. Raises RecordingError."""
    middles = cache(lambda node, layout: [_json_middle(node, series) for series in layout.series])
    for node, wall, frames in snapshots:
        start = f'{{"time":{wall:.3f},'
        for layout, values in frames:
            pairs = zip(middles(node, layout), values, strict=True)
            out.writelines([f"{start}{middle}{value!r}}}\n" for middle, value in pairs])


def _json_middle(node: str, series: Series) -> str:
    parts = {"node": node, "metric": series.metric.name, "labels": dict(labels_of(series))}
    return json.dumps(parts, separators=(",", ":"))[1:-1] + ',"value":'


def _labels(series: Series) -> str:
    return ",".join(f'{name}="{escape_label(value)}"' for name, value in labels_of(series))


def _column_name(series: Series) -> str:
    labels = _labels(series)
    return f"{series.metric.name}{{{labels}}}" if labels else series.metric.name


@lru_cache(maxsize=1)  # hundreds of rows have the same
def _moment(wall: float) -> str:
    """Return wall seconds in ISO 8601."""
    return datetime.fromtimestamp(wall, timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
