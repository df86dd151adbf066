"""The rules say of a recording what they said when it happened."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME
from agent.model import Framer, Node, Reading, Series, Snapshot
from agent.recording.recording_reader import Recording
from alerts.backtest.play import AlertSpan, NodePlay, RecordedRounds, RulePlay
from alerts.engine import Ruleset
from tests.backtest.simulated import Lived, heat, lived, recorded, rules, ruleset, temperatures
from tests.lab.score.play import TARGET, load_pack

BEGIN = 1_700_000_000.0


@pytest.fixture
def hot(tmp_path: Path) -> Ruleset:
    return ruleset(rules(tmp_path, "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 5s"))


def played(snapshots: Iterable[Snapshot], version: Ruleset, period: float = 1.0) -> NodePlay:
    node = NodePlay("node", [RulePlay("node", version, TARGET)], version.interval, period)
    for snapshot in snapshots:
        node.take(snapshot)
    return node


def spans(snapshots: Iterable[Snapshot], version: Ruleset, period: float = 1.0) -> list[AlertSpan]:
    return played(snapshots, version, period).plays[0].spans()


@pytest.mark.parametrize(
    ("scenario", "seconds"),
    [pytest.param("checkpoint-stall", 350, marks=pytest.mark.release), ("ib-flap", 260), ("driver-hang", 100)],
)
def test_a_recording_has_the_alerts_that_there_were_at_the_times_that_they_had(
    tmp_path: Path, scenario: str, seconds: int
) -> None:
    with Recording(recorded(tmp_path, scenario, seconds)) as recording:
        found = spans(recording.snapshots(), Ruleset(load_pack()))
        assert recording.problems == []
    again = {Lived(each.labels, each.active_at, each.fired_at, each.ended_at) for each in found if each.fired_at}
    assert again == lived(scenario, seconds)[1] != set()


def test_an_alert_is_pending_then_fires_then_ends(hot: Ruleset) -> None:
    (one,) = spans(heat(temperatures((50, 10), (95, 20), (50, 10))), hot)
    assert (one.alert, one.active_at, one.fired_at, one.ended_at) == ("Hot", BEGIN + 9.5, BEGIN + 14.5, BEGIN + 29.5)
    assert one.value == 95
    assert dict(one.labels)["gpu"] == "0"


def test_an_alert_that_is_pending_only_has_its_end(hot: Ruleset) -> None:
    found = spans(heat(temperatures((50, 10), (95, 3), (50, 3), (95, 3), (50, 2), (95, 2))), hot)
    times = [(each.active_at - BEGIN, each.fired_at, each.ended_at and each.ended_at - BEGIN) for each in found]
    assert times == [(9.5, None, 12.5), (15.5, None, 18.5), (20.5, None, None)]


def test_rules_are_evaluated_on_while_snapshots_are_late(tmp_path: Path) -> None:
    """The daemon does so with the last one: `for` goes on, and its age is what rules about it look at."""
    stalls = "Stalled: coldplate_sample_age_seconds > 5"
    version = ruleset(rules(tmp_path, stalls, "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 20s"))
    before, after = heat(temperatures((95, 3))), heat([95, 95, 95], start=40.0, sequence=4)
    stalled, hot = sorted(spans([*before, *after], version), key=lambda each: each.alert, reverse=True)
    assert stalled.fired_at == pytest.approx(BEGIN + 2 + 5, abs=1.5)
    assert stalled.ended_at == pytest.approx(BEGIN + 40, abs=1.5)
    assert hot.fired_at == pytest.approx(BEGIN + 20, abs=1.5)


def test_what_was_not_recorded_is_no_stall(tmp_path: Path) -> None:
    """Numbers that are missing tell that the recording has a hole: the agent may have been well meanwhile."""
    version = ruleset(rules(tmp_path, "Stalled: coldplate_sample_age_seconds > 5"))
    found = spans([*heat([50, 50]), *heat([50, 50], start=60.0, sequence=61)], version)
    assert found == []


@pytest.mark.parametrize(("start", "what"), [(400.0, "a long pause"), (-500.0, "a reboot")])
def test_alerts_begin_anew(hot: Ruleset, start: float, what: str) -> None:
    node = played([*heat(temperatures((95, 10))), *heat(temperatures((95, 3)), start=start, sequence=11)], hot)
    first, second = sorted(node.plays[0].spans(), key=lambda each: each.fired_at is None)
    assert first.fired_at == BEGIN + 4.5, what
    assert (second.active_at, second.fired_at) == (BEGIN + start - 0.5, None), what
    assert node.pauses == [(BEGIN + 9, BEGIN + start)]


def test_a_snapshot_that_two_files_have_counts_once(hot: Ruleset) -> None:
    once = heat(temperatures((50, 5), (95, 10)))
    assert spans([each for each in once for _ in range(2)], hot) == spans(once, hot)


@pytest.mark.parametrize(
    ("times", "period", "expected"),
    [
        ((0.0, 1.0, 2.0), 1.0, [0.0, 1.0, 2.0]),
        ((0.0, 0.1, 0.5, 0.9, 1.0, 1.8), 0.1, [0.0, 0.9, 1.8]),
        ((0.0, 3.0), 3.0, [0.0, 1.0, 2.0, 3.0]),
        ((0.0, 1.2, 2.6), 1.0, [0.0, 1.2, 2.45]),
    ],
    ids=["each second", "faster than rules", "slower than rules", "late"],
)
def test_rounds_come_when_the_daemon_has_them(times: tuple[float, ...], period: float, expected: list[float]) -> None:
    rounds = RecordedRounds(1.0, period)
    taken = [
        one.now.mono - 1000.0
        for number, at in enumerate(times, start=1)
        for snapshot in heat([50.0], start=at, sequence=number)
        for one in rounds.take(snapshot)
    ]
    assert taken == pytest.approx(expected)


def test_rules_about_alerts_see_those_of_the_rules_that_are_played(tmp_path: Path) -> None:
    """The recording has the alerts of the rules that the daemon had then."""
    counting = 'Any: count(coldplate_alert{alertname!="Any"}) by (alertname)'
    version = ruleset(rules(tmp_path, "Hot: coldplate_gpu_temperature_celsius > 90", counting))
    framer = Framer()
    told = Reading(Series(BY_NAME["coldplate_alert"], Node(), (("alertname", "Old"), ("alertstate", "firing"))), 1.0)
    snapshots = [
        Snapshot(each.sequence, each.at, (*each.frames, framer.frame((told,))))
        for each in heat(temperatures((50, 3), (95, 4)))
    ]
    hot, any_of_them = spans(snapshots, version)
    assert hot.alert == "Hot"
    assert dict(any_of_them.labels)["alertname"] == "Any"
    assert any_of_them.active_at == hot.active_at + 1


def test_a_rule_that_fails_is_told_once_with_its_count(tmp_path: Path) -> None:
    many_to_many = "coldplate_gpu_temperature_celsius + on(job) coldplate_gpu_temperature_celsius"
    version = ruleset(rules(tmp_path, f"Odd: {many_to_many}"))
    both = zip(heat([50.0] * 4), heat([60.0] * 4, gpu="1"), strict=True)
    snapshots = [Snapshot(one.sequence, one.at, (*one.frames, *other.frames)) for one, other in both]
    (failure,) = played(snapshots, version).plays[0].failures()
    assert (failure.rule, failure.count, failure.first_at) == ("Odd", 4, BEGIN - 0.5)
    assert failure.error
