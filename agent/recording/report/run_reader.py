"""Read recordings in one pass and in bounded memory, and gather the facts of a report node by node."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from math import isfinite
from typing import NamedTuple, Union

from agent.model import BackendReport, Layout, Series
from agent.recording.file_records import RecordingError, RecordingHeader
from agent.recording.recorded_block import Held, RecordedBlock, SelectedColumns, join_columns, written_out
from agent.recording.recording_reader import Recording, SegmentSpan
from agent.recording.report.report_series import figure_of, signal_of
from agent.recording.report.run_facts import NodeFacts, RecordedRun
from agent.recording.report.series_statistics import PARTS, SeriesStatistic, TimeGrid, grid_over, range_after

TOGETHER = 256
"""Snapshots that are taken in together, where nothing changes between their blocks: each figure is called for once."""
LARGEST = 1e24
"""A number that no gauge and no counter of a device reaches; columns with such are left out."""
MOST_SERIES = 50_000
"""Series of one node of which something is kept: five times those of the largest node."""
_HEADERS = 100
"""Headers of one node that are kept."""
_LONGEST_INTERVAL_SECONDS = 3600.0

Progress = Callable[[float], None]
"""Called with the share of the work that is done, from 0 to 1, now and then."""
_Column = tuple[SeriesStatistic, Union[Sequence[int], None], Held]


class _LayoutPlan(NamedTuple):
    """The selected columns of a layout, and the statistics of each, in the same order."""

    chosen: SelectedColumns
    figures: Sequence[Sequence[SeriesStatistic]]


def read_run(recordings: Sequence[Recording], progress: Progress = lambda _: None) -> RecordedRun:
    """Return what these recordings say. Raises RecordingError if there is no snapshot in them."""
    pieces = [
        (recording, span)
        for recording in recordings
        for span in recording.survey()
        if isfinite(span.first) and isfinite(span.last)
    ]
    if not pieces:
        names = ", ".join(str(recording.path) for recording in recordings)
        reasons = "".join(f"; {problem}" for recording in recordings for problem in recording.problems)
        raise RecordingError(f"{names}: there is no snapshot to report on{reasons}")
    pieces.sort(key=lambda piece: (piece[1].header.node, piece[1].first, piece[1].at))
    spans = [span for _, span in pieces]
    interval = max(interval_of(span.header) for span in spans)
    first, last = min(span.first for span in spans), max(span.last for span in spans)
    count = len({span.header.node for span in spans})
    grid = grid_over(first, last, interval, max(60, PARTS * 4 // max(count, 4)))
    whole, so_far = sum(span.count for span in spans), 0

    def advance(snapshots: int) -> None:
        nonlocal so_far
        so_far += snapshots
        progress(min(so_far / whole, 1.0))

    readers = []
    for name, pieces_of_node in groupby(pieces, key=lambda piece: piece[1].header.node):
        node_pieces = list(pieces_of_node)
        readers.append(_NodeReader(name, grid, sum(span.count for _, span in node_pieces)))
        readers[-1].read(node_pieces, advance)
    problems = [problem for recording in recordings for problem in recording.problems]
    nodes = [reader.facts for reader in readers if reader.facts.snapshots]
    if not nodes:
        raise RecordingError("; ".join(problems) or "there is no snapshot to report on")
    overlaps = [overlap for reader in readers for overlap in reader.overlaps]
    return RecordedRun(nodes, grid, interval, min(node.first for node in nodes), max(node.last for node in nodes),
                       [str(recording.path) for recording in recordings], problems + overlaps)  # fmt: skip


def interval_of(header: RecordingHeader) -> float:
    """Return seconds between two snapshots; 1 where the header says what cannot be."""
    return header.interval if 0 < header.interval <= _LONGEST_INTERVAL_SECONDS else 1.0


def _batches(blocks: Iterable[RecordedBlock]) -> Iterator[list[RecordedBlock]]:
    """Yield blocks one after the other that can be taken in together: every snapshot has the same layouts."""
    batch: list[RecordedBlock] = []
    for block in blocks:
        if batch and not (
            block.is_even
            and batch[-1].is_even
            and block.header == batch[-1].header
            and [track.layout for track in block.tracks] == [track.layout for track in batch[-1].tracks]
            and sum(len(batched.walls) for batched in batch) < TOGETHER
        ):
            yield batch
            batch = []
        batch.append(block)
    if batch:
        yield batch


class _NodeReader:
    """Reads the segments of one node in the order of time. `overlaps` says what was passed over."""

    def __init__(self, name: str, grid: TimeGrid, snapshots: int) -> None:
        self.facts = NodeFacts(name, grid)
        self.overlaps: list[str] = []
        self._snapshots = snapshots
        self._kept = 0
        self._plans: dict[Layout, _LayoutPlan] = {}
        self._before: tuple[Recording, float, float] | None = None
        """The file of the snapshot before, and its times: wall and monotonic seconds."""
        self._last_times: tuple[float, float] | None = None
        """The times of the last snapshot that was taken in."""
        self._explained: tuple[BackendReport, ...] = ()

    def read(self, pieces: Iterable[tuple[Recording, SegmentSpan]], advance: Callable[[int], None]) -> None:
        """Read these segments; `advance` is called with the number of snapshots of each block."""
        for recording, pieces_of_file in groupby(pieces, key=lambda piece: piece[0]):
            for batch in _batches(self._new_blocks(recording, [span.at for _, span in pieces_of_file], advance)):
                self._add_blocks(batch)
            self._plans.clear()  # another file has other layouts

    def _new_blocks(
        self, recording: Recording, segments: list[int], advance: Callable[[int], None]
    ) -> Iterator[RecordedBlock]:
        """Yield the blocks of a file whose time no block before them had."""
        overlapping = 0
        for block in recording.blocks(segments):
            if self._is_repeated(recording, block):
                overlapping += len(block.walls)
            else:
                self._before = (recording, block.walls[-1], block.monos[-1])
                yield block
            advance(len(block.walls))
        if overlapping:
            self.overlaps.append(
                f"{recording.path}: {overlapping} snapshots of {self.facts.name} are of a time that another "
                "segment or file has too; they are passed over"
            )

    def _is_repeated(self, recording: Recording, block: RecordedBlock) -> bool:
        if self._before is None:
            return False
        file, wall, mono = self._before
        return block.walls[0] <= wall and (file is not recording or block.monos[0] <= mono)

    def _add_blocks(self, blocks: Sequence[RecordedBlock]) -> None:
        facts = self.facts
        walls = [wall for block in blocks for wall in block.walls]
        monos = [mono for block in blocks for mono in block.monos]
        before = None
        if self._last_times is not None and 0 < monos[0] - self._last_times[1] < walls[0] - self._last_times[0] + 60:
            before = self._last_times[1]
        stretch = range_after(facts.grid, walls, monos, interval_of(blocks[0].header), before)
        if blocks[0].header not in facts.headers and len(facts.headers) < _HEADERS:
            facts.headers.append(blocks[0].header)
        facts.first = facts.first if facts.snapshots else walls[0]
        facts.last = max(facts.last, walls[-1])
        facts.snapshots += len(walls)
        facts.seconds += stretch.seconds
        columns = self._columns(blocks)
        for figure, ticks, held in columns if blocks[0].is_even else _in_order(columns):
            if _is_measured(held):
                figure.add(stretch if ticks is None else stretch.only(ticks), held)
        for block in blocks:
            self._explain(block)
        self._last_times = (walls[-1], monos[-1])

    def _columns(self, blocks: Sequence[RecordedBlock]) -> Iterator[_Column]:
        counts = [len(block.walls) for block in blocks]
        for tracks in zip(*(block.tracks for block in blocks), strict=True):
            layout, ticks = tracks[0].layout, tracks[0].ticks
            plan = self._plans.get(layout)
            if plan is None:
                plan = self._plans[layout] = self._plan(layout)
            if plan.figures:
                for figures, held in zip(plan.figures, join_columns(tracks, counts, plan.chosen), strict=True):
                    for figure in figures:
                        yield figure, ticks, held

    def _plan(self, layout: Layout) -> _LayoutPlan:
        selected = [
            (place, figures) for place, series in enumerate(layout.series) if (figures := self._figures(series))
        ]
        return _LayoutPlan(SelectedColumns([place for place, _ in selected]), [figures for _, figures in selected])

    def _figures(self, series: Series) -> list[SeriesStatistic]:
        facts = self.facts
        key = series.metric.name, series.entity
        figure = facts.figures.get(key, {}).get(series.labels)
        if figure is None:
            figure = figure_of(series, facts.grid) if self._kept < MOST_SERIES else None
            if figure is None:
                return []
            self._kept += 1
            facts.figures.setdefault(key, {})[series.labels] = figure
            if (signal := signal_of(series, self._snapshots)) is not None:
                facts.signals[key] = signal
        return [figure, facts.signals[key]] if key in facts.signals and not series.labels else [figure]

    def _explain(self, block: RecordedBlock) -> None:
        for reports in block.reports():
            if reports is self._explained:
                continue
            self._explained = reports
            for report in reports:
                for gap in report.gaps:
                    self.facts.absent[gap.metric.name, gap.entity] = gap.reason


def _is_measured(held: Held) -> bool:
    """Return whether devices can have given this: a file may hold any number, and sums of the largest are infinite."""
    if isinstance(held, float):
        return -LARGEST < held < LARGEST
    return min(held) > -LARGEST and max(held) < LARGEST


def _in_order(columns: Iterable[_Column]) -> Iterator[_Column]:
    """Yield each figure once, with its values in the order of time: a series may change from one layout to another."""
    by_figure: dict[int, list[_Column]] = {}
    for column in columns:
        by_figure.setdefault(id(column[0]), []).append(column)
    for parts in by_figure.values():
        whole = next((part for part in parts if part[1] is None), None)
        yield whole or parts[0] if whole or len(parts) == 1 else _joined(parts)


def _joined(parts: Sequence[_Column]) -> _Column:
    pairs: dict[int, float] = {}
    for _, ticks, held in parts:
        places = ticks or ()
        pairs.update(zip(places, written_out(held, len(places)), strict=True))
    ticks = sorted(pairs)
    return parts[0][0], ticks, [pairs[tick] for tick in ticks]
