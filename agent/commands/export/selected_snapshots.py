"""What an export takes from recordings: some metrics, some time, and every so many seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from agent.lib.layout_columns import picker
from agent.model import Frame, Layout, Series
from agent.recording.node_merge import by_time
from agent.recording.recording_reader import Recording

_Part = tuple[Layout, Callable[[Sequence[float]], tuple[float, ...]]]
"""What is wanted of a layout, and what takes its values out of those of a frame."""


@dataclass(frozen=True, slots=True)
class ExportSelection:
    """Patterns of metric names, wall seconds, and seconds between two snapshots of a node (0: all there are)."""

    metrics: tuple[str, ...] = ()
    start: float = float("-inf")
    end: float = float("inf")
    step: float = 0.0

    def wants(self, metric: str) -> bool:
        """Whether series of this name are exported."""
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
        self._parts: dict[str, tuple[list[Layout], list[_Part]]] = {}

    def __iter__(self) -> Iterator[SelectedSnapshot]:
        """Raises RecordingError if the disk does not give a recording."""
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
                yield SelectedSnapshot(header.node, wall, tuple(self._selected(header.node, snapshot.frames)))

    def _selected(self, node: str, frames: Sequence[Frame]) -> Iterator[Frame]:
        layouts = [frame.layout for frame in frames]
        known, parts = self._parts.get(node, ([], []))
        if layouts != known:
            parts = self._look_up(layouts)
            self._parts[node] = layouts, parts
        for frame, (layout, pick) in zip(frames, parts, strict=True):
            yield frame if layout is frame.layout else Frame(layout, pick(frame.values))

    def _look_up(self, layouts: Sequence[Layout]) -> list[_Part]:
        """What is wanted of each frame of a snapshot; a series that comes twice counts where it came first."""
        seen: set[Series] = set()
        parts = []
        for layout in layouts:
            kept = []
            for place, series in enumerate(layout.series):
                if series not in seen and self._selection.wants(series.metric.name):
                    seen.add(series)
                    kept.append(place)
            key = (layout, tuple(kept))
            if key not in self._pruned:
                is_whole = len(kept) == len(layout)
                part = layout if is_whole else Layout(tuple(layout.series[place] for place in kept))
                self._pruned[key] = part, picker(kept)
            parts.append(self._pruned[key])
        return parts
