"""Columns of a recording hold what its snapshots do."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from agent.model import Instant, Series
from agent.recording.column_reader import SelectedColumns, blocks
from agent.recording.recording_reader import Recording
from tests.recording.played import played, record

Column = dict[float, float]


def by_snapshots(path: Path) -> dict[Series, Column]:
    found: defaultdict[Series, Column] = defaultdict(dict)
    with Recording(path) as recording:
        for snapshot in recording.snapshots():
            for series, value in snapshot:
                found[series][snapshot.at.wall] = value
    return found


def by_columns(path: Path) -> dict[Series, Column]:
    found: defaultdict[Series, Column] = defaultdict(dict)
    with Recording(path) as recording:
        for block in blocks(recording):
            for track in block.tracks:
                walls = block.walls if track.ticks is None else [block.walls[tick] for tick in track.ticks]
                chosen = SelectedColumns(range(len(track.layout)))
                for series, held in zip(track.layout.series, track.columns(chosen), strict=True):
                    values = [held] * len(walls) if isinstance(held, float) else held
                    assert len(values) == len(walls)
                    found[series].update(zip(walls, values, strict=True))
        assert recording.problems == []
    return found


def test_columns_hold_every_value_of_every_snapshot_at_its_time(tmp_path: Path) -> None:
    """The GPU that is lost has other layouts from then on, in the midst of a block."""
    path = record(tmp_path / "lost", played("gpu-lost", 75)[::5])
    assert by_columns(path) == by_snapshots(path)


def test_a_layout_that_comes_and_goes_within_a_block_keeps_its_times(tmp_path: Path) -> None:
    snapshots = list(played("healthy-training", 30))
    for odd in range(1, 30, 3):
        snapshots[odd] = replace(snapshots[odd], frames=snapshots[odd].frames[3:])
    path = record(tmp_path / "gaps", snapshots)
    assert by_columns(path) == by_snapshots(path)


@pytest.mark.usefixtures("long_blocks")
def test_the_reports_of_a_block_are_those_of_its_snapshots(tmp_path: Path) -> None:
    snapshots = played("healthy-training", 5)
    path = record(tmp_path / "run", snapshots)
    with Recording(path) as recording:
        told = [report.backend for block in blocks(recording) for reports in block.reports() for report in reports]
    assert told == [report.backend for report in snapshots[0].reports]


@pytest.mark.usefixtures("long_blocks")
def test_damage_is_told_and_the_segments_behind_it_are_read(tmp_path: Path) -> None:
    snapshots = played("healthy-training", 20)
    later = [replace(each, at=Instant(each.at.mono + 100, each.at.wall + 100)) for each in snapshots]
    one, other = record(tmp_path / "one", snapshots), record(tmp_path / "other", later)
    data = bytearray(one.read_bytes())
    data[-9] ^= 1
    path = tmp_path / "both"
    path.write_bytes(bytes(data) + other.read_bytes())
    with Recording(path) as recording:
        walls = [wall for block in blocks(recording) for wall in block.walls]
        assert len(recording.problems) == 1
    assert walls == [each.at.wall for each in (*snapshots[:10], *later)]


def test_a_layout_is_the_same_object_in_all_segments_of_a_node_read_by_themselves(tmp_path: Path) -> None:
    snapshots = played("healthy-training", 20)
    one = record(tmp_path / "one", snapshots)
    path = tmp_path / "both"
    path.write_bytes(one.read_bytes() * 2)
    with Recording(path) as recording:
        starts = [span.at for span in recording.survey()]
        layouts = [[track.layout for track in block.tracks] for block in blocks(recording, starts)]
    assert len(starts) == 2
    assert layouts[: len(layouts) // 2] == layouts[len(layouts) // 2 :]
