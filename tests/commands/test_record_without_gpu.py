"""`coldplate record` on a node without a GPU: one line and no file, unless that is what the user wants."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from agent.recording.recording_reader import Recording
from tests import warm


@pytest.mark.parametrize(
    ("words", "status", "kept"),
    [
        ("--duration 2s", 1, False),
        ("-- sh -c 'sleep 2; exit 7'", 7, False),
        ("--duration 2s --allow-no-gpu", 0, True),
        ("--duration 2s --backend none", 0, True),
        ("--duration 2s --backend synthetic", 0, True),
    ],
)
def test_a_recording_without_a_gpu_is_refused_unless_it_is_wanted(
    words: str, status: int, kept: bool, tmp_path: Path
) -> None:
    path = tmp_path / "run.coldplate"
    ended = warm.command(["record", "-o", str(path), *shlex.split(words)])
    error = ended.error.decode()
    assert (ended.status, path.exists()) == (status, kept), error
    assert ("--allow-no-gpu" in error) is not kept


def test_info_counts_every_gpu_of_a_recording_as_the_report_does(tmp_path: Path) -> None:
    path = tmp_path / "run.coldplate"
    warm.command(["record", "--scenario", "idle", "--duration", "2s", "-o", str(path)])
    with Recording(path) as recording:
        assert recording.header.redacted
    info = warm.command(["record", "--info", str(path)]).output.decode()
    report = warm.command(["report", str(path)]).output.decode()
    assert "8 x NVIDIA H100" in info and "8 x NVIDIA H100" in report
