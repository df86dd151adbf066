"""The last minutes are in a file when something happened, and nothing else happens because of it."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME
from agent.daemon.flight_recorder import AFTER_SECONDS, FIRING, XID, FlightRecorder, FlightSettings, FlightTriggers
from agent.lib.threads import Threads
from agent.model import Frame, Gpu, Instant, Layout, Node, Series, Snapshot
from agent.recording.file_records import RecordingHeader
from agent.recording.recording_reader import Recording, by_time
from tests.recording.played import same
from tests.waiting import wait_until

POWER = Layout((Series(BY_NAME["coldplate_gpu_power_watts"], Gpu("0", "GPU-0")),))
NONE = Frame(Layout(()), ())
HEADER = RecordingHeader("0", "node-1", 0.0, 0.0, 1.0)
SPAN = 300.0

Make = Callable[..., FlightRecorder]


def firing(*names: str) -> Frame:
    row = BY_NAME["coldplate_alert"]
    labels = [(("alertname", name), ("alertstate", "firing"), ("severity", "warning")) for name in names]
    return Frame(Layout(tuple(Series(row, Node(), each) for each in labels)), (1.0,) * len(names))


def xids(count: float) -> Frame:
    return Frame(XIDS, (0.0, count, 0.0, count))


ERRORS = BY_NAME["coldplate_gpu_xid_errors_total"]
XIDS = Layout(tuple(Series(ERRORS, Gpu(gpu, gpu), (("xid", code),)) for gpu in "01" for code in ("31", "79")))


def snapshot(second: int, *more: Frame) -> Snapshot:
    return Snapshot(second, Instant(1000.0 + second, 1e9 + second), (Frame(POWER, (float(second),)), *more))


def seconds(first: int, last: int, *more: Frame) -> list[Snapshot]:
    return [snapshot(second, *more) for second in range(first, last)]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[FlightRecorder] = []

    def build(keep: float = 2.0**30, folder: Path | None = None) -> FlightRecorder:
        settings = FlightSettings(SPAN, frozenset({FIRING, XID}), folder or tmp_path / "flight", keep)
        made.append(FlightRecorder(settings, HEADER, Threads()))
        made[-1].start()
        return made[-1]

    yield build
    for each in made:
        each.stop(30)


def feed(recorder: FlightRecorder, snapshots: Iterable[Snapshot]) -> None:
    for each in snapshots:
        recorder.observe(each)


def figures(recorder: FlightRecorder, second: int = 0) -> dict[str, float]:
    frame = recorder.frame(Instant(1000.0 + second, 0.0))
    return {each.series.metric.name.removeprefix("coldplate_flight_recorder_"): each.value for each in frame.readings}


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_an_alert_leaves_the_minutes_before_it_and_the_minute_after(make: Make, tmp_path: Path) -> None:
    recorder = make()
    past = seconds(500, 1000) + seconds(1000, 1000 + int(AFTER_SECONDS) + 1, firing("GpuLost"))
    feed(recorder, past)
    wait_until(lambda: figures(recorder)["files_total"] >= 1)
    feed(recorder, seconds(1061, 1090, firing("GpuLost")))
    recorder.stop(30)
    assert files(tmp_path / "flight") == ["flight-20010909T020320Z-GpuLost.coldplate"]
    with Recording(tmp_path / "flight" / files(tmp_path / "flight")[0]) as recording:
        assert (recording.header.node, recording.header.maker) == ("node-1", "flight recorder: GpuLost")
        kept = list(recording.snapshots())
        assert recording.problems == []
    assert all(map(same, kept, past[-len(kept) :]))
    assert SPAN <= len(kept) <= SPAN + 100


def test_events_within_a_minute_are_in_one_file_and_later_ones_in_another(make: Make, tmp_path: Path) -> None:
    recorder = make()
    feed(recorder, seconds(0, 100))
    feed(recorder, seconds(100, 120, firing("A")))
    feed(recorder, seconds(120, 180, firing("A", "B")))
    wait_until(lambda: figures(recorder)["files_total"] >= 1)
    feed(recorder, seconds(180, 200, firing("A", "B")))
    feed(recorder, seconds(200, 270, firing("C"), xids(0)))
    wait_until(lambda: figures(recorder)["files_total"] >= 2)
    names = files(tmp_path / "flight")
    assert [name.rpartition("-")[2] for name in names] == ["A.coldplate", "C.coldplate"]
    recordings = [Recording(tmp_path / "flight" / name) for name in names]
    assert [each.header.maker for each in recordings] == ["flight recorder: A, B", "flight recorder: C"]
    assert [each.snapshot.sequence for each in by_time(recordings)] == list(range(261))
    for each in recordings:
        each.close()


def test_stopping_does_not_wait_for_the_minute(make: Make, tmp_path: Path) -> None:
    recorder = make()
    feed(recorder, [*seconds(0, 20, xids(3)), *seconds(20, 25, xids(4))])
    recorder.stop(30)
    (name,) = files(tmp_path / "flight")
    assert name.endswith("-XID-79.coldplate")
    with Recording(tmp_path / "flight" / name) as recording:
        assert sum(1 for _ in recording.snapshots()) == 25


def test_without_an_event_nothing_is_written_and_memory_has_a_bound(make: Make, tmp_path: Path) -> None:
    recorder = make()
    sizes = []
    for first in range(0, 4000, 500):
        feed(recorder, seconds(first, first + 500, xids(5)))
        held = figures(recorder, first + 500)
        sizes.append(held["memory_bytes"])
    recorder.stop(30)
    sizes.append(figures(recorder, 4000)["memory_bytes"])
    assert not (tmp_path / "flight").exists()
    assert 1000 < max(sizes) < 30_000
    assert figures(recorder, 4000)["span_seconds"] < SPAN + 120


@pytest.mark.parametrize(
    ("frames", "begun"),
    [
        ([(firing("A"),), (firing("A"),), (firing("A", "B"),), (NONE,), (firing("A"),)], [["A"], [], ["B"], [], ["A"]]),
        ([(xids(3),), (xids(3),), (xids(4),), (NONE,), (xids(4),)], [[], [], ["XID 79"], [], []]),
        ([(NONE,), (xids(1),)], [[], ["XID 79"]]),
    ],
)
def test_what_is_new_is_noticed_once(frames: Sequence[tuple[Frame, ...]], begun: list[list[str]]) -> None:
    triggers = FlightTriggers(frozenset({FIRING, XID}))
    assert [triggers.begun_events(snapshot(second, *more)) for second, more in enumerate(frames)] == begun
    silent = FlightTriggers(frozenset())
    assert [silent.begun_events(snapshot(second, *more)) for second, more in enumerate(frames)] == [[]] * len(frames)


@pytest.mark.parametrize("keep", [10_000, 100])
def test_the_oldest_files_go_first_and_one_beyond_the_budget_removes_none(
    make: Make, tmp_path: Path, caplog, keep: int
) -> None:
    folder = tmp_path / "flight"
    folder.mkdir()
    (folder / "notes").write_bytes(bytes(9000))
    for hour in range(5):
        (folder / f"flight-20000101T0{hour}0000Z-A.coldplate").write_bytes(bytes(3000))
    before = files(folder)
    recorder = make(keep=keep)
    feed(recorder, seconds(0, 30, firing("B")))
    recorder.stop(30)
    if keep == 100:
        assert files(folder) == before
        assert figures(recorder)["failures_total"] == 1
        assert "more than recorder.max_size allows" in caplog.text
        return
    *left, newest, notes = files(folder)
    assert left == [f"flight-20000101T0{hour}0000Z-A.coldplate" for hour in (2, 3, 4)]
    assert newest.endswith("-B.coldplate")
    assert notes == "notes"
    assert figures(recorder)["files_bytes"] == 9000 + (folder / newest).stat().st_size <= 10_000


def test_a_disk_that_fails_costs_a_file_and_it_is_tried_again(make: Make, tmp_path: Path, caplog) -> None:
    (tmp_path / "blocked").write_text("")
    recorder = make(folder=tmp_path / "blocked" / "flight")
    feed(recorder, seconds(0, 70, firing("A")))
    wait_until(lambda: figures(recorder)["failures_total"] >= 1)
    feed(recorder, seconds(70, 140, firing("A")))
    wait_until(lambda: figures(recorder)["failures_total"] >= 2)
    assert len(caplog.records) == 1
    assert "last_success_timestamp_seconds" not in figures(recorder)
    (tmp_path / "blocked").unlink()
    feed(recorder, seconds(140, 210, firing("A")))
    wait_until(lambda: figures(recorder)["files_total"] >= 1)
    assert abs(figures(recorder)["last_success_timestamp_seconds"] - time.time()) < 3600
    with Recording(next((tmp_path / "blocked" / "flight").iterdir())) as recording:
        assert recording.header.maker == "flight recorder: A"
        assert sum(1 for _ in recording.snapshots()) > 190
