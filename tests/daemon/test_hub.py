"""The hub and who follows it, and what the agent shows of itself."""

from __future__ import annotations

import platform

import pytest

from agent import __version__
from agent.daemon.hub import Hub, Isolation
from agent.daemon.reloading import LastReload
from agent.daemon.self_report import SelfMetrics
from agent.lib.state_files import FileState
from agent.lib.threads import ThreadState
from agent.model import Instant
from exporters.protection.web_watch import WebReload
from tests.engine.conftest import Node, later


def test_the_latest_snapshot_is_there_before_any_follower_sees_it() -> None:
    hub, seen = Hub(), []
    hub.follow("looking", lambda snapshot: seen.append((snapshot, hub.latest)))
    assert hub.latest is None and hub.period == float("inf")
    snapshots = [Node().snapshot({}, later(second)) for second in range(2)]
    for each in snapshots:
        hub.publish(each)
    assert seen == [(each, each) for each in snapshots]


def test_what_fails_is_reported_once_for_each_part_and_each_way_of_failing(caplog: pytest.LogCaptureFixture) -> None:
    isolation = Isolation()

    def fail(error: Exception) -> int:
        raise error

    assert isolation.run("one", lambda: 1, 2) == 1
    for what, error in [("one", KeyError("a")), ("one", KeyError("a")), ("two", KeyError("a")), ("one", KeyError("b"))]:
        assert isolation.run(what, lambda error=error: fail(error), 2) == 2
    assert [each.getMessage() for each in caplog.records] == ["one failed", "two failed", "one failed"]
    assert all(each.exc_info for each in caplog.records)


def shown(own: SelfMetrics) -> dict[tuple[str, ...], float]:
    return {
        (each.metric.name.removeprefix("coldplate_"), *(value for _, value in each.series.all_labels)): each.value
        for each in own.frame(Instant(0.0, 0.0)).readings
    }


def test_the_agent_shows_its_build_its_configuration_its_threads_and_its_files() -> None:
    last = LastReload(1000.0)
    own = SelfMetrics(
        None, last,
        lambda: [ThreadState("rules", True, 3), ThreadState("http", False, 0)],
        lambda: [FileState("alerts.state", False, 7), FileState("rack.state", True, 0, 900.0)],
    )  # fmt: skip
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
    refused = {"certificate": 3, "login": 0}
    own = SelfMetrics(None, LastReload(1.0), web=lambda: WebReload(900.0, 2000.0, good=False), refused=lambda: refused)
    found = {name: value for name, value in shown(own).items() if name[0].startswith("web_")}
    assert found == {
        ("web_config_last_reload_successful",): 0,
        ("web_config_last_reload_success_timestamp_seconds",): 900.0,
        ("web_certificate_expiry_timestamp_seconds",): 2000.0,
        ("web_refusals_total", "certificate"): 3,
        ("web_refusals_total", "login"): 0,
    }
    assert not [name for name in shown(SelfMetrics(None, LastReload(1.0))) if name[0].startswith("web_")]


def test_a_certificate_that_comes_with_a_change_is_shown_from_then_on() -> None:
    reload = WebReload(900.0)
    own = SelfMetrics(None, LastReload(1.0), web=lambda: reload)
    assert ("web_certificate_expiry_timestamp_seconds",) not in shown(own)
    reload = WebReload(901.0, 2000.0)
    assert shown(own)["web_certificate_expiry_timestamp_seconds",] == 2000.0


def test_a_drill_is_marked_as_one_with_what_it_plays() -> None:
    assert shown(SelfMetrics("straggler", LastReload(0.0)))["synthetic_info", "straggler"] == 1


def test_followers_and_tellers_with_one_description_are_all_called() -> None:
    hub, seen = Hub(), list[int]()
    for number in range(2):
        hub.follow("looking", lambda _, number=number: seen.append(number))
    hub.publish(Node().snapshot({}, later(0)))
    assert seen == [0, 1]
