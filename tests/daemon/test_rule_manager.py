"""The rules' thread: what a round that fails costs, what a restart and a reload keep, and what the end waits for."""

import gc
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.daemon.alert_store import AlertStateStore
from agent.daemon.hub import Hub
from agent.daemon.rule_manager import STALL_TIMEOUT_SECONDS, AlertingSettings, RuleManager
from agent.lib.http_target import HttpTarget
from agent.lib.threads import Threads
from agent.model import Instant, Labels, Phase, Reading, Series
from alerts import alert_state
from alerts.engine import Ruleset
from alerts.exposition import MAX_SUMMARY_LETTERS
from alerts.notify.alertmanager import Alertmanager
from tests.daemon.test_alert_store import Files
from tests.engine.conftest import Node, later, ruleset
from tests.notify.conftest import Ear
from tests.waiting import wait_until

UP = ("coldplate_gpu_up", "0")
DOWN = "{alert: Down, expr: coldplate_gpu_up == 0}"
TARGET = (("instance", "n1:19400"), ("job", "coldplate"))
INTERVAL = 0.02
"""Seconds of a real clock that a round waits for: the second that it is, is the test's."""


class Bench:
    """A rule manager, the second that it is, and what goes in and comes out. Each `round` is a second later."""

    def __init__(self, rules: str, *receivers: Any, store: AlertStateStore | None = None, begin: float = 0.0) -> None:
        self.second = begin
        self.hub = Hub()
        self.step = 0.0
        """Seconds by which the wall clock was set."""
        self.trouble: Exception | None = None
        self.free = threading.Event()
        """While it is not set, a round hangs."""
        self.free.set()
        self._node = Node()
        self.asked: list[Instant] = []
        self.threads = Threads(lambda: later(self.second).mono)
        self.manager = RuleManager(
            settings(rules, *receivers),
            TARGET,
            lambda: later(self.second, self.step),
            self.hub,
            store=store,
            foreign=self._foreign,
            threads=self.threads,
        )

    def _foreign(self, now: Instant) -> Sequence[Reading]:
        self.asked.append(now)
        self.free.wait(10)
        if self.trouble is not None:
            raise self.trouble
        return ()

    def round(self, up: float = 1.0) -> None:
        """One more second, and a snapshot in it; over when the round on it is."""
        self.second += 1.0
        asked = len(self.asked)
        self.hub.publish(self._node.snapshot({UP: up}, later(self.second)))
        wait_until(lambda: len(self.asked) > asked + 1)  # the next one has begun, so that one is over

    def value(self, name: str, **labels: str) -> float | None:
        found = [
            each.value
            for each in self.manager.frame(later(self.second)).readings
            if each.metric.name == f"coldplate_{name}" and labels.items() <= dict(each.series.all_labels).items()
        ]
        return found[0] if found else None


def settings(rules: str, *receivers: Any, labels: Labels = ()) -> AlertingSettings:
    found: Ruleset = ruleset(rules, interval=INTERVAL) if rules else Ruleset(interval=INTERVAL)
    return AlertingSettings(found, receivers, 60.0, labels)


@pytest.fixture
def begun() -> Iterator[list[Bench]]:
    """Benches put in here are started by `start`, and stopped with the test."""
    made: list[Bench] = []
    yield made
    for bench in made:
        bench.manager.stop()


def start(bench: Bench, begun: list[Bench]) -> Bench:
    bench.manager.start()
    begun.append(bench)
    return bench


def test_a_round_that_fails_is_reported_once_counted_each_time_and_continued(begun: list[Bench], caplog) -> None:
    ear = Ear()
    bench = start(Bench(DOWN, ear), begun)
    bench.round()
    assert bench.value("rule_evaluation_failures_total", rule_group="engine") == 0

    def failures() -> float:
        return bench.value("rule_evaluation_failures_total", rule_group="engine") or 0.0

    bench.trouble = ZeroDivisionError("odd")
    wait_until(lambda: failures() >= 3)
    assert [each.getMessage() for each in caplog.records] == ["rule evaluation round failed: continuing with the next"]
    assert caplog.records[0].exc_info
    bench.trouble = ValueError("odd")  # of another kind
    wait_until(lambda: len(caplog.records) == 2)
    bench.trouble = None
    bench.round(up=0.0)
    assert [notice.alert.rule for _, notice in ear.heard] == ["Down"]
    bench.trouble = ValueError("odd")  # it was well in between: that is news
    wait_until(lambda: len(caplog.records) == 3)
    bench.trouble = None


