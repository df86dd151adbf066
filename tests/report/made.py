"""Recordings of which every figure is known beforehand: the series are made up, one value for each second."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agent.catalogue import BY_NAME
from agent.commands import report
from agent.model import Entity, Frame, Framer, Gpu, IbPort, Instant, Labels, Node, NvLink, Reading, Series, Snapshot
from agent.recording.file_records import RecordingHeader
from agent.recording.recording_file import RecordingFile
from agent.recording.recording_reader import Recording
from agent.recording.report.run_facts import RecordedRun
from agent.recording.report.run_reader import read_run

WALL, MONO = 1_700_000_000.0, 1000.0
Value = float | None
Values = Sequence[Value] | Value
"""One for each second, or the same for all; None where it is absent."""

__all__ = ["MONO", "WALL", "Gpu", "IbPort", "Node", "NvLink", "gathered", "gpu", "recorded", "row", "run_report"]


def run_report(*words: object) -> int:
    """The status of `coldplate report` with these words."""
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    return report.run(parser.parse_args(list(map(str, words))))


def gpu(index: int) -> Gpu:
    return Gpu(str(index), f"GPU-{index:08d}")


def row(name: str, entity: Entity, labels: Labels = ()) -> Series:
    return Series(BY_NAME[name], entity, labels)


def snapshots(series: Mapping[Series, Any], seconds: int, step: float = 1.0, since: float = 0.0) -> list[Snapshot]:
    framer = Framer()
    snapshots_made = []
    for second in range(seconds):
        values_by_series = {
            key: values[second] if isinstance(values, Sequence) else values for key, values in series.items()
        }
        frame: Frame = framer.frame(
            [Reading(key, float(value)) for key, value in values_by_series.items() if value is not None]
        )
        at = Instant(MONO + since + second * step, WALL + since + second * step)
        snapshots_made.append(Snapshot(second, at, (frame,)))
    return snapshots_made


def recorded(
    path: Path,
    some: Sequence[Snapshot],
    node: str = "node-1",
    interval: float = 1.0,
    command: tuple[str, ...] = (),
    scenario: str = "",
) -> Path:
    at = some[0].at
    header = RecordingHeader("0.1", node, at.wall, at.mono, interval, "a test", command, scenario=scenario)
    file = RecordingFile(path, header)
    for snapshot in some:
        file.add(snapshot)
    file.close()
    return path


def gathered(path: Path, series: Mapping[Series, Any], seconds: int) -> RecordedRun:
    """What is gathered of these series."""
    with Recording(recorded(path, snapshots(series, seconds))) as recording:
        return read_run([recording])
