"""What the hub publishes, what the agent shows of itself and of the last minutes, and when it is ready."""

import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agent import __version__
from agent.catalogue import BY_NAME
from agent.daemon.hub import MOMENTS, Hub, RecentReadings
from agent.daemon.reloading import LastReload
from agent.daemon.self_report import HUNG_SECONDS, UNWRITTEN_SECONDS, Readiness, SelfMetrics
from agent.lib.state_files import FileState
from agent.lib.threads import ThreadState
from agent.model import BackendReport, Gpu, Instant, Lane, Outcome, Reading, Series, Snapshot
from agent.sampler.backend_runner import Flight
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from exporters.protection.web_gate import WebReload
from tests.engine.conftest import Node, later
from tests.frames import snapshot_of


def test_the_latest_snapshot_is_there_before_any_follower_sees_it() -> None:
    hub, seen = Hub(), []
    for _ in range(2):  # with one description
        hub.follow("looking", lambda snapshot: seen.append((snapshot, hub.latest)))
    assert hub.latest is None and hub.period == float("inf")
    snapshots = [Node().snapshot({}, later(second)) for second in range(2)]
    for each in snapshots:
        hub.publish(each)
    assert seen == [(each, each) for each in snapshots for _ in range(2)]


def shown(own: SelfMetrics) -> dict[tuple[str, ...], float]:
    return {
        (each.metric.name.removeprefix("coldplate_"), *(value for _, value in each.series.all_labels)): each.value
        for each in own.frame(Instant(0.0, 0.0)).readings
    }


def test_the_agent_shows_its_build_its_configuration_its_threads_and_its_files() -> None:
    last = LastReload(1000.0)
    own = SelfMetrics(
        None,
        last,
        lambda: [ThreadState("rules", True, 3), ThreadState("http", False, 0)],
        lambda: [FileState("alerts.state", False, 7), FileState("rack.state", True, 0, 900.0)],
    )
    assert shown(own) == {
        ("build_info", __version__, platform.python_version()): 1,
        ("config_last_reload_successful",): 1,
        ("config_last_reload_success_timestamp_seconds",): 1000.0,
        ("thread_up", "rules"): 1,
        ("thread_restarts_total", "rules"): 3,
        ("thread_up", "http"): 0,
        ("thread_restarts_total", "http"): 0,
        ("state_write_successful", "alerts.state"): 0,
        ("state_write_failures_total", "alerts.state"): 7,
        ("state_write_successful", "rack.state"): 1,
        ("state_write_failures_total", "rack.state"): 0,
        ("state_last_write_success_timestamp_seconds", "rack.state"): 900.0,
    }
    last.good = False
    assert shown(own)["config_last_reload_successful",] == 0
    assert shown(own)["config_last_reload_success_timestamp_seconds",] == 1000.0


def test_what_protects_the_port_is_shown_where_something_does() -> None:
    reload, refused = WebReload(900.0, good=False), {"certificate": 3, "login": 0}
    own = SelfMetrics("straggler", LastReload(1.0), web=lambda: reload, refused=lambda: refused)
    found = {
        ("web_config_last_reload_successful",): 0,
        ("web_config_last_reload_success_timestamp_seconds",): 900.0,
        ("web_requests_rejected_total", "certificate"): 3,
        ("web_requests_rejected_total", "login"): 0,
    }
    assert web(own) == found
    reload.expires = 2000.0  # a certificate that came with a change
    assert web(own) == {**found, ("web_certificate_expiry_timestamp_seconds",): 2000.0}
    assert web(SelfMetrics(None, LastReload(1.0))) == {}
    assert shown(own)["synthetic_info", "straggler"] == 1


def web(own: SelfMetrics) -> dict[tuple[str, ...], float]:
    return {name: value for name, value in shown(own).items() if name[0].startswith("web_")}


GPU = Gpu("0", "GPU-0")
POWER = Series(BY_NAME["coldplate_gpu_power_watts"], GPU)
HEAT = Series(BY_NAME["coldplate_gpu_temperature_celsius"], GPU)


def at(second: float, watts: float, epoch: float = 1_000.0) -> Snapshot:
    return snapshot_of(1, Instant(second, epoch + second), (Reading(HEAT, 40.0), Reading(POWER, watts)))


def test_what_is_drawn_is_kept_once_a_second_until_it_is_old_and_nothing_else() -> None:
    kept = RecentReadings()
    kept.observe(at(0.0, 7.0))
    ((wall, ((layout, values),)),) = kept.moments()
    assert (wall, layout.series, list(values)) == (1_000.0, (POWER,), [7.0])
    for tenth in range(1, 100):
        kept.observe(at(tenth / 10, tenth))
    assert [moment.wall - 1_000.0 for moment in kept.moments()] == [float(second) for second in range(10)]
    for second in range(10, MOMENTS + 5):
        kept.observe(at(float(second), 1.0))
    walls = [moment.wall for moment in kept.moments()]
    assert (len(walls), walls[0], walls[-1]) == (MOMENTS, 1_005.0, 1_000.0 + MOMENTS + 4)


