"""When the state of alerts is written, and what of it a later run takes up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from agent.daemon.alert_store import (
    EVERY_SECONDS,
    STEADY_SECONDS,
    WINDOWS_EVERY_SECONDS,
    AlertStateStore,
    SavedDeliveries,
)
from agent.model import Instant, Phase
from alerts import alert_state
from alerts.engine import RuleEngine
from tests.engine.conftest import Node, later, ruleset

UP = ("coldplate_gpu_up", "0")
RULES = "{alert: Down, expr: coldplate_gpu_up == 0, for: 60s}"


class Files:
    def __init__(self) -> None:
        self.now = 0
        self.content: dict[str, bytes] = {}
        self.times: dict[str, list[int]] = {}

    def put(self, path: Path, content: bytes) -> None:
        self.content[path.name] = content
        self.times.setdefault(path.name, []).append(self.now)


class Run:
    """One run of an agent whose seconds the test counts. `up` gives the GPU's state at a second."""

    def __init__(self, folder: Path, source: str = "devices", begin: int = 0) -> None:
        self.files = Files()
        self.store = AlertStateStore(folder, source, self.files)  # type: ignore[arg-type]
        self.engine = RuleEngine(ruleset(RULES), (), later(begin), lambda: 0.0)
        self.second = begin
        self.told: frozenset[str] = frozenset()
        self._node = Node()

    def play(self, seconds: int, up: Callable[[int], float]) -> Run:
        for second in range(self.second, self.second + seconds):
            now = self.files.now = second
            done = self.engine.round(self._node.snapshot({UP: up(now)}, later(now)), later(now))
            self.store.after(self.engine, done, later(now), self.told)
        self.second += seconds
        return self

    @property
    def phases(self) -> list[Phase]:
        return [record.alert.phase for _, _, record in self.engine.remembered()]


def at(run: Run) -> Instant:
    return later(run.second)


def test_a_pending_alert_is_written_often_and_one_that_keeps_firing_seldom(tmp_path: Path) -> None:
    run = Run(tmp_path).play(10, lambda _: 1.0)
    assert run.files.times == {}
    run.play(300, lambda _: 0.0)
    alerts, windows = run.files.times["alerts.state"], run.files.times["windows.state"]
    fired = 70
    assert alerts == [*range(10, fired, int(EVERY_SECONDS)), *range(fired, 310, int(STEADY_SECONDS))]
    assert [b - a for a, b in pairwise(windows)] == [int(WINDOWS_EVERY_SECONDS)] * (len(windows) - 1)
    run.files.times.clear()
    run.play(20, lambda _: 1.0)
    assert run.files.times["alerts.state"][0] == 310  # it has resolved, and a restart must know that


@pytest.mark.parametrize(
    ("source", "later_by", "ended", "notified"),
    [
        pytest.param("synthetic straggler", 30, [], set(), id="alerts of a drill are not those of the node"),
        pytest.param(
            "devices",
            30 + alert_state.OUTAGE_TOLERANCE_SECONDS,
            ["Down"],
            {"http://am"},
            id="after a long time alerts start again and the end of firing ones is sent",
        ),
    ],
)
def test_alerts_of_another_source_or_of_long_ago_are_not_restored(
    source: str, later_by: float, ended: list[str], notified: set[str], tmp_path: Path
) -> None:
    run = Run(tmp_path).play(100, lambda _: 0.0)
    run.store.close(run.engine, at(run), frozenset({"http://am"}))
    for name, content in run.files.content.items():
        (tmp_path / name).write_bytes(content)
    again = Run(tmp_path, source, begin=int(100 + later_by))
    saved = again.store.load(again.engine, at(again))
    assert (again.phases, [alert.rule for alert in saved.lost], set(saved.notified)) == ([], ended, notified)
    assert len(again.engine.windows) == 0


def test_windows_are_restored_even_without_any_alert(tmp_path: Path) -> None:
    run = Run(tmp_path).play(100, lambda _: 1.0)
    run.store.close(run.engine, at(run), frozenset())
    assert list(run.files.content) == ["windows.state"]
    (tmp_path / "windows.state").write_bytes(run.files.content["windows.state"])
    again = Run(tmp_path, begin=130)
    assert again.store.load(again.engine, at(again)) == SavedDeliveries()
    assert len(again.engine.windows) > 0
