"""The recordings of many nodes as one: all snapshots in the order of their wall clocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import attrgetter

from agent.recording.recording_reader import RecordedSnapshot, Recording, SegmentSpan


def by_time(recordings: Iterable[Recording]) -> Iterator[RecordedSnapshot]:
    """The snapshots of all, the earliest first. A file may hold several nodes: `cat a b` makes such a one.

    One block of each node is held at a time. Raises RecordingError.
    """
    streams: list[Iterator[RecordedSnapshot]] = []
    for recording in recordings:
        spans = [span for span in recording.survey() if span.first is not None]
        spans.sort(key=attrgetter("header.node"))
        for _, one in groupby(spans, key=attrgetter("header.node")):
            streams.append(recording.recorded(_in_order(one)))
    return merge(*streams, key=_wall)


def _in_order(spans: Iterable[SegmentSpan]) -> list[int]:
    """Where the segments of one node begin, the earliest first."""
    return [span.at for span in sorted(spans, key=lambda span: (span.first or 0.0, span.at))]


def _wall(recorded: RecordedSnapshot) -> float:
    return recorded.snapshot.at.wall
