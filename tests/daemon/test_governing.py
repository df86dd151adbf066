"""What the agent costs, and that it reads less often before that is more than its budget."""

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.backends.protocol import BackendSample
from agent.catalogue import BY_NAME
from agent.daemon import sampling
from agent.daemon.costs import Governing, OwnProcesses, ThreadCosts
from agent.model import Instant, Lane, Node, Reading, Series, Snapshot
from agent.sampler.schedule import Settings
from tests.daemon.standin import LoopRig, QuickBackend

TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
SHOWN = {Lane.FAST: "coldplate_node_power_watts", Lane.SLOW: "coldplate_node_load1", Lane.COLD: "coldplate_node_cpus"}


class CostlyBackend(QuickBackend):
    """Takes processor time with each read, and has one series in each lane."""

    name = "costly"
    lanes = frozenset(SHOWN)

    def __init__(self) -> None:
        self.cost = dict.fromkeys(SHOWN, 0.0)
        self.spent = 0.0

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        self.spent += self.cost[lane]
        row = BY_NAME[SHOWN[lane]]
        labels = (("source", "redfish"),) if "source" in row.labels else ()
        return BackendSample([Reading(Series(row, Node(), labels), 1.0)])


class GovernedRig(LoopRig):
    def __init__(self, settings: Settings) -> None:
        self.at = 5000.0
        self.backend = CostlyBackend()
        governing = Governing(lambda _: self.backend.spent)
        providers = {"reporting what the agent costs": governing}
        super().__init__(self.clock, settings, [self.backend], providers=providers, governing=governing)

    def clock(self) -> Instant:
        return Instant(self.at, 1e9 + self.at)

    def run(self, seconds: float) -> Iterator[Snapshot]:
        until = self.at + seconds
        while self.at < until:
            self.loop.tick()
            yield self.latest
            self.at = self.loop.schedule.next_tick


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[GovernedRig]:
    monkeypatch.setattr(sampling, "GATHER_SECONDS", 0.0)
    made = GovernedRig(Settings(fast=0.5, slow=2.0, cold=8.0, deadline=0.1, cpu_budget=0.1))
    yield made
    made.loop.stop()
    made.loop.close(lambda _: None)


def of(snapshot: Snapshot, name: str, label: str = "sampling_lane") -> dict[str, float]:
    return {
        dict(each.labels).get(label, ""): each.value for each in snapshot if each.metric.name == f"coldplate_{name}"
    }


def shown(snapshot: Snapshot) -> set[str]:
    return {each.metric.name for each in snapshot} & set(SHOWN.values())


def test_lanes_are_slowed_down_and_restored_and_no_series_is_missing_meanwhile(rig: GovernedRig, caplog) -> None:
    caplog.set_level(logging.INFO, "coldplate.overhead")
    for snapshot in rig.run(60):
        assert shown(snapshot) == set(SHOWN.values())
    assert of(snapshot, "overhead_info", "state") == {"normal": 1}
    assert of(snapshot, "sampling_slowdown_ratio") == {"fast": 1, "slow": 1, "cold": 1}
    assert not caplog.records

    rig.backend.cost = {Lane.FAST: 0.015, Lane.SLOW: 0.2, Lane.COLD: 0.016}  # 0.03 + 0.1 + 0.002 of a core
    for snapshot in rig.run(200):
        assert shown(snapshot) == set(SHOWN.values())
    assert of(snapshot, "overhead_info", "state") == {"slowed": 1}
    assert of(snapshot, "overhead_cpu_ratio")[""] <= of(snapshot, "overhead_cpu_budget_ratio")[""] == 0.1
    assert of(snapshot, "sampling_interval_seconds") == {"fast": 0.5, "slow": 4.0, "cold": 16.0}
    assert of(snapshot, "sampling_slowdown_ratio") == {"fast": 1, "slow": 2, "cold": 2}
    assert [each.levelname for each in caplog.records] == ["WARNING"]

    rig.backend.cost = dict.fromkeys(SHOWN, 0.0001)
    for snapshot in rig.run(300):
        assert shown(snapshot) == set(SHOWN.values())
    assert of(snapshot, "sampling_interval_seconds") == {"fast": 0.5, "slow": 2.0, "cold": 8.0}
    assert [each.levelname for each in caplog.records] == ["WARNING", "INFO"]


