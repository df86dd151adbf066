"""Snapshots of scenarios in simulated time, and recordings of them."""

import functools
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

from agent.backends.synthetic import load_scenario
from agent.model import Snapshot
from agent.recording.file_records import RecordingHeader
from agent.recording.recording_file import RecordingFile
from agent.recording.redaction import Redaction
from tests.lab.score.play import Play, load_pack


@functools.cache
def played(scenario: str, seconds: int, *, begins: int = 0, judged: bool = True) -> tuple[Snapshot, ...]:
    """The snapshots of a scenario up to a second, with the series of the shipped rules or of none."""
    play = Play(load_scenario(scenario), load_pack() if judged else (), begins=begins)
    snapshots = tuple(play.snapshots(seconds))
    play.close()
    return snapshots


def provenance(first: Snapshot, node: str = "node-1.example") -> RecordingHeader:
    return RecordingHeader(
        "0.1", node, first.at.wall, first.at.mono, 1.0, "a test", ("python", "train.py"), "4711", "played"
    )


def record(
    path: Path, snapshots: Sequence[Snapshot], node: str = "node-1.example", redaction: Redaction | None = None
) -> Path:
    file = RecordingFile(path, provenance(snapshots[0], node), redaction)
    for snapshot in snapshots:
        file.add(snapshot)
    file.close()
    return path


def bits(values: Iterable[float]) -> bytes:
    return b"".join(struct.pack("<d", value) for value in values)


def same(one: Snapshot, other: Snapshot) -> bool:
    """Whether two snapshots tell the same, to the last bit of each value."""
    mine, yours = one.readings, other.readings
    return (
        (one.sequence, one.at, one.reports) == (other.sequence, other.at, other.reports)
        and [reading.series for reading in mine] == [reading.series for reading in yours]
        and bits(reading.value for reading in mine) == bits(reading.value for reading in yours)
    )
