"""`coldplate record` on a node whose driver takes longer to open than the recording is to last."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agent.recording.recording_reader import Recording
from tests.daemon.conftest import ROOT
from tests.fakes.nvml import build


def test_a_recording_does_not_end_before_its_first_snapshot(library: Path, tmp_path: Path) -> None:
    control = tmp_path / "control"
    build.command(control, "hang-init")
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(library), build.CONTROL: str(control),
    }  # fmt: skip
    words = "record", "--backend", "nvml", "--interval", "100ms", "--duration", "100ms", "-o", "r"
    done = subprocess.run(
        [sys.executable, "-m", "agent.cli", *words],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Recording(tmp_path / "r") as recording:
        names = {each.metric.name for snapshot in recording.snapshots() for each in snapshot}
    assert "coldplate_node_memory_total_bytes" in names
