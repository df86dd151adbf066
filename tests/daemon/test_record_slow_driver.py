"""`coldplate record` on a node whose driver takes longer to open than the recording is to last."""

from __future__ import annotations

from pathlib import Path

from agent.recording.recording_reader import Recording
from tests import warm
from tests.fakes.nvml import build


def test_a_recording_does_not_end_before_its_first_snapshot(library: Path, tmp_path: Path) -> None:
    control = tmp_path / "control"
    build.command(control, "hang-init")
    environment = {"LD_LIBRARY_PATH": str(library), build.CONTROL: str(control)}
    words = "record", "--backend", "nvml", "--interval", "100ms", "--duration", "100ms", "-o", "r"
    done = warm.command([*words], folder=tmp_path, environment=environment)
    assert done.status == 0, done.error
    with Recording(tmp_path / "r") as recording:
        names = {each.metric.name for snapshot in recording.snapshots() for each in snapshot}
    assert "coldplate_node_memory_total_bytes" in names
