"""What goes into a recording comes out of it, by snapshots and by columns, and it is small."""

import random
import resource
import signal
import struct
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from agent.catalogue import BY_NAME
from agent.model import EMPTY_FRAME, Frame, Framer, Gpu, Instant, Layout, Node, Reading, Series, Snapshot
from agent.recording.file_records import PackedColumns, RecordingError, pack_columns
from agent.recording.recorded_block import SelectedColumns
from agent.recording.recording_file import SEGMENT_SECONDS, RecordingFile
from agent.recording.recording_reader import Recording, by_time
from tests.recording.played import bits, played, provenance, record, same

POWER = BY_NAME["coldplate_gpu_power_watts"]
GPU = Gpu("0", "GPU-0")
finite = some.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=60, deadline=None)
@given(some.integers(1, 12).flatmap(lambda width: some.lists(some.tuples(*[finite] * width), min_size=1, max_size=12)))
def test_columns_keep_every_bit(rows: list[tuple[float, ...]]) -> None:
    data = b"before" + pack_columns(rows)
    columns = PackedColumns(data, 6, len(rows[0]), len(rows))
    assert [bits(row) for row in columns.rows()] == [bits(row) for row in rows]
    assert columns.after == len(data)


@pytest.mark.parametrize(("scenario", "begins"), [("driver-hang", 50), ("gpu-lost", 50), ("xid-storm", 60)])
def test_a_recording_gives_the_snapshots_that_it_took(tmp_path: Path, scenario: str, begins: int) -> None:
    snapshots = played(scenario, 90, begins=begins)
    with Recording(record(tmp_path / "r", snapshots)) as recording:
        read = list(recording.snapshots())
        assert recording.problems == []
        assert recording.header == provenance(snapshots[0])
    assert len(read) == len(snapshots)
    assert all(map(same, read, snapshots))


def test_what_did_not_change_is_the_same_object_also_from_one_segment_to_the_next(tmp_path: Path) -> None:
    """Whoever keeps something by layout or by frame need not do it again for each snapshot that is read."""
    with Recording(record(tmp_path / "r", played("healthy-training", 120))) as recording:
        read = list(recording.snapshots())
    assert len({id(frame.layout) for snapshot in read[60:] for frame in snapshot.frames}) < 50
    assert read[63].frames[1] is read[64].frames[1]
    snapshots = [snapshot_at(second * 100.0) for second in range(20)]
    with Recording(record(tmp_path / "s", snapshots)) as recording:
        starts = [span.at for span in recording.survey()]
        assert len(starts) > 2
        for again in (recording.recorded(), recording.recorded(starts)):
            assert len({id(each.snapshot.frames[0].layout) for each in again}) == 1


def test_a_training_node_takes_less_than_a_mebibyte_an_hour_and_gpu(tmp_path: Path) -> None:
    path = record(tmp_path / "r", played("healthy-training", 300, judged=False))
    assert path.stat().st_size / 300 * 3600 / 8 < 0.8 * 2**20


def test_what_was_added_is_on_the_disk_within_ten_seconds(tmp_path: Path) -> None:
    file = RecordingFile(tmp_path / "r", provenance(snapshot_at(0.0)))
    for second in range(40):
        file.add(snapshot_at(float(second)))
        with Recording(tmp_path / "r") as recording:
            spans = recording.survey()
            assert recording.problems == []
        assert second - sum(span.count for span in spans) < 10
    file.close()