def test_a_reload_keeps_the_step_and_a_budget_of_none_ends_it(rig: GovernedRig) -> None:
    rig.backend.cost = {Lane.FAST: 0.2, Lane.SLOW: 0.8, Lane.COLD: 0.1}
    *_, snapshot = rig.run(200)
    assert of(snapshot, "overhead_info", "state") == {"exhausted": 1}
    rig.loop.reconfigure(Settings(fast=0.5, slow=12.0, cold=40.0, cpu_budget=0.1))
    rig.loop._apply_settings()
    assert rig.loop.sampler.settings.slow == 48.0
    rig.loop.reconfigure(Settings(fast=0.5, slow=12.0, cold=40.0, cpu_budget=float("inf")))
    rig.loop._apply_settings()
    assert rig.loop.sampler.settings.slow == 12.0
    *_, snapshot = rig.run(2)
    assert not of(snapshot, "overhead_info", "state") and not of(snapshot, "sampling_slowdown_ratio")
    assert of(snapshot, "overhead_cpu_ratio")[""] > 0.1


def test_a_worker_that_takes_over_does_not_take_the_earlier_ones_time_back() -> None:
    used = {1: 0.0, 7: 0.0, 8: 0.0}
    governing = Governing(used.get)
    governing.configure(Settings())

    def run(pid: int, seconds: Sequence[int]) -> float:
        for at in seconds:
            used[pid] += 0.1
            governing.step(float(at), {"main": 1, "worker": pid})
        return next(iter(governing.frame(Instant(0.0, 0.0)).values))

    assert run(7, range(100)) == pytest.approx(0.1)
    used[7] = 0.0  # it is gone
    assert run(8, range(100, 140)) == pytest.approx(0.1, rel=0.1)  # what it used after the last look is lost


def test_threads_are_added_up_by_name_and_what_ended_stays() -> None:
    go = threading.Event()
    thread = threading.Thread(target=go.wait, args=(10,), name="sampler", daemon=True)
    thread.start()
    costs = ThreadCosts({thread.native_id: 2.5}.get, lambda _: 4.0)
    assert by_thread(costs) == {"sampler": 2.5, "other": 1.5}
    go.set()
    thread.join(10)
    assert by_thread(costs) == {"sampler": 2.5, "other": 1.5}
    real = by_thread(ThreadCosts())
    assert real["main"] > 0
    assert real["other"] >= 0


def by_thread(costs: ThreadCosts) -> dict[str, float]:
    return {dict(each.labels)["thread"]: each.value for each in costs.read()}


def process(root: Path, pid: int, user: int, system: int, pages: int) -> None:
    (root / str(pid)).mkdir(exist_ok=True)
    before = "S 1 1 1 0 -1 0 0 0 0 0"  # fields 3 to 13
    between = "0 0 20 0 9 0 100 1000"  # fields 16 to 23
    (root / str(pid) / "stat").write_text(f"{pid} (a (strange) name) {before} {user} {system} {between} {pages} 0 0\n")


def read(own: OwnProcesses, pids: dict[str, int]) -> dict[tuple[str, str], float]:
    return {(row.metric.name.split("_")[2], dict(row.labels)["process"]): row.value for row in own.read(pids)}


def test_a_roles_time_keeps_growing_when_another_process_takes_over(tmp_path: Path) -> None:
    own = OwnProcesses(tmp_path)
    process(tmp_path, 7, 90 * TICKS, 10 * TICKS, 10)
    process(tmp_path, 8, 2 * TICKS, 0, 1)
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text("garbage")
    assert read(own, {"worker": 7, "main": 9, "broker": 10}) == {
        ("cpu", "worker"): 100.0,
        ("resident", "worker"): 10 * PAGE,
    }
    assert read(own, {"worker": 8})["cpu", "worker"] == 102.0
    process(tmp_path, 8, 5 * TICKS, 0, 1)
    assert read(own, {"worker": 8})["cpu", "worker"] == 105.0