def test_the_hub_gives_some_rows_of_the_latest_snapshot() -> None:
    hub = Hub()
    read = hub.reader_of({POWER.metric.name})
    assert read() == []
    for watts in (7.0, 8.0):
        hub.publish(at(5.0, watts))
        assert read() == [Reading(POWER, watts)]
    assert hub.reader_of(())() == []


SETTINGS = Settings(fast=2.0)
PATIENCE = SETTINGS.stale_after(Lane.FAST)


def asked(age: float, signs: dict[str, Callable[[], Any]] | None = None, **outcomes: Outcome) -> tuple[bool, str]:
    """What is answered so many seconds after a sample in which sources fared so, where parts give these signs."""
    hub = Hub()
    reports = tuple(BackendReport(name, outcome, 0.0, "says why") for name, outcome in outcomes.items())
    hub.publish(replace(Node().snapshot({}, Instant(100.0, 1e9)), reports=reports))
    return readiness(hub, 100.0 + age, **(signs or {}))


def readiness(hub: Hub, at: float, **signs: Callable[[], Any]) -> tuple[bool, str]:
    return Readiness(hub, Sampler(SETTINGS, Inventory(None), "nvml"), lambda: Instant(at, 1e9), **signs)()


@pytest.mark.parametrize(
    ("age", "ready", "text"),
    [
        (0.0, True, "the last sample is 0.0 s old"),
        (PATIENCE, True, f"the last sample is {PATIENCE:.1f} s old"),
        (PATIENCE + 0.1, False, f"the last sample is {PATIENCE + 0.1:.1f} s old"),
        (-0.5, True, "the last sample is 0.0 s old"),
    ],
)
def test_it_is_ready_while_the_last_sample_is_fresh(age: float, ready: bool, text: str) -> None:
    assert asked(age, nvml=Outcome.OK) == (ready, text)


def test_devices_that_cannot_be_read_are_named_and_other_sources_do_not_matter() -> None:
    assert asked(0.0, host=Outcome.OK, nvml=Outcome.FAILED) == (False, "the devices cannot be read: says why")
    assert asked(0.0, nvml=Outcome.OK, infiniband=Outcome.FAILED)[0]
    assert asked(0.0, nvml=Outcome.ABSENT)[0]
    assert readiness(Hub(), 0.0) == (False, "no sample yet")


def stopped(**signs: Callable[[], Any]) -> list[str]:
    """The lines of a node with a fresh sample; none if it is ready."""
    ready, text = asked(0.0, signs)
    return [] if ready else text.splitlines()


def test_every_part_that_has_stopped_has_a_line() -> None:
    threads = {
        "rules": "has made no progress for 31 s",
        "state": "ended by OSError: x",
        "backend-host": "cannot be started: y",
        "notify": "ended by ValueError: a receiver's, which has its own alert",
    }
    assert stopped(threads=lambda: threads) == [
        "backend host: its thread cannot be started: y",
        "rules are not evaluated: their thread has made no progress for 31 s",
        "state is not written: its thread ended by OSError: x",
    ]
    assert stopped(rules=lambda: "KeyError: 'x'") == ["rules are not evaluated: KeyError: 'x'"]
    assert stopped() == []
    for good, waiting, told in (
        (False, UNWRITTEN_SECONDS, []),
        (False, UNWRITTEN_SECONDS + 1, ["state is not written: alerts.state for 61 s"]),
        (True, 0.0, []),
    ):
        files = [FileState("alerts.state", good, 3, None, waiting)]
        assert stopped(files=lambda files=files: files) == told


def test_a_source_that_hangs_counts_and_one_that_fails_does_not() -> None:
    hub, sampler = Hub(), Sampler(SETTINGS, Inventory(None), "nvml")
    at = 100.0
    readiness = Readiness(hub, sampler, lambda: Instant(at, 1e9))
    flights = {"infiniband": Flight(Lane.SLOW, 100.0)}
    for at, ready in ((100.0 + HUNG_SECONDS, True), (101.0 + HUNG_SECONDS, False)):
        hub.publish(sampler.snapshot(Instant(at, 1e9), LoopFacts(flights=flights)))
        assert readiness()[0] == ready
    assert readiness()[1] == "backend infiniband has not answered for 16 s"
    hub.publish(sampler.snapshot(Instant(at, 1e9), LoopFacts()))
    assert readiness()[0]