def test_of_a_short_recording_that_is_killed_most_is_left(tmp_path: Path) -> None:
    snapshots = played("healthy-training", 12)
    file = RecordingFile(tmp_path / "a", provenance(snapshots[0]))
    for number, snapshot in enumerate(snapshots, 1):
        file.add(snapshot)
        with Recording(tmp_path / "a") as recording:
            readable = len(list(recording.snapshots()))
        assert readable >= number - max(2, number // 4)


def test_a_survey_finds_what_reading_finds(tmp_path: Path) -> None:
    snapshots = [snapshot_at(7.0 * number) for number in range(200)]
    with Recording(record(tmp_path / "r", snapshots)) as recording:
        spans = recording.survey()
        assert sum(span.count for span in spans) == 200
        assert [spans[0].first, spans[-1].last] == [snapshots[0].at.wall, snapshots[-1].at.wall]
        assert len(spans) == 1 + int(200 * 7.0 // (SEGMENT_SECONDS + 7.0))
        later = [recorded.snapshot for recorded in recording.recorded([spans[1].at])]
    assert all(map(same, later, snapshots[spans[0].count :]))
    assert len(later) == spans[1].count


def test_what_comes_and_goes_does_not_fill_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs and pods without end: a segment's tables have a bound, and another segment begins."""
    monkeypatch.setattr("agent.recording.segment_definitions.ENOUGH", 500)
    row = BY_NAME["coldplate_gpu_job_info"]
    framer = Framer()
    snapshots = [
        Snapshot(
            n,
            Instant(n / 10, 1e9),
            (framer.frame([Reading(Series(row, GPU, (("job_id", f"{n}-{k}"),)), 1.0) for k in range(20)]),),
        )
        for n in range(1, 200)
    ]
    with Recording(record(tmp_path / "r", snapshots)) as recording:
        assert len(recording.survey()) >= 3
        assert all(map(same, recording.snapshots(), snapshots))


def test_rows_of_another_version_are_read_and_an_empty_snapshot_is_one(tmp_path: Path) -> None:
    row = replace(POWER, name="coldplate_gpu_aura_watts", labels=("colour",))
    frame = Frame(Layout((Series(row, GPU, (("colour", "blue"),)),)), (5.0,))
    with Recording(record(tmp_path / "r", [Snapshot(1, Instant(1.0, 2.0), (frame,))])) as recording:
        (snapshot,) = recording.snapshots()
    (reading,) = snapshot.readings
    assert repr(reading.series) == 'coldplate_gpu_aura_watts{gpu="0",uuid="GPU-0",colour="blue"}'
    assert (reading.metric.kind, reading.metric.unit, reading.metric.help) == (row.kind, row.unit, row.help)
    path = record(tmp_path / "e", [Snapshot(1, Instant(1.0, 2.0), ()), Snapshot(2, Instant(2.0, 3.0), (EMPTY_FRAME,))])
    with Recording(path) as recording:
        assert [(snapshot.sequence, len(snapshot)) for snapshot in recording.snapshots()] == [(1, 0), (2, 0)]


def snapshot_at(second: float, value: float | None = None, *, series: Series = Series(POWER, GPU)) -> Snapshot:  # noqa: B008
    """One reading; the layout is the same object in all."""
    frame = Frame(LAYOUTS.setdefault(series, Layout((series,))), (second if value is None else value,))
    return Snapshot(int(second) + 1, Instant(1000.0 + second, 1e9 + second), (frame,))


LAYOUTS: dict[Series, Layout] = {}


def test_nodes_are_read_by_time_from_files_and_from_one_file(tmp_path: Path) -> None:
    a = [snapshot_at(float(second)) for second in range(0, 1500, 10)]
    b = [
        snapshot_at(second + 0.5, series=Series(BY_NAME["coldplate_node_power_watts"], Node()))
        for second in range(700, 1700, 10)
    ]
    files = [record(tmp_path / "a", a, "a"), record(tmp_path / "b", b, "b")]
    joined = tmp_path / "joined"
    joined.write_bytes(files[0].read_bytes() + files[1].read_bytes())
    for paths in (files, [joined]):
        recordings = [Recording(path) for path in paths]
        read = list(by_time(recordings))
        assert [each.snapshot.at.wall for each in read] == sorted(each.at.wall for each in a + b)
        assert all(map(same, (each.snapshot for each in read if each.header.node == "b"), b))
        assert {each.header.node for each in read} == {"a", "b"}
        for each in recordings:
            assert each.problems == []
            each.close()


def test_a_full_disk_is_told_and_what_was_written_stays_whole(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    noise = random.Random(1)
    file = RecordingFile(tmp_path / "r", provenance(snapshot_at(0.0)))
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with pytest.raises(RecordingError, match=r"r: cannot be written any more: .*; the \d+ snapshots before are"):
            for second in range(10_000):
                file.add(snapshot_at(float(second), noise.random()))
        file.add(snapshot_at(1e6))  # takes nothing more, and says nothing more
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    with Recording(tmp_path / "r") as recording:
        assert sum(1 for _ in recording.snapshots()) == file.snapshots > 0
        assert recording.problems == []


@pytest.mark.usefixtures("long_blocks")
def test_a_snapshot_that_cannot_be_packed_costs_its_block(tmp_path: Path) -> None:
    file = RecordingFile(tmp_path / "r", provenance(snapshot_at(0.0)))
    for second in range(30):
        file.add(snapshot_at(float(second)))
    with pytest.raises(struct.error):
        for second in range(30, 50):
            file.add(snapshot_at(float(second), 10**400))
    for second in range(50, 80):
        file.add(snapshot_at(float(second)))
    file.close()
    with Recording(tmp_path / "r") as recording:
        read = [each.sequence for each in recording.snapshots()]
        assert recording.problems == []
    assert read == [*range(1, 31), *range(51, 81)]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("precious")
    with pytest.raises(RecordingError, match="exists already; remove it, or give another name"):
        RecordingFile(tmp_path / "r", provenance(snapshot_at(0.0)))
    with pytest.raises(RecordingError, match="cannot be created: No such file or directory; name a file in a folder"):
        RecordingFile(tmp_path / "none" / "r", provenance(snapshot_at(0.0)))
    assert (tmp_path / "r").read_text() == "precious"


Column = dict[float, float]


def by_snapshots(path: Path) -> dict[Series, Column]:
    columns: defaultdict[Series, Column] = defaultdict(dict)
    with Recording(path) as recording:
        for snapshot in recording.snapshots():
            for series, value in snapshot:
                columns[series][snapshot.at.wall] = value
    return columns


def by_columns(path: Path) -> dict[Series, Column]:
    columns: defaultdict[Series, Column] = defaultdict(dict)
    with Recording(path) as recording:
        for block in recording.blocks():
            for track in block.tracks:
                walls = block.walls if track.ticks is None else [block.walls[tick] for tick in track.ticks]
                chosen = SelectedColumns(range(len(track.layout)))
                for series, held in zip(track.layout.series, track.values(chosen), strict=True):
                    values = [held] * len(walls) if isinstance(held, float) else held
                    assert len(values) == len(walls)
                    columns[series].update(zip(walls, values, strict=True))
        assert recording.problems == []
    return columns


def test_columns_hold_every_value_at_its_time_whatever_layouts_come_and_go(tmp_path: Path) -> None:
    """The GPU that is lost has other layouts from then on, in the midst of a block."""
    path = record(tmp_path / "lost", played("gpu-lost", 75, begins=50)[::3])
    assert by_columns(path) == by_snapshots(path)
    snapshots = list(played("healthy-training", 30))
    for odd in range(1, 30, 3):
        snapshots[odd] = replace(snapshots[odd], frames=snapshots[odd].frames[3:])
    path = record(tmp_path / "gaps", snapshots)
    assert by_columns(path) == by_snapshots(path)