def test_evaluations_are_counted_from_zero_by_group(begun: list[Bench]) -> None:
    bench = start(Bench(DOWN), begun)
    for what in ("evaluations", "evaluation_failures", "evaluation_seconds", "group_iterations_missed"):
        assert {bench.value(f"rule_{what}_total", rule_group=group) for group in ("g", "engine")} == {0}
    assert bench.value("alert") is None
    for _ in range(3):
        bench.round()
    assert bench.value("rule_evaluations_total", rule_group="g") == 3
    assert (bench.value("rule_evaluation_seconds_total", rule_group="g") or 0.0) > 0
    missed = bench.value("rule_group_iterations_missed_total", rule_group="g")
    assert missed == pytest.approx(2 * (1 / INTERVAL - 1), abs=1)  # a second between two rounds
    assert bench.value("rule_evaluations_total", rule_group="engine") == 0


def test_a_rule_that_fails_is_reported_once_and_once_more_when_it_works_again(begun: list[Bench], caplog) -> None:
    caplog.set_level(logging.INFO)
    two = "label_replace(vector(1), 'x', '1', '', '') or label_replace(vector(1), 'x', '2', '', '')"
    rules = f'{{record: many, expr: "{two}"}}, {{record: a, expr: "vector(1) + on () many"}}'
    bench = start(Bench(rules), begun)
    for _ in range(3):
        bench.round()
    (told,) = [each for each in caplog.records if each.getMessage().startswith("rule failed")]
    facts = vars(told)["facts"]
    assert (facts["rule_group"], facts["rule"]) == ("rules.yml;g", "a")
    assert "many" in facts["error"]
    assert bench.value("rule_evaluation_failures_total", rule_group="g") == 3
    bench.manager.reconfigure(settings("{record: a, expr: coldplate_gpu_up}"))
    for _ in range(2):
        bench.round()
    messages = [each.getMessage() for each in caplog.records]
    assert messages.count("rule succeeds again") == 1


def test_without_a_snapshot_nothing_is_evaluated_then_the_last_one_counts(begun: list[Bench]) -> None:
    bench = start(Bench("{record: a, expr: vector(1)}"), begun)
    bench.manager.reconfigure(settings("{alert: Old, expr: coldplate_sample_age_seconds > 5}"))
    wait_until(lambda: [each.rules[0].name for each in bench.manager.reports()] == ["Old"])
    assert bench.asked == []
    assert bench.manager.reports()[0].evaluated_at is None
    bench.round()
    assert bench.value("alert", alertname="Old") is None
    bench.second += 10.0
    wait_until(lambda: bench.value("alert", alertname="Old") == 1)


def run_before(folder: Path, *told: str) -> None:
    """An earlier run, that fired when it ended at second 100, and whose receivers so named knew of it."""
    files = Files()
    ears = [Ear(url, repeats=False) for url in told]
    for each in ears:
        each.url = each.name
    bench = Bench(DOWN, *ears, store=AlertStateStore(folder, "devices", files), begin=99.0)  # type: ignore[arg-type]
    bench.manager.start()
    bench.round(up=0.0)
    bench.manager.stop()
    for name, content in files.content.items():
        (folder / name).write_bytes(content)


def taken_up(folder: Path, begun: list[Bench], *receivers: Any, rules: str = DOWN) -> Bench:
    """A later run, 30 seconds after that."""
    store = AlertStateStore(folder, "devices", Files())  # type: ignore[arg-type]
    return start(Bench(rules, *receivers, store=store, begin=130.0), begun)


def test_after_a_restart_receivers_that_knew_are_not_notified_again_and_others_are(
    tmp_path: Path, begun: list[Bench]
) -> None:
    run_before(tmp_path, "http://knew")
    knew, missed, nameless = Ear(repeats=False), Ear(repeats=False), Ear(repeats=False)
    knew.url, missed.url = "http://knew", "http://missed"
    bench = taken_up(tmp_path, begun, knew, missed, nameless)
    assert bench.value("alert", alertname="Down", alertstate="firing") == 1  # before the first round
    bench.round(up=0.0)
    assert [len(each.heard) for each in (knew, missed, nameless)] == [0, 1, 0]


EFFECT = """
{alert: GpuLost, expr: 'label_replace(coldplate_gpu_up == 0, "state", "", "", "")'},
{alert: GpuHot, expr: coldplate_gpu_up == 0, keep_firing_for: 28m}
"""


@pytest.mark.parametrize("interruption", ["none", "reload", "restart"])
def test_what_began_under_its_cause_is_not_sent_when_that_ends_nor_after_a_restart(
    interruption: str, tmp_path: Path, begun: list[Bench]
) -> None:
    files, ear = Files(), Ear()
    bench = Bench(EFFECT, ear, store=AlertStateStore(tmp_path, "devices", files))  # type: ignore[arg-type]
    bench.manager.start()
    bench.round(up=0.0)
    bench.round()
    if interruption == "reload":
        bench.manager.reconfigure(settings(EFFECT, ear))
    bench.round()
    bench.manager.stop()
    for name, content in files.content.items():
        (tmp_path / name).write_bytes(content)
    if interruption == "restart":
        bench = taken_up(tmp_path, begun, ear, rules=EFFECT)
        bench.round()
    shown = [each for group in bench.manager.reports() for rule in group.rules for each in rule.alerts]
    assert [(each.rule, each.inhibited_by) for each in shown if each.phase is Phase.FIRING] == [("GpuHot", "GpuLost")]
    assert {notice.alert.rule for _, notice in ear.heard} == {"GpuLost"}


