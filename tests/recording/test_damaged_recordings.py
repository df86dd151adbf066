"""A recording may end anywhere and any byte of it may be wrong: what is whole is read, and what is not is told."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME
from agent.model import BackendReport, Frame, Gap, Gpu, Instant, Layout, Outcome, Reason, Series, Snapshot
from agent.recording.file_records import (
    BLOCK,
    DEFINITIONS,
    HEADER,
    MAGIC,
    START,
    RecordingError,
    encode_header,
    encode_record,
)
from agent.recording.recording_file import PREAMBLE
from agent.recording.recording_reader import Recording
from agent.recording.report.run_reader import read_run
from tests.recording.played import provenance, record, same

POWER, BUSY = BY_NAME["coldplate_gpu_power_watts"], BY_NAME["coldplate_gpu_utilization_ratio"]
GPU = Gpu("0", "GPU-0")
LAYOUT = Layout((Series(POWER, GPU), Series(BUSY, GPU)))
HEAD = START + encode_record(HEADER, encode_header(provenance(Snapshot(1, Instant(0.0, 1e9), ()))))


def small(segments: int) -> list[Snapshot]:
    """Thirty seconds in each segment, so that there are three blocks or four."""
    snapshots = []
    for segment in range(segments):
        for second in range(30):
            gap = Gap(BUSY, GPU, Reason.DENIED, f"no {second // 20}")
            report = BackendReport("nvml", Outcome.OK, 0.01, "", (gap,), second)
            at = Instant(1000.0 * segment + second, 1e9 + 1000.0 * segment + second)
            snapshots.append(Snapshot(second, at, (Frame(LAYOUT, (float(second), 0.5)),), (report,)))
    return snapshots


def read(path: Path) -> tuple[list[Snapshot], list[str]]:
    with Recording(path) as recording:
        return list(recording.snapshots()), recording.problems


@pytest.mark.usefixtures("long_blocks")
def test_cut_at_every_byte_what_is_whole_is_read(tmp_path: Path) -> None:
    snapshots = small(1)
    content = record(tmp_path / "whole", snapshots).read_bytes()
    cut = tmp_path / "cut"
    counts = []
    for length in range(len(content) + 1):
        cut.write_bytes(content[:length])
        if length < len(HEAD):
            with pytest.raises(RecordingError, match="cut: "):
                Recording(cut)
            continue
        got, problems = read(cut)
        assert all(map(same, got, snapshots))
        counts.append(len(got))
        if problems:
            (problem,) = problems
            assert "ends in the middle of a record at byte " in problem
            assert f"of {length} (its writer was stopped, or it was cut); {len(got)} snapshots before" in problem
    assert counts == sorted(counts)
    assert sorted(set(counts)) == [0, 10, 20, 30]


@pytest.mark.usefixtures("long_blocks")
def test_with_any_byte_changed_nothing_is_read_that_was_not_recorded(tmp_path: Path) -> None:
    snapshots = small(2)
    content = record(tmp_path / "whole", snapshots).read_bytes()
    second = content.index(MAGIC, 1)
    broken = tmp_path / "broken"
    rest = 0
    by_time = {snapshot.at.mono: snapshot for snapshot in snapshots}
    places = range(len(HEAD), len(content), 5)
    for at in places:
        broken.write_bytes(content[:at] + bytes([content[at] ^ 0x41]) + content[at + 1 :])
        got, problems = read(broken)
        assert problems, at
        assert str(broken) in problems[0]
        assert "at byte" in problems[0]
        assert all(same(snapshot, by_time[snapshot.at.mono]) for snapshot in got)
        if at < second:
            assert "read on from byte" in problems[0]
            rest += all(map(same, got[-30:], snapshots[30:]))
    assert rest == sum(at < second for at in places), "the next segment is read whatever happened before"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"power,temperature\n1,2\n", "is not a recording of coldplate's"),
        (zlib.compress(b"x" * 100), "is not a recording of coldplate's"),
        (MAGIC + struct.pack("<H", 77), "is of version 77 of the format, and this program knows 1"),
        (START, "ends before its header"),
        (START + encode_record(HEADER, b"[]"), "its header is not understood"),
        (START + encode_record(HEADER, b'{"node": 7}'), "its header is not understood"),
        (START + encode_record(BLOCK, b""), "has no header"),
    ],
)
def test_what_is_no_recording_is_refused_in_words(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "foreign\n"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=words) as error:
        Recording(path)
    assert "foreign\\n: " in str(error.value)


def test_what_is_no_file_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("fifo", "is not a file"), (".", "is not a file"), ("none", "No such file")):
        with pytest.raises(RecordingError, match=words):
            Recording(tmp_path / name)


def block(document: object, rest: bytes = b"", count: int = 1) -> bytes:
    text = json.dumps(document).encode()
    return encode_record(
        BLOCK, PREAMBLE.pack(count, 0.0, 0.0) + zlib.compress(struct.pack("<I", len(text)) + text + rest)
    )


def definitions(**tables: object) -> bytes:
    return encode_record(DEFINITIONS, zlib.compress(json.dumps(tables).encode()))


TIMES = b"\0\0\0" + bytes(24)
ROW = ["coldplate_gpu_power_watts", "gauge", "watts", "fast", "Gpu", ""]
ONE = definitions(metrics=[ROW], entities=[["gpu", "0", "u"]], series=[[0, 0]], layouts=[[0, 1]])
TRACK = {"tracks": [["L", 0, 1]], "shapes": [[0]], "ticks": [[0, "1"]]}


def test_hostile_files_are_near_a_good_one_and_an_unused_track_is_in_no_figure(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes(HEAD + ONE + block(TRACK, TIMES + b"\0" + struct.pack("<d", 5.0)))
    (snapshot,), problems = read(path)
    assert ([reading.value for reading in snapshot.readings], problems) == ([5.0], [])
    document = {**TRACK, "tracks": [["L", 0, 2], ["L", 0, 1]], "shapes": [[1]]}
    path.write_bytes(HEAD + ONE + block(document, TIMES + b"\1" + bytes(16) + b"\0" + struct.pack("<d", 5.0)))
    with Recording(path) as recording:
        (gpu,) = read_run([recording]).gpus()
    assert (gpu.summary(POWER.name).low, gpu.summary(POWER.name).seconds) == (5.0, 1.0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: encode_record(DEFINITIONS, zlib.compress(bytes(10**8))),
        lambda: encode_record(DEFINITIONS, b"no"),
        lambda: encode_record(DEFINITIONS, zlib.compress(b"[" * 10**6)),
        lambda: encode_record(DEFINITIONS, zlib.compress(b'{"series": 5}')),
        lambda: definitions(layouts=[[0, 10**9]]),
        lambda: definitions(metrics=[ROW], entities=[["node"]], series=[[0, 0]], layouts=[[0, 1] * 3_000_000]),
        lambda: definitions(entities=[["node"]] * 500_000),
        lambda: definitions(entities=[["nvlink", 0, 1]]),
        lambda: definitions(entities=[["gpu", {}, "u"]]),
        lambda: definitions(metrics=[["bad name", *ROW[1:]]]),
        lambda: definitions(metrics=[ROW], entities=[["gpu", "0", "u"]], series=[[0, 0, "bad name", "x"]]),
        lambda: definitions(metrics=[ROW], entities=[["gpu", "0", "u"]], series=[[-1, 0]]),
        lambda: encode_record(BLOCK, PREAMBLE.pack(1, 0.0, 0.0) + zlib.compress(bytes(10**8))),
        lambda: encode_record(BLOCK, b""),
        lambda: ONE + block(TRACK, TIMES + b"\0" + struct.pack("<d", float("nan"))),
        lambda: ONE + block(TRACK, TIMES + b"\1"),
        lambda: ONE + block(TRACK, TIMES + b"\7" + bytes(8)),
        lambda: ONE + block({**TRACK, "tracks": [["L", 0, 10**9]]}, TIMES + b"\0" + bytes(8)),
        lambda: ONE + block({**TRACK, "tracks": [["R", 5, 1]]}, TIMES),
        lambda: ONE + block({**TRACK, "ticks": [[0, "0"]]}, TIMES + b"\0" + bytes(8)),
        lambda: ONE + block({**TRACK, "ticks": [[0, "2"]]}, TIMES + b"\0" + bytes(8)),
        lambda: ONE + block({**TRACK, "shapes": [[-1]]}, TIMES + b"\0" + bytes(8)),
        lambda: ONE + block({**TRACK, "ticks": [[3, "1"]]}, TIMES + b"\0" + bytes(8)),
        lambda: ONE + block({**TRACK, "shapes": [[0, 0]], "ticks": [[0, "11"]]}, TIMES + b"\0" + bytes(8)),
        lambda: ONE + block(TRACK, TIMES, count=2**32 - 1),
        lambda: block(5),
    ],
    ids=lambda _: "made",
)
def test_what_is_whole_and_makes_no_sense_is_told_as_damage(tmp_path: Path, make: Callable[[], bytes]) -> None:
    path, hostile = tmp_path / "r", make()
    path.write_bytes(HEAD + hostile + HEAD)
    got, (problem, *more) = read(path)
    assert (got, more) == ([], [])
    assert f"{path}: is damaged: " in problem
    assert f"read on from byte {len(HEAD + hostile)}" in problem
    with Recording(path) as recording, pytest.raises(RecordingError):
        read_run([recording])
