"""The engine: rounds, intervals, clocks that are set, reloads and restarts."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping

import pytest

from agent.model import Alert, Phase, RuleHealth
from alerts import alert_state
from alerts.engine import Evaluation, RuleEngine, Ruleset
from tests.engine.conftest import START, Node, later, ruleset

TARGET = (("instance", "n:19400"), ("job", "coldplate"))
HOT = "{alert: Hot, expr: t > 80, for: 10s, labels: {severity: warning}}"
HOT_KEPT = "{alert: Hot, expr: t > 80, for: 10s, keep_firing_for: 20s}"


class Run:
    """An engine and the node that it judges."""

    def __init__(self, rules: Ruleset, at: float = 0.0) -> None:
        self.rules = rules
        self.node = Node()
        self.engine = RuleEngine(rules, TARGET, later(at))
        self.clock_step = 0.0

    def rounds(self, first: int, last: int, values: Mapping[tuple[str, str], float] | None = None) -> list[str]:
        """Rounds from one second to another, both included; the transitions, as `second: phase`."""
        told = []
        for second in range(first, last + 1):
            for done in self.round(second, values):
                told += [f"{second}: {each.phase.value}" for each in done.outcome.transitions]
        return told

    def round(self, second: float, values: Mapping[tuple[str, str], float] | None = None) -> list[Evaluation]:
        now = later(second, self.clock_step)
        return self.engine.round(self.node.snapshot(values or {}, now), now)

    def each(self, seconds: range, value: Callable[[int], float]) -> list[str]:
        """Rounds of these seconds, in each of which `t` has the value of that second."""
        return [told for second in seconds for told in self.rounds(second, second, {("t", "0"): value(second)})]

    def alerts(self) -> list[Alert]:
        return [record.alert for _, _, record in self.engine.remembered()]

    def saved(self, second: float) -> alert_state.Saved:
        return alert_state.decode(
            alert_state.encode(self.engine.time(later(second)), "devices", self.engine.remembered())
        )

    def restarted(self, ended: float, begins: float, rules: Ruleset | None = None) -> Run:
        """Another engine with what this one left."""
        content = alert_state.encode_windows(self.engine.time(later(ended)), "devices", self.engine.windows.kept())
        again = Run(rules or self.rules, begins)
        again.engine.restore_windows(alert_state.decode_windows(content), later(begins))
        again.engine.restore(self.saved(ended), later(begins))
        return again


HOT_NODE = {("t", "0"): 90.0}
COOL_NODE = {("t", "0"): 20.0}


def hot(last: int) -> Run:
    run = Run(ruleset(HOT))
    run.rounds(0, last, HOT_NODE)
    return run


def test_a_rule_is_evaluated_from_the_first_round_of_its_series_to_their_end() -> None:
    run = Run(ruleset(HOT))
    assert run.rounds(0, 9, {("other", "0"): 90.0}) == []
    assert run.rounds(10, 25, HOT_NODE) == ["10: pending", "20: firing"]
    assert run.rounds(26, 26, {}) == ["26: resolved"]


def test_groups_keep_their_intervals_take_turns_and_do_not_catch_up() -> None:
    group = "{{name: {0}, interval: {1}, rules: [{{record: 'r:{0}', expr: '1'}}]}}"
    text = "groups: [" + ", ".join(group.format(*each) for each in (("a", "5s"), ("b", "5s"), ("c", "1s"))) + "]"
    run = Run(ruleset(text))
    seen: dict[str, list[int]] = {}
    for second in range(20):
        for done in run.round(second):
            seen.setdefault(done.group.name, []).append(second)
    assert seen["c"] == list(range(20))
    assert seen["a"] == [0, 5, 10, 15]
    assert len(seen["b"]) == 4 and not set(seen["a"]) & set(seen["b"])
    text = "groups: [{name: g, interval: 5s, rules: [{record: r, expr: '1'}]}]"
    run = Run(ruleset(text))
    assert [len(run.round(second)) for second in (0, 1, 63, 64, 65, 66)] == [1, 0, 1, 0, 1, 0]


def test_a_page_that_does_not_change_shows_in_the_age_of_the_sample() -> None:
    run = Run(ruleset("{alert: Stalled, expr: coldplate_sample_age_seconds > 15, for: 5s}"))
    snapshot = run.node.snapshot({}, START)
    told = [
        f"{second}: {each.phase.value}"
        for second in range(40)
        for done in run.engine.round(snapshot, later(second))
        for each in done.outcome.transitions
    ]
    assert told == ["16: pending", "21: firing"]


@pytest.mark.parametrize("step", [3600.0, -3600.0, 86_400.0 * 365])
def test_a_clock_that_is_set_changes_nothing_for_alerts_and_windows(step: float) -> None:
    text = f"{HOT}, {{alert: Risen, expr: 'increase(t[20s]) > 5'}}"
    run = Run(ruleset(text))
    told = run.each(range(5), lambda second: 81.0 + second / 2)
    run.clock_step = step
    told += run.each(range(5, 40), lambda second: 81.0 + second / 2)
    assert told == Run(ruleset(text)).each(range(40), lambda second: 81.0 + second / 2)
    assert "10: firing" in told
    since = {alert.rule: alert.active_at for alert in run.alerts()}
    assert since["Hot"] == pytest.approx(START.wall + step, abs=1)


def test_a_clock_that_is_slewed_is_followed_without_a_jump_of_time() -> None:
    run = Run(ruleset(HOT))
    told = []
    for second in range(20):
        run.clock_step = -0.04 * second
        told += run.rounds(second, second, HOT_NODE)
    assert told == ["0: pending", "10: firing"]


def test_a_rule_that_fails_affects_only_itself_and_keeps_its_alerts() -> None:
    twice = "{alert: Twice, expr: 't * on () group_left () u'}"
    run = Run(ruleset(f"{twice}, {HOT}"))
    run.rounds(0, 12, {**HOT_NODE, ("u", "0"): 1.0})
    run.rounds(13, 13, {**HOT_NODE, ("u", "0"): 1.0, ("u", "1"): 1.0})
    (group,) = run.engine.reports()
    assert [rule.health for rule in group.rules] == [RuleHealth.FAILED, RuleHealth.OK]
    assert "many" in group.rules[0].error or "duplicate" in group.rules[0].error
    assert {alert.rule: alert.phase for alert in run.alerts()} == {"Twice": Phase.FIRING, "Hot": Phase.FIRING}


# -- reload -----------------------------------------------------------------------------------------------------------


def test_a_reload_keeps_alerts_and_history_of_rules_that_stay() -> None:
    run = Run(ruleset(f"{HOT}, {{alert: Mean, expr: 'avg_over_time(t[30s]) > 80', for: 40s}}"))
    run.rounds(0, 12, HOT_NODE)
    run.engine.reload(ruleset(f"{{alert: Mean, expr: 'avg_over_time(t[30s]) > 70', for: 20s}}, {HOT}"), later(12.5))
    assert run.rounds(13, 25, HOT_NODE) == ["20: firing"]
    assert {alert.rule: alert.active_at for alert in run.alerts()} == {
        "Hot": START.wall - 0.5,
        "Mean": START.wall - 0.5,
    }


def test_a_reload_that_makes_the_wait_longer_sends_a_firing_alert_back() -> None:
    run = hot(12)
    run.engine.reload(ruleset(HOT.replace("10s", "30s")), later(12.5))
    assert run.rounds(13, 40, HOT_NODE) == ["13: pending", "30: firing"]


def test_rules_that_go_take_their_series_and_alerts_along() -> None:
    gone = "{name: h, rules: [{alert: Gone, expr: \"ALERTS{alertname='Hot'}\"}]}"
    run = Run(ruleset(f"groups: [{{name: g, rules: [{HOT}]}}, {gone}]"))
    run.rounds(0, 12, HOT_NODE)
    assert {alert.rule for alert in run.alerts()} == {"Hot", "Gone"}
    assert run.engine.reload(ruleset(f"groups: [{gone}]"), later(12.5)) == ["rules.yml;g"]
    assert run.rounds(13, 15, HOT_NODE) == ["15: resolved"]  # two intervals later, as on a Prometheus server


def test_a_group_that_moves_to_another_file_takes_its_series_over() -> None:
    record = "{name: g, rules: [{record: r, expr: t * 2}]}"
    reader = "{name: h, rules: [{alert: High, expr: r > 100}]}"
    run = Run(ruleset(f"groups: [{record}, {reader}]"))
    run.rounds(0, 5, HOT_NODE)
    moved = (*ruleset(f"groups: [{reader}]").files, *ruleset(f"groups: [{record}]", "other.yml").files)
    run.engine.reload(Ruleset(moved), later(5.5))
    assert run.rounds(6, 20, HOT_NODE) == []
    assert [rule.health for group in run.engine.reports() for rule in group.rules] == [RuleHealth.OK] * 2
    files = tuple(ruleset(HOT, f"{folder}/x.yml").files[0] for folder in "ab")
    run = Run(Ruleset(files))
    assert run.rounds(0, 12, HOT_NODE) == ["0: pending", "0: pending", "10: firing", "10: firing"]
    keys = [key for key, _ in run.engine.groups()]
    assert keys == ["x.yml;g", "x.yml;g#2"]


def test_reloads_again_and_again_starve_no_group() -> None:
    group = "{{name: {0}, interval: 15s, rules: [{{record: 'r:{0}', expr: '1'}}]}}"
    rules = ruleset("groups: [" + ", ".join(group.format(name) for name in "abcde") + "]")
    run = Run(rules)
    seen: Counter[str] = Counter()
    for second in range(60):
        if second % 5 == 4:
            run.engine.reload(rules, later(second - 0.5))
        seen.update(done.group.name for done in run.round(second))
    assert seen == dict.fromkeys("abcde", 4)


@pytest.mark.parametrize(("interval", "held"), [("1s", 10), ("2500ms", 10), ("5s", 10), ("7s", 14), ("15s", 15)])
def test_durations_are_counted_on_the_grid_and_not_by_rounds_that_stray(interval: str, held: float) -> None:
    """And no time of an alert is later than the round that gave it."""
    dice = random.Random(3)
    for _ in range(10):
        run = Run(ruleset(f"groups: [{{name: g, interval: {interval}, rules: [{HOT}]}}]"))
        changes: list[Alert] = []
        for second in range(80):
            at = second + dice.uniform(0.0, 0.45)
            for done in run.round(at, HOT_NODE if second < 40 else COOL_NODE):
                assert done.at <= later(at).wall
                changes += done.outcome.transitions
                assert all(each.resolved_at is None or each.resolved_at <= later(at).wall for each in changes)
        waits, fires, ends = changes
        assert (waits.phase, fires.phase, ends.phase) == (Phase.PENDING, Phase.FIRING, Phase.RESOLVED)
        assert fires.fired_at is not None and fires.fired_at - fires.active_at == pytest.approx(held)


# -- restart ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "hot", "ended", "begins", "values", "told"),
    [
        pytest.param(HOT, 6, 6, 306, HOT_NODE, "310: firing", id="downtime does not count as pending"),
        pytest.param(HOT, 12, 12, 20, COOL_NODE, "50: resolved", id="ended meanwhile: once every source had time"),
        pytest.param(HOT, 6, 6, 0, HOT_NODE, "4: firing", id="a state from the future, by a clock without battery"),
        pytest.param(HOT_KEPT, 12, 18, 28, COOL_NODE, "58: resolved", id="keep_firing_for continues"),
        pytest.param("{alert: Gone, expr: 'absent(t)'}", 5, 5, 8, {}, "8: firing", id="a series that is gone"),
    ],
)
def test_time_goes_on_after_a_restart(
    rule: str, hot: int, ended: int, begins: int, values: dict[tuple[str, str], float], told: str
) -> None:
    run = Run(ruleset(rule))
    run.rounds(0, hot, HOT_NODE)
    run.rounds(hot + 1, ended, COOL_NODE)
    assert run.restarted(ended, begins).rounds(begins, begins + 72, values) == [told]


def test_a_firing_alert_fires_on_as_the_same_incident() -> None:
    run = hot(12)
    (before,) = run.alerts()
    again = run.restarted(12, 60)
    assert again.alerts() == [before]
    assert again.rounds(60, 120, HOT_NODE) == []
    (after,) = again.alerts()
    assert (after.active_at, after.fired_at) == (before.active_at, before.fired_at)
    assert again.rounds(121, 121, COOL_NODE) == ["121: resolved"]


RISING = "{record: 'r', expr: 'rate(t[40s])'}, {alert: Rising, expr: 'max_over_time(r[20s]) > 0.9', for: 5s}"


def test_windows_continue_after_a_restart_as_if_there_had_been_a_gap() -> None:
    run = Run(ruleset(RISING))
    run.each(range(60), float)
    again = run.restarted(59, 65)
    assert again.each(range(65, 200), float) == []
    # and it ends as if there had been no restart
    undisturbed = Run(ruleset(RISING))
    undisturbed.each(range(200), float)
    stands_still = {("t", "0"): 199.0}
    assert again.rounds(200, 280, stands_still) == undisturbed.rounds(200, 280, stands_still)


STEEP = "{record: 'r', expr: 't > 80'}, {alert: Steep, expr: 'r > 80', for: 1m}"


@pytest.mark.parametrize(("values", "told", "left"), [(COOL_NODE, [], []), (HOT_NODE, ["65: firing"], [Phase.FIRING])])
def test_a_recorded_series_outlives_a_restart_if_its_rule_keeps_writing_it(
    values: dict[tuple[str, str], float], told: list[str], left: list[Phase]
) -> None:
    """Else it would be seen for five minutes, and an alert that was pending would fire for what is over."""
    run = Run(ruleset(STEEP))
    assert run.rounds(0, 50, HOT_NODE) == ["0: pending"]
    again = run.restarted(50, 55)
    assert again.rounds(55, 400, values) == told
    assert [alert.phase for alert in again.alerts()] == left


def test_windows_of_rules_that_are_gone_are_not_restored() -> None:
    run = Run(ruleset(RISING))
    run.rounds(0, 5, HOT_NODE)
    again = run.restarted(5, 8, ruleset("{alert: Other, expr: u > 1}"))
    assert len(again.engine.windows) == 0


def test_alerts_that_ended_a_while_ago_are_still_remembered() -> None:
    run = hot(12)
    run.rounds(13, 14, COOL_NODE)
    again = run.restarted(14, 20)
    assert [alert.phase for alert in again.alerts()] == [Phase.RESOLVED]
    again.rounds(20, 920, COOL_NODE)
    assert again.alerts() == []


def test_a_clock_that_is_set_right_after_a_restart_does_not_keep_ended_alerts() -> None:
    run = hot(12)
    again = run.restarted(12, 20)
    again.rounds(20, 21, COOL_NODE)
    again.clock_step = -2000.0
    assert again.rounds(22, 60, COOL_NODE) == ["50: resolved"]


def test_firing_alerts_of_removed_rules_are_forgotten_and_returned_to_be_ended() -> None:
    run = hot(12)
    assert run.restarted(12, 20, ruleset(HOT.replace("warning", "critical"))).alerts() == []
    again = Run(ruleset("{alert: Other, expr: u > 1}"), 20)
    assert [alert.rule for alert in again.engine.restore(run.saved(12), later(20))] == ["Hot"]


def test_an_alert_that_fired_in_the_future_fired_as_long_ago_as_it_did() -> None:
    run = hot(20)
    again = run.restarted(20, 0)
    ((_, _, before),) = run.engine.remembered()
    ((_, _, after),) = again.engine.remembered()
    assert before.alert.fired_at is not None
    assert after.alert.fired_at == before.alert.fired_at - 20