def test_after_a_restart_the_end_of_what_no_rule_watches_any_more_is_reported(tmp_path, begun: list[Bench]) -> None:
    run_before(tmp_path)
    ear, repeating = Ear(repeats=False), Ear()
    taken_up(tmp_path, begun, ear, repeating, rules="{alert: Other, expr: vector(0) > 1}")
    assert repeating.heard == []
    ((at, notice),) = ear.heard
    assert (notice.alert.rule, notice.alert.phase) == ("Down", Phase.RESOLVED)
    assert at == notice.alert.resolved_at == later(130.0).wall


def test_a_receiver_for_which_something_is_queued_is_not_saved_as_notified(tmp_path: Path) -> None:
    files = Files()
    done, waits, again, nameless = (Ear(repeats=False) for _ in range(4))
    done.url, waits.url, again.url = "http://done", "http://waits", "http://again"
    waits.queued, again.repeats = 1, True
    store = AlertStateStore(tmp_path, "devices", files)  # type: ignore[arg-type]
    bench = Bench(DOWN, done, waits, again, nameless, store=store)
    bench.manager.start()
    bench.round(up=0.0)
    during = alert_state.decode(files.content["alerts.state"])
    waits.queued = 0
    bench.manager.stop()
    after = alert_state.decode(files.content["alerts.state"])
    assert (set(during.notified), set(after.notified)) == ({"http://done"}, {"http://done", "http://waits"})


def test_the_end_is_written_once_the_last_round_is_over_and_receivers_get_a_moment(
    tmp_path: Path, begun: list[Bench]
) -> None:
    files, ear = Files(), Ear()
    bench = Bench(DOWN, ear, store=AlertStateStore(tmp_path, "devices", files))  # type: ignore[arg-type]
    bench.manager.start()
    bench.round(up=0.0)
    files.content.clear()
    bench.second += 1.0
    bench.manager.stop()
    assert set(files.content) == {"alerts.state", "windows.state"}
    assert alert_state.decode(files.content["alerts.state"]).at == later(bench.second).wall
    assert len(ear.stopped) == 1 and ear.stopped[0] > 0
    asked = len(bench.asked)
    bench.hub.publish(bench.hub.latest)  # type: ignore[arg-type]
    threading.Event().wait(5 * INTERVAL)
    assert len(bench.asked) == asked


def test_a_round_that_hangs_at_the_end_delays_nothing_and_writes_nothing(tmp_path: Path, monkeypatch) -> None:
    """What it works on is in no state to be written."""
    monkeypatch.setattr("agent.daemon.rule_manager.CLOSING_SECONDS", 0.05)
    files = Files()
    bench = Bench(DOWN, store=AlertStateStore(tmp_path, "devices", files))  # type: ignore[arg-type]
    bench.free.clear()
    bench.manager.start()
    bench.hub.publish(Node().snapshot({UP: 0.0}, later(0)))
    wait_until(lambda: bench.asked)
    bench.manager.stop()
    assert files.content == {}
    bench.free.set()


def test_a_round_that_hangs_is_trouble_of_the_process_until_it_ends(begun: list[Bench]) -> None:
    bench = start(Bench(DOWN), begun)
    bench.round()

    def pass_time(seconds: float) -> str:
        for _ in range(int(seconds)):
            bench.second += 1.0
            bench.threads.tend()
        return bench.threads.trouble()

    bench.free.clear()
    asked = len(bench.asked)
    wait_until(lambda: len(bench.asked) > asked)
    bench.threads.tend()
    assert pass_time(STALL_TIMEOUT_SECONDS - 1) == ""
    assert pass_time(3).startswith("thread rules has made no progress")
    bench.free.set()
    wait_until(lambda: pass_time(1) == "")


def test_a_reload_ends_the_alerts_of_groups_that_go_and_shows_new_ones_from_zero(begun: list[Bench]) -> None:
    ear = Ear(repeats=False)
    bench = start(Bench(DOWN, ear), begun)
    bench.round(up=0.0)
    bench.manager.reconfigure(settings("groups: [{name: new, rules: [{record: a, expr: b}]}]", ear))
    bench.round(up=0.0)
    assert [notice.alert.phase for _, notice in ear.heard] == [Phase.FIRING, Phase.RESOLVED]
    assert ear.heard[-1][0] == later(bench.second).wall
    assert bench.value("rule_evaluations_total", rule_group="new") is not None
    assert bench.value("rule_evaluations_total", rule_group="g") is None  # as Prometheus does
    assert bench.value("alert") is None


