"""What the agent's own processes cost."""

from __future__ import annotations

import os
from pathlib import Path

from agent.daemon.costs import OwnProcesses

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


def process(root: Path, pid: int, user: int, system: int, pages: int) -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    before = "S 1 1 1 0 -1 0 0 0 0 0"  # fields 3 to 13
    between = "0 0 20 0 9 0 100 1000"  # fields 16 to 23
    (root / str(pid) / "stat").write_text(f"{pid} (a (strange) name) {before} {user} {system} {between} {pages} 0 0\n")


def read(own: OwnProcesses, pids: dict[str, int]) -> dict[tuple[str, str], float]:
    return {(row.metric.name.split("_")[2], dict(row.labels)["process"]): row.value for row in own.read(pids)}


def test_time_and_memory_of_each_process_but_of_none_that_ended_or_cannot_be_understood(tmp_path: Path) -> None:
    process(tmp_path, 7, 3 * TICKS, TICKS, 10)
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text("garbage")
    assert read(OwnProcesses(tmp_path), {"main": 7, "worker": 9, "broker": 10}) == {
        ("cpu", "main"): 4.0,
        ("resident", "main"): 10 * PAGE,
    }


def test_a_roles_time_keeps_growing_when_another_process_takes_over(tmp_path: Path) -> None:
    own = OwnProcesses(tmp_path)
    process(tmp_path, 7, 100 * TICKS, 0, 1)
    process(tmp_path, 8, 2 * TICKS, 0, 1)
    assert read(own, {"worker": 7})["cpu", "worker"] == 100.0
    assert read(own, {"worker": 8})["cpu", "worker"] == 102.0
    process(tmp_path, 8, 5 * TICKS, 0, 1)
    assert read(own, {"worker": 8})["cpu", "worker"] == 105.0
