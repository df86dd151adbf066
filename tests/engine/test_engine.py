"""The engine: rounds, intervals, clocks that are set, reloads and restarts."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from agent.model import Alert, Phase, RuleHealth
from alerts import alert_state
from alerts.engine import RuleEngine, Ruleset
from alerts.windows import archive
from tests.engine.conftest import START, Node, later, ruleset

TARGET = (("instance", "n:19400"), ("job", "coldplate"))
HOT = "{alert: Hot, expr: t > 80, for: 10s, labels: {severity: warning}}"
HOT_KEPT = "{alert: Hot, expr: t > 80, for: 10s, keep_firing_for: 20s}"


class Run:
    """An engine and the node that it judges."""

    def __init__(self, rules: Ruleset, node: Node, at: float = 0.0) -> None:
        self.node = node
        self.engine = RuleEngine(rules, TARGET, later(at))
        self.values: dict[tuple[str, str], float] = {}
        self.clock_step = 0.0

    def rounds(self, first: int, last: int, values: Mapping[tuple[str, str], float] | None = None) -> list[str]:
        """Rounds from one second to another, both included; the transitions, as `second: phase`."""
        told = []
        for second in range(first, last + 1):
            now = later(second, self.clock_step)
            for done in self.engine.round(self.node.snapshot(values or {}, now), now):
                told += [f"{second}: {each.alert.phase.value}" for each in done.outcome.transitions]
        return told

    def alerts(self) -> list[Alert]:
        return [record.alert for _, _, record in self.engine.remembered()]

    def saved(self, second: float) -> alert_state.Saved:
        return alert_state.decode(
            alert_state.encode(self.engine.time(later(second)), "devices", self.engine.remembered())
        )


HOT_NODE = {("t", "0"): 90.0}
COOL_NODE = {("t", "0"): 20.0}


def test_an_alert_lives_through_its_phases(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    assert run.rounds(0, 20, HOT_NODE) == ["0: pending", "10: firing"]
    assert run.rounds(21, 25, COOL_NODE) == ["21: resolved"]


def test_a_rule_is_evaluated_from_the_round_on_in_which_its_series_appear(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    assert run.rounds(0, 9, {("other", "0"): 90.0}) == []
    assert run.rounds(10, 25, HOT_NODE) == ["10: pending", "20: firing"]


def test_rules_see_the_labels_that_a_scrape_would_add(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 0, HOT_NODE)
    own = {"alertname": "Hot", "gpu": "0", "uuid": "GPU-0", "severity": "warning"}
    assert dict(run.alerts()[0].labels) == {**own, "instance": "n:19400", "job": "coldplate"}


def test_a_series_that_leaves_the_snapshot_ends_its_alert_at_once(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    assert run.rounds(13, 13, {}) == ["13: resolved"]


def test_groups_keep_their_intervals_and_take_turns(node: Node) -> None:
    group = "{{name: {0}, interval: {1}, rules: [{{record: 'r:{0}', expr: '1'}}]}}"
    text = "groups: [" + ", ".join(group.format(*each) for each in (("a", "5s"), ("b", "5s"), ("c", "1s"))) + "]"
    engine = RuleEngine(ruleset(text), TARGET, START)
    seen: dict[str, list[int]] = {}
    for second in range(20):
        for done in engine.round(node.snapshot({}, later(second)), later(second)):
            seen.setdefault(done.group.name, []).append(second)
    assert seen["c"] == list(range(20))
    assert seen["a"] == [0, 5, 10, 15]
    assert len(seen["b"]) == 4 and not set(seen["a"]) & set(seen["b"])


def test_evaluations_that_were_missed_are_not_caught_up(node: Node) -> None:
    text = "groups: [{name: g, interval: 5s, rules: [{record: r, expr: '1'}]}]"
    engine = RuleEngine(ruleset(text), TARGET, START)
    done = [len(engine.round(node.snapshot({}, later(second)), later(second))) for second in (0, 1, 63, 64, 65, 66)]
    assert done == [1, 0, 1, 0, 1, 0]


def test_a_page_that_does_not_change_shows_in_the_age_of_the_sample(node: Node) -> None:
    rules = ruleset("{alert: Stalled, expr: coldplate_sample_age_seconds > 15, for: 5s}")
    engine = RuleEngine(rules, TARGET, START)
    snapshot = node.snapshot({}, START)
    told = [
        f"{second}: {each.alert.phase.value}"
        for second in range(40)
        for done in engine.round(snapshot, later(second))
        for each in done.outcome.transitions
    ]
    assert told == ["16: pending", "21: firing"]


@pytest.mark.parametrize("step", [3600.0, -3600.0, 86_400.0 * 365])
def test_a_clock_that_is_set_changes_nothing_for_alerts_and_windows(step: float, node: Node) -> None:
    text = f"{HOT}, {{alert: Risen, expr: 'increase(t[20s]) > 5'}}"
    run = Run(ruleset(text), node)
    told = []
    for second in range(40):
        if second == 5:
            run.clock_step = step
        told += run.rounds(second, second, {("t", "0"): 81.0 + second / 2})
    undisturbed = Run(ruleset(text), node)
    assert told == [each for s in range(40) for each in undisturbed.rounds(s, s, {("t", "0"): 81.0 + s / 2})]
    assert "10: firing" in told
    since = {alert.rule: alert.active_at for alert in run.alerts()}
    assert since["Hot"] == pytest.approx(START.wall + step, abs=1)


def test_a_clock_that_is_slewed_is_followed_without_a_jump_of_time(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    told = []
    for second in range(20):
        run.clock_step = -0.04 * second
        told += run.rounds(second, second, HOT_NODE)
    assert told == ["0: pending", "10: firing"]


def test_a_rule_that_fails_affects_only_itself_and_keeps_its_alerts(node: Node) -> None:
    twice = "{alert: Twice, expr: 't * on () group_left () u'}"
    run = Run(ruleset(f"{twice}, {HOT}"), node)
    run.rounds(0, 12, {**HOT_NODE, ("u", "0"): 1.0})
    run.rounds(13, 13, {**HOT_NODE, ("u", "0"): 1.0, ("u", "1"): 1.0})
    (group,) = run.engine.reports()
    assert [rule.health for rule in group.rules] == [RuleHealth.FAILED, RuleHealth.OK]
    assert "many" in group.rules[0].error or "duplicate" in group.rules[0].error
    assert {alert.rule: alert.phase for alert in run.alerts()} == {"Twice": Phase.FIRING, "Hot": Phase.FIRING}


# -- reload -----------------------------------------------------------------------------------------------------------


def test_a_reload_keeps_alerts_and_history_of_rules_that_stay(node: Node) -> None:
    run = Run(ruleset(f"{HOT}, {{alert: Mean, expr: 'avg_over_time(t[30s]) > 80', for: 40s}}"), node)
    run.rounds(0, 12, HOT_NODE)
    run.engine.reload(ruleset(f"{{alert: Mean, expr: 'avg_over_time(t[30s]) > 70', for: 20s}}, {HOT}"), later(12.5))
    assert run.rounds(13, 25, HOT_NODE) == ["20: firing"]
    assert {alert.rule: alert.active_at for alert in run.alerts()} == {
        "Hot": START.wall - 0.5, "Mean": START.wall - 0.5}  # fmt: skip


def test_a_reload_that_makes_the_wait_longer_sends_a_firing_alert_back(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    run.engine.reload(ruleset(HOT.replace("10s", "30s")), later(12.5))
    assert run.rounds(13, 40, HOT_NODE) == ["13: pending", "30: firing"]


def test_rules_that_go_take_their_series_and_alerts_along(node: Node) -> None:
    gone = "{name: h, rules: [{alert: Gone, expr: \"ALERTS{alertname='Hot'}\"}]}"
    run = Run(ruleset(f"groups: [{{name: g, rules: [{HOT}]}}, {gone}]"), node)
    run.rounds(0, 12, HOT_NODE)
    assert {alert.rule for alert in run.alerts()} == {"Hot", "Gone"}
    assert run.engine.reload(ruleset(f"groups: [{gone}]"), later(12.5)) == ["rules.yml;g"]
    assert run.rounds(13, 15, HOT_NODE) == ["15: resolved"]  # two intervals later, as on a Prometheus server


def test_a_group_that_moves_to_another_file_takes_its_series_over(node: Node) -> None:
    record = "{name: g, rules: [{record: r, expr: t * 2}]}"
    reader = "{name: h, rules: [{alert: High, expr: r > 100}]}"
    run = Run(ruleset(f"groups: [{record}, {reader}]"), node)
    run.rounds(0, 5, HOT_NODE)
    moved = (*ruleset(f"groups: [{reader}]").files, *ruleset(f"groups: [{record}]", "other.yml").files)
    run.engine.reload(Ruleset(moved), later(5.5))
    assert run.rounds(6, 20, HOT_NODE) == []
    assert [rule.health for group in run.engine.reports() for rule in group.rules] == [RuleHealth.OK] * 2


def test_files_of_one_name_with_groups_of_one_name_are_separate(node: Node) -> None:
    files = tuple(ruleset(HOT, f"{folder}/x.yml").files[0] for folder in "ab")
    run = Run(Ruleset(files), node)
    assert run.rounds(0, 12, HOT_NODE) == ["0: pending", "0: pending", "10: firing", "10: firing"]
    keys = [key for key, _ in run.engine.groups()]
    assert keys == ["x.yml;g", "x.yml;g#2"]


def test_reloads_again_and_again_starve_no_group(node: Node) -> None:
    group = "{{name: {0}, interval: 15s, rules: [{{record: 'r:{0}', expr: '1'}}]}}"
    rules = ruleset("groups: [" + ", ".join(group.format(name) for name in "abcde") + "]")
    engine = RuleEngine(rules, TARGET, START)
    seen: dict[str, int] = {}
    for second in range(60):
        if second % 5 == 4:
            engine.reload(rules, later(second - 0.5))
        for done in engine.round(node.snapshot({}, later(second)), later(second)):
            seen[done.group.name] = seen.get(done.group.name, 0) + 1
    assert seen == dict.fromkeys("abcde", 4)


def test_durations_are_counted_on_the_grid_and_not_by_rounds_that_stray(node: Node) -> None:
    dice = random.Random(3)
    for _ in range(20):
        engine = RuleEngine(ruleset(f"groups: [{{name: g, interval: 5s, rules: [{HOT}]}}]"), TARGET, START)
        fired = [
            second
            for second in range(30)
            for now in [later(second + dice.uniform(0, 0.02))]
            for done in engine.round(node.snapshot(HOT_NODE, now), now)
            if any(each.alert.phase is Phase.FIRING for each in done.outcome.transitions)
        ]
        assert fired == [10]


# -- restart ----------------------------------------------------------------------------------------------------------


def test_downtime_does_not_count_as_pending(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 6, HOT_NODE)
    again = Run(ruleset(HOT), node, 306)
    again.engine.restore(run.saved(6), later(306))
    assert again.rounds(306, 320, HOT_NODE) == ["310: firing"]


def test_a_firing_alert_fires_on_as_the_same_incident(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    (before,) = run.alerts()
    again = Run(ruleset(HOT), node, 60)
    again.engine.restore(run.saved(12), later(60))
    assert again.alerts() == [before]
    assert again.rounds(60, 120, HOT_NODE) == []
    (after,) = again.alerts()
    assert (after.active_at, after.fired_at) == (before.active_at, before.fired_at)
    assert again.rounds(121, 121, COOL_NODE) == ["121: resolved"]


RISING = "{record: 'r', expr: 'rate(t[40s])'}, {alert: Rising, expr: 'max_over_time(r[20s]) > 0.9', for: 5s}"


def restarted(run: Run, rules: Ruleset, node: Node, ended: float, begins: float) -> Run:
    """Another engine with what the one before it left."""
    content = archive.encode(run.engine.time(later(ended)), "devices", run.engine.windows.kept())
    again = Run(rules, node, begins)
    again.engine.restore_windows(archive.decode(content), later(begins))
    again.engine.restore(run.saved(ended), later(begins))
    return again


def test_windows_continue_after_a_restart_as_if_there_had_been_a_gap(node: Node) -> None:
    run = Run(ruleset(RISING), node)
    for second in range(60):
        run.rounds(second, second, {("t", "0"): float(second)})
    again = restarted(run, ruleset(RISING), node, 59, 65)
    told = []
    for second in range(65, 200):
        told += again.rounds(second, second, {("t", "0"): float(second)})
    assert told == []
    # and it ends as if there had been no restart
    undisturbed = Run(ruleset(RISING), node)
    for second in range(200):
        undisturbed.rounds(second, second, {("t", "0"): float(second)})
    stands_still = {("t", "0"): 199.0}
    assert again.rounds(200, 280, stands_still) == undisturbed.rounds(200, 280, stands_still)


def test_a_series_that_is_gone_after_a_restart_ends_with_the_first_round(node: Node) -> None:
    rules = ruleset("{alert: There, expr: 'absent(t)', keep_firing_for: 1s}")
    run = Run(rules, node)
    run.rounds(0, 5, HOT_NODE)
    assert restarted(run, rules, node, 5, 8).rounds(8, 8, {}) == ["8: firing"]


STEEP = "{record: 'r', expr: 't > 80'}, {alert: Steep, expr: 'r > 80', for: 1m}"


def test_a_recorded_series_that_its_rule_no_longer_writes_does_not_outlive_a_restart(node: Node) -> None:
    """Else it would be seen for five minutes, and an alert that was pending would fire for what is over."""
    run = Run(ruleset(STEEP), node)
    assert run.rounds(0, 50, HOT_NODE) == ["0: pending"]
    again = restarted(run, ruleset(STEEP), node, 50, 55)
    assert again.rounds(55, 60, COOL_NODE) == []
    assert again.rounds(61, 400, COOL_NODE) == []
    assert again.alerts() == []


def test_a_recorded_series_that_its_rule_keeps_writing_continues_after_a_restart(node: Node) -> None:
    run = Run(ruleset(STEEP), node)
    run.rounds(0, 50, HOT_NODE)
    again = restarted(run, ruleset(STEEP), node, 50, 55)
    assert again.rounds(55, 400, HOT_NODE) == ["65: firing"]


def test_windows_of_rules_that_are_gone_are_not_restored(node: Node) -> None:
    run = Run(ruleset(RISING), node)
    run.rounds(0, 5, HOT_NODE)
    again = restarted(run, ruleset("{alert: Other, expr: u > 1}"), node, 5, 8)
    assert len(again.engine.windows) == 0


def test_an_alert_that_ended_while_the_agent_was_down_ends_once_every_source_has_had_time(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    again = Run(ruleset(HOT), node, 20)
    again.engine.restore(run.saved(12), later(20))
    assert again.rounds(20, 60, COOL_NODE) == ["50: resolved"]


def test_alerts_that_ended_a_while_ago_are_still_remembered(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    run.rounds(13, 14, COOL_NODE)
    again = Run(ruleset(HOT), node, 20)
    again.engine.restore(run.saved(14), later(20))
    assert [alert.phase for alert in again.alerts()] == [Phase.RESOLVED]
    again.rounds(20, 920, COOL_NODE)
    assert again.alerts() == []


def test_alerts_of_rules_that_are_gone_are_forgotten(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    again = Run(ruleset(HOT.replace("warning", "critical")), node, 20)
    again.engine.restore(run.saved(12), later(20))
    assert again.alerts() == []


def test_a_clock_that_is_set_right_after_a_restart_does_not_keep_alerts_that_are_over(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    again = Run(ruleset(HOT), node, 20)
    again.engine.restore(run.saved(12), later(20))
    again.rounds(20, 21, COOL_NODE)
    again.clock_step = -2000.0
    assert again.rounds(22, 60, COOL_NODE) == ["50: resolved"]


def test_firing_alerts_of_rules_that_are_gone_are_named_so_that_their_end_can_be_sent(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 12, HOT_NODE)
    again = Run(ruleset("{alert: Other, expr: u > 1}"), node, 20)
    assert [alert.rule for alert in again.engine.restore(run.saved(12), later(20))] == ["Hot"]


def test_a_state_from_the_future_is_moved_back(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 6, HOT_NODE)
    saved = run.saved(6)
    again = Run(ruleset(HOT), node)  # the clock is behind: no battery, no time server yet
    again.engine.restore(saved, later(0))
    assert again.rounds(0, 10, HOT_NODE) == ["4: firing"]


def test_an_alert_that_fired_in_the_future_fired_as_long_ago_as_it_did(node: Node) -> None:
    run = Run(ruleset(HOT), node)
    run.rounds(0, 20, HOT_NODE)
    again = Run(ruleset(HOT), node)
    again.engine.restore(run.saved(20), later(0))
    ((_, _, before),) = run.engine.remembered()
    ((_, _, after),) = again.engine.remembered()
    assert before.alert.fired_at is not None
    assert after.alert.fired_at == before.alert.fired_at - 20


def test_keep_firing_for_continues_after_a_restart(node: Node) -> None:
    run = Run(ruleset(HOT_KEPT), node)
    run.rounds(0, 12, HOT_NODE)
    run.rounds(13, 18, COOL_NODE)
    again = Run(ruleset(HOT_KEPT), node, 28)
    again.engine.restore(run.saved(18), later(28))
    assert again.rounds(28, 100, COOL_NODE) == ["58: resolved"]