def test_an_alert_shows_its_own_labels_and_none_of_ended_ones(begun: list[Bench]) -> None:
    bench = start(Bench(DOWN), begun)

    def remembered() -> int:
        gc.unfreeze()  # what was made while rules were read is among it
        return sum(type(each) is Series and each.metric.name == "coldplate_alert" for each in gc.get_objects())

    bench.round(up=0.0)
    before = remembered()
    own = {"alertname": "Down", "alertstate": "firing", "gpu": "0", "uuid": "GPU-0"}  # and not those of the target
    alerts = (each for each in bench.manager.frame(later(0)).readings if each.metric.name == "coldplate_alert")
    assert [(each.value, dict(each.series.labels)) for each in alerts] == [(1, own)]
    for _ in range(3):
        bench.round(up=1.0)
    assert remembered() < before


LOST_AND_HOT = """
{alert: GpuLost, expr: coldplate_gpu_up == 0, labels: {severity: critical},
 annotations: {summary: '{{ printf "%0300d" 7 }}'}},
{alert: GpuHot, expr: coldplate_gpu_up < 1, labels: {severity: warning}, annotations: {summary: "up is {{ $value }}"}}
"""


def test_a_firing_alert_has_a_summary_of_its_start_and_its_cause(begun: list[Bench]) -> None:
    bench = start(Bench(LOST_AND_HOT), begun)

    def infos() -> dict[str, dict[str, str]]:
        page = bench.manager.frame(later(bench.second)).readings
        series = [dict(each.series.labels) for each in page if each.metric.name == "coldplate_alert_text_info"]
        return {labels["alertname"]: labels for labels in series}

    bench.round(up=0.5)
    assert infos() == {
        "GpuHot": {"alertname": "GpuHot", "severity": "warning", "gpu": "0", "uuid": "GPU-0", "summary": "up is 0.5"}
    }
    bench.round(up=0.0)
    shown = infos()
    assert shown["GpuHot"]["summary"] == "up is 0.5", "figures that change would be new series at each evaluation"
    assert shown["GpuHot"]["inhibited_by"] == "GpuLost"
    assert "inhibited_by" not in shown["GpuLost"]
    assert len(shown["GpuLost"]["summary"]) == MAX_SUMMARY_LETTERS
    bench.round(up=1.0)
    assert infos() == {}


def test_a_reload_stops_receivers_that_it_leaves_out(begun: list[Bench]) -> None:
    stays, leaves, comes = Ear("stays"), Ear("leaves"), Ear("comes")
    bench = start(Bench(DOWN, stays, leaves), begun)
    bench.round(up=0.0)
    bench.manager.reconfigure(settings(DOWN, stays, comes, labels=(("cluster", "c1"),)))
    wait_until(lambda: leaves.stopped)
    bench.second += 60.0
    bench.round(up=0.0)
    assert (stays.stopped, comes.stopped) == ([], [])
    clusters = [[dict(each.alert.labels).get("cluster") for _, each in ear.heard] for ear in (stays, leaves, comes)]
    assert clusters == [[None, "c1"], [None], ["c1"]]
    assert bench.value("notifications_queue_length", notifier="comes") == 0
    assert bench.value("notifications_queue_length", notifier="leaves") is None


def test_undelivered_alerts_go_to_the_receiver_with_another_login_alone(begun: list[Bench]) -> None:
    def alertmanager(url: str, **more: Any) -> Alertmanager:
        return Alertmanager(HttpTarget(url, **more), lambda: later(0.0), "")

    old, gone = alertmanager("http://127.0.0.1:9"), alertmanager("http://127.0.0.1:10")
    new, other = alertmanager("http://127.0.0.1:9", timeout=1.0), alertmanager("http://127.0.0.1:11")
    bench = start(Bench(DOWN, old, gone), begun)
    bench.round()
    bench.manager.reconfigure(settings(DOWN, new, other))
    wait_until(lambda: old.successor is not None)
    assert (old.successor, gone.successor, new.successor) == (new, None, None)


@pytest.mark.parametrize("step", [3600.0, -3600.0])
def test_a_clock_that_is_set_sends_nothing_again_neither_what_fires_nor_what_is_over(
    begun: list[Bench], step: float
) -> None:
    ears = Ear(repeats=False), Ear()
    bench = start(Bench(DOWN, *ears), begun)
    for up, sent in ((0.0, 1), (1.0, 2)):
        bench.round(up)
        bench.step += step
        bench.round(up)
        bench.round(up)
        assert [len(each.heard) for each in ears] == [sent, sent]
