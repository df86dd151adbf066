"""Recordings as OpenMetrics 1.0.0 with timestamps, as `promtool tsdb create-blocks-from openmetrics` takes them.

OpenMetrics wants all samples of a family together, and a recording has them by time. So the recording is gone through
as often as it takes to hold no more than some samples at a time: a day of a node with 8 GPUs seven times.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TextIO

from agent.commands.export.selected_snapshots import SelectedSnapshots
from agent.lib.picking import picker
from agent.model import Labels, Layout, Series
from exporters.encoder import escape_label, group, labels_of, openmetrics_heads

SAMPLES = 32_000_000
"""Samples that are held at a time: 256 MiB."""


class _NodeSeries(NamedTuple):
    """A series of one node."""

    node: str
    series: Series


class _Piece:
    """The samples of the wanted series of one layout; the places of their times are the same for all."""

    def __init__(self, node: str, layout: Layout, wanted: set[_NodeSeries]) -> None:
        found = [
            (place, _NodeSeries(node, each))
            for place, each in enumerate(layout.series)
            if _NodeSeries(node, each) in wanted
        ]
        self.pick: Callable[[Sequence[float]], tuple[float, ...]] = picker([place for place, _ in found])
        self.times: array[int] = array("L")
        self.columns: dict[_NodeSeries, array[float]] = {line: array("d") for _, line in found}


def write(snapshots: SelectedSnapshots, targets: Callable[[str], Labels], out: TextIO, samples: int = SAMPLES) -> None:
    """Write all of it; `targets` gives the labels that a scrape adds to the series of a node. Raises RecordingError."""
    counts: dict[_NodeSeries, int] = {}
    times: list[float] = []
    for node, wall, frames in snapshots:
        times.append(wall)
        for layout, _ in frames:
            for series in layout.series:
                line = _NodeSeries(node, series)
                counts[line] = counts.get(line, 0) + 1
    stamps = [f" {wall:.3f}\n" for wall in times]
    families = _families(counts)
    rows = [lines[0].series.metric for lines in families]
    heads = dict(zip((row.name for row in rows), openmetrics_heads(rows), strict=True))
    for part in _parts(families, counts, samples):
        wanted = {line for lines in part for line in lines}
        pieces = _collect(snapshots, wanted)
        for lines in part:
            out.write(heads.pop(lines[0].series.metric.name, ""))
            for line in lines:
                _write_line(line, targets(line.node), pieces, stamps, out)
    out.write("# EOF\n")


def _families(lines: Iterable[_NodeSeries]) -> list[list[_NodeSeries]]:
    """The series by family, in the order of a page."""
    lines = list(lines)
    by_name: dict[str, list[_NodeSeries]] = {}
    for line in lines:
        by_name.setdefault(line.series.metric.name, []).append(line)
    order = group(list(dict.fromkeys(line.series for line in lines)))
    return [by_name[family.metric.name] for family in order]


def _parts(
    families: Sequence[Sequence[_NodeSeries]], counts: dict[_NodeSeries, int], samples: int
) -> Iterator[list[list[_NodeSeries]]]:
    """Families, and parts of them, that are written in one pass."""
    part: list[list[_NodeSeries]] = []
    room = samples
    for lines in families:
        part.append([])
        for line in lines:
            if counts[line] > room and room < samples:
                yield [each for each in part if each]
                part, room = [[]], samples
            part[-1].append(line)
            room -= counts[line]
    if part:
        yield part


def _collect(snapshots: SelectedSnapshots, wanted: set[_NodeSeries]) -> dict[_NodeSeries, list[_Piece]]:
    pieces: dict[tuple[str, Layout], _Piece] = {}
    for number, (node, _, frames) in enumerate(snapshots):
        for layout, values in frames:
            piece = pieces.get((node, layout))
            if piece is None:
                piece = pieces[node, layout] = _Piece(node, layout, wanted)
            if piece.columns:
                piece.times.append(number)
                for column, value in zip(piece.columns.values(), piece.pick(values), strict=True):
                    column.append(value)
    found: dict[_NodeSeries, list[_Piece]] = {}
    for piece in pieces.values():
        for line in piece.columns:
            found.setdefault(line, []).append(piece)
    return found


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
