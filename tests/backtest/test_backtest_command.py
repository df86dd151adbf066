"""`coldplate rules backtest`: what is played, what two versions of rules differ in, and what the command says."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from agent.catalogue import BY_NAME
from agent.cli import main
from agent.model import Framer, Node, Reading, Series, Snapshot
from agent.recording.recording_reader import Recording
from alerts.backtest.play import AlertSpan, NodePlay, RulePlay
from alerts.backtest.span_differences import SpanDifference, differences, labels_set_by
from alerts.engine import Ruleset
from tests.backtest.simulated import Lived, heat, lived, recorded, rules, ruleset, temperatures
from tests.lab.score.play import TARGET, load_pack
from tests.recording.played import record

HOT = "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 5s\nlabels: {severity: warning}\nannotations: {summary: warm}"


@pytest.fixture
def hot(tmp_path: Path) -> Path:
    """A recording of a GPU that is hot for twenty seconds, and then for three."""
    return record(tmp_path / "hot.coldplate", heat(temperatures((50, 10), (95, 20), (50, 10), (95, 3), (50, 5))), "n1")


def backtest(*arguments: object) -> int:
    return main(["rules", "backtest", *map(str, arguments)])


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_timeline(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(hot, "--rules", rules(tmp_path, HOT)) == 0
    out, err = capsys.readouterr()
    assert out == (
        "n1: 48 snapshots, 2023-11-14 22:13:20 to 22:14:07 UTC, 1 rule\n"
        "\n"
        "PENDING   FIRING    UNTIL           FOR  ALERT\n"
        '22:13:29  22:13:34  22:13:49        15s  Hot{gpu="0",severity="warning",uuid="GPU-0"} = 95\n'
        "\n"
        "1 pending that never fired; list with --pending\n"
    )
    assert err == ""
    assert backtest(hot, "--rules", rules(tmp_path, HOT), "--pending") == 0
    assert "\n22:13:59  -         22:14:02         3s  Hot{" in capsys.readouterr().out
    assert backtest(hot, "--rules", rules(tmp_path, HOT.replace("90", "200"))) == 0
    assert capsys.readouterr().out.endswith("\n\nno alert fires\n")


def test_as_json(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert backtest(hot, "--rules", rules(tmp_path, HOT), "--json") == 0
    found = document(capsys)
    begin = 1_700_000_000.0
    fired, pending = found["alerts"]
    assert fired == {
        "node": "n1", "alert": "Hot",
        "labels": {"alertname": "Hot", "gpu": "0", "instance": "n1:19400", "job": "coldplate", "severity": "warning",
                   "uuid": "GPU-0"},
        "active_at": begin + 9.5, "fired_at": begin + 14.5, "ended_at": begin + 29.5,
        "value": 95.0, "annotations": {"summary": "warm"}, "inhibited_by": None,
    }  # fmt: skip
    assert (pending["fired_at"], pending["ended_at"]) == (None, begin + 42.5)
    assert (found["problems"], found["failures"]) == ([], [])


def test_what_the_rules_could_not_judge_is_said(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unjudged = "Power: coldplate_gpu_power_watts > 1\nlabels: {severity: info}"
    file = rules(tmp_path, HOT.replace("90", "200"), unjudged)
    assert backtest(hot, "--rules", file) == 0
    assert capsys.readouterr().out.endswith(
        "\n\nno alert fires\n\nof 2 alert rules:\n  1 of them found none of their metrics "
        "(the node has no such device, or it was not recorded):\n  Power.\n"
    )
    assert backtest(hot, "--rules", file, "--json") == 0
    assert document(capsys)["rules"] == {
        "evaluated": 2,
        "need_longer_history": [],
        "without_metrics": [{"alert": "Power", "severities": ["info"]}],
    }


def test_without_rules_it_plays_the_configured_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And tells how they differ from the pack as it is shipped."""
    recording = recorded(tmp_path, "driver-hang", 150)
    configuration = tmp_path / "coldplate.yaml"
    configuration.write_text("rules: {override: {GpuLost: {for: 1m}}}\n")
    assert backtest(recording, "--config.file", configuration, "--against", "builtin", "--json") == 0
    found = document(capsys)
    fired = {each["alert"] for each in found["alerts"] if each["fired_at"]}
    assert fired == {dict(each.labels)["alertname"] for each in lived("driver-hang", 150)[1]}
    (lost,) = found["against"]["differences"]
    assert lost["with_these_rules"]["alert"] == "GpuLost"
    assert lost["fires_later_seconds"] > 0


def test_two_versions(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = rules(tmp_path, HOT, name="old.yml")
    new = rules(tmp_path, HOT.replace("5s", "8s"), "Warm: coldplate_gpu_temperature_celsius > 93", name="new.yml")
    assert backtest(hot, "--rules", new, "--against", old) == 0
    out = capsys.readouterr().out
    assert "against the other version: 0 alerts fire in the same way, 3 do not" in out
    assert '22:13:34  Hot{gpu="0",severity="warning",uuid="GPU-0"}: fires 3s later\n' in out
    assert 'Warm{gpu="0",uuid="GPU-0"}: only with these rules, for 20s' in out
    assert "does not" not in out


def test_each_node_is_played_by_itself(tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = record(tmp_path / "other", heat(temperatures((50, 40))), "n2")
    count = rules(tmp_path, "Alone: count(coldplate_gpu_temperature_celsius) == 1", name="count.yml")
    assert backtest(hot, other, "--rules", count, "--json") == 0
    found = document(capsys)
    alerts = [(each["node"], each["labels"]) for each in found["alerts"]]
    assert alerts == [("n1", {"alertname": "Alone"}), ("n2", {"alertname": "Alone"})]
    assert [(each["node"], each["snapshots"]) for each in found["nodes"]] == [("n1", 48), ("n2", 40)]


def test_a_torn_recording_gives_what_is_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = record(tmp_path / "whole", heat(temperatures((95, 60))), "n1")
    torn = tmp_path / "torn"
    torn.write_bytes(whole.read_bytes()[:-30])
    assert backtest(torn, "--rules", rules(tmp_path, HOT)) == 1, "a part of the recording is missing"
    out, err = capsys.readouterr()
    assert "FIRING" in out and "Hot{" in out
    assert err.count(str(torn)) == err.count("snapshots before are whole") == 1


def test_a_recording_that_is_given_twice_is_played_once(
    tmp_path: Path, hot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the same name, and as a copy, which only its snapshots show."""
    assert backtest(hot, "--rules", rules(tmp_path, HOT)) == 0
    once = capsys.readouterr()
    assert backtest(hot, hot, "--rules", rules(tmp_path, HOT)) == 0
    twice = capsys.readouterr()
    assert twice.out == once.out and twice.err.endswith("; it is read once\n")
    (tmp_path / "copy").write_bytes(hot.read_bytes())
    assert backtest(hot, tmp_path / "copy", "--rules", rules(tmp_path, HOT)) == 0
    assert capsys.readouterr() == once


@pytest.mark.parametrize("content", [None, b"", b"timestamp, name\n", b"\x89coldplate\r\n\x1a\n"])
def test_what_is_no_recording_is_told_and_the_others_are_played(
    tmp_path: Path, hot: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = tmp_path / "odd"
    if content is not None:
        odd.write_bytes(content)
    assert backtest(odd, hot, "--rules", rules(tmp_path, HOT)) == 1
    out, err = capsys.readouterr()
    assert "Hot{" in out
    assert err.startswith(f"coldplate rules backtest: {odd}: ") and err.count("\n") == 1


@pytest.mark.parametrize(("name", "content"), [("rules.yml", "groups: [{name: a, rules: [{alert: A, expr: 'up >'}]}]"),
                                               ("missing.yml", None)])  # fmt: skip
def test_rules_that_cannot_be_read_are_told(
    tmp_path: Path, hot: Path, name: str, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    for option in ("--rules", "--against"):
        assert backtest(hot, option, tmp_path / name) == 1
        out, err = capsys.readouterr()
        assert (out, name in err) == ("", True)


BEGIN = 1_700_000_000.0


@pytest.fixture
def hot_rules(tmp_path: Path) -> Ruleset:
    return ruleset(rules(tmp_path, "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 5s"))


def played(snapshots: Iterable[Snapshot], version: Ruleset, period: float = 1.0) -> NodePlay:
    node = NodePlay("node", [RulePlay("node", version, TARGET)], version.interval, period)
    for snapshot in snapshots:
        node.play_until(snapshot)
    return node


def spans(snapshots: Iterable[Snapshot], version: Ruleset, period: float = 1.0) -> list[AlertSpan]:
    return played(snapshots, version, period).plays[0].spans()


@pytest.mark.parametrize(
    ("scenario", "seconds"),
    [pytest.param("checkpoint-stall", 350, marks=pytest.mark.release), ("ib-flap", 260), ("driver-hang", 150)],
)
def test_a_recording_has_the_alerts_that_there_were_at_the_times_that_they_had(
    tmp_path: Path, scenario: str, seconds: int
) -> None:
    with Recording(recorded(tmp_path, scenario, seconds)) as recording:
        found = spans(recording.snapshots(), Ruleset(load_pack()))
        assert recording.problems == []
    again = {Lived(each.labels, each.active_at, each.fired_at, each.ended_at) for each in found if each.fired_at}
    assert again == lived(scenario, seconds)[1] != set()


def test_an_alert_that_is_pending_only_has_its_end(hot_rules: Ruleset) -> None:
    found = spans(heat(temperatures((50, 10), (95, 3), (50, 3), (95, 3), (50, 2), (95, 2))), hot_rules)
    times = [(each.active_at - BEGIN, each.fired_at, each.ended_at and each.ended_at - BEGIN) for each in found]
    assert times == [(9.5, None, 12.5), (15.5, None, 18.5), (20.5, None, None)]


def test_rules_are_evaluated_on_while_snapshots_are_late(tmp_path: Path) -> None:
    """The daemon does so with the last one: `for` goes on, and its age is what rules about it look at."""
    stalls = "Stalled: coldplate_sample_age_seconds > 5"
    version = ruleset(rules(tmp_path, stalls, "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 20s"))
    before, after = heat(temperatures((95, 3))), heat([95, 95, 95], start=40.0, sequence=4)
    stalled, warm = sorted(spans([*before, *after], version), key=lambda each: each.alert, reverse=True)
    assert stalled.fired_at == pytest.approx(BEGIN + 2 + 5, abs=1.5)
    assert stalled.ended_at == pytest.approx(BEGIN + 40, abs=1.5)
    assert warm.fired_at == pytest.approx(BEGIN + 20, abs=1.5)


def test_what_was_not_recorded_is_no_stall(tmp_path: Path) -> None:
    """Numbers that are missing tell that the recording has a hole: the agent may have been well meanwhile."""
    version = ruleset(rules(tmp_path, "Stalled: coldplate_sample_age_seconds > 5"))
    found = spans([*heat([50, 50]), *heat([50, 50], start=60.0, sequence=61)], version)
    assert found == []


@pytest.mark.parametrize(("start", "what"), [(400.0, "a long pause"), (-500.0, "a reboot")])
def test_alerts_begin_anew(hot_rules: Ruleset, start: float, what: str) -> None:
    node = played([*heat(temperatures((95, 10))), *heat(temperatures((95, 3)), start=start, sequence=11)], hot_rules)
    first, second = sorted(node.plays[0].spans(), key=lambda each: each.fired_at is None)
    assert (first.fired_at, first.ended_at) == (BEGIN + 4.5, BEGIN + 9), f"the end of what was recorded before {what}"
    assert (second.active_at, second.fired_at) == (BEGIN + start - 0.5, None), what
    assert node.pauses == [(BEGIN + 9, BEGIN + start)]


def test_a_snapshot_that_two_files_have_counts_once(hot_rules: Ruleset) -> None:
    once = heat(temperatures((50, 5), (95, 10)))
    assert spans([each for each in once for _ in range(2)], hot_rules) == spans(once, hot_rules)


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
    node = NodePlay("node", (), 1.0, period)
    taken = [
        now.mono - 1000.0
        for number, at in enumerate(times, start=1)
        for snapshot in heat([50.0], start=at, sequence=number)
        for _, now in node.rounds(snapshot)
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
    hot_alert, any_of_them = spans(snapshots, version)
    assert hot_alert.alert == "Hot"
    assert dict(any_of_them.labels)["alertname"] == "Any"
    assert any_of_them.active_at == hot_alert.active_at + 1


def test_an_alert_that_begins_while_its_cause_fires_is_marked_as_its_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pack's inhibition rules apply, unless the configuration has none; an effect without its cause is none."""
    hot = "coldplate_gpu_temperature_celsius > 90"
    recording = record(tmp_path / "r", heat(temperatures((50, 5), (95, 30))), "n1")
    both = rules(tmp_path, f"GpuThrottled: {hot}", f"GpuHot: {hot}\nfor: 5s")
    (tmp_path / "off.yaml").write_text("notify: {inhibition: false}\n")
    for words, cause in (
        (("--rules", both), "GpuThrottled"),
        (("--rules", both, "--config.file", tmp_path / "off.yaml"), None),
        (("--rules", rules(tmp_path, f"GpuThrottled: {hot}\nfor: 9s", f"GpuHot: {hot}", name="late.yml")), None),
    ):
        assert backtest(recording, *words, "--json") == 0
        causes = {each["alert"]: each["inhibited_by"] for each in document(capsys)["alerts"]}
        assert causes == {"GpuThrottled": None, "GpuHot": cause}, words
    assert backtest(recording, "--rules", both) == 0
    assert 'GpuHot{gpu="0",uuid="GPU-0"} = 95, an effect of GpuThrottled\n' in capsys.readouterr().out


def test_a_rule_that_fails_is_told_once_with_its_count(tmp_path: Path) -> None:
    many_to_many = "coldplate_gpu_temperature_celsius + on(job) coldplate_gpu_temperature_celsius"
    version = ruleset(rules(tmp_path, f"Odd: {many_to_many}"))
    both = zip(heat([50.0] * 4), heat([60.0] * 4, gpu="1"), strict=True)
    snapshots = [Snapshot(one.sequence, one.at, (*one.frames, *other.frames)) for one, other in both]
    (failure,) = played(snapshots, version).plays[0].failures()
    assert (failure.rule, failure.count, failure.first_at) == ("Odd", 4, BEGIN - 0.5)
    assert failure.error


BASE = "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 5s\nlabels: {severity: warning}"
SNAPSHOTS = heat(temperatures((50, 10), (92, 10), (97, 20), (50, 20), (92, 10), (50, 5)))


def compared(folder: Path, old: str, new: str) -> tuple[list[SpanDifference], int]:
    before, after = ruleset(rules(folder, old, name="old.yml")), ruleset(rules(folder, new, name="new.yml"))
    return differences(spans(SNAPSHOTS, before), spans(SNAPSHOTS, after), labels_set_by(before, after))


@pytest.mark.parametrize(
    ("old", "new", "expected", "same"),
    [
        (BASE, BASE, [], 2),
        (BASE, BASE.replace("5s", "12s"), [(7.0, 0.0, False), "gone"], 0),  # later, and not at all
        (BASE, BASE.replace("90", "95"), ["gone", (10.0, 0.0, False)], 0),
        (BASE, BASE + "\nkeep_firing_for: 4s", [(0.0, 4.0, False), (0.0, 4.0, False)], 0),  # ends later
        (BASE, BASE.replace("warning", "critical"), [(0.0, 0.0, True)] * 2, 0),  # is the same alert
        (BASE, BASE.replace("Hot", "TooHot"), ["gone", "new", "gone", "new"], 0),  # is another alert
        (BASE.replace("5s", "1m"), BASE.replace("5s", "2m"), [], 0),  # never fires
    ],
    ids=["same", "longer for", "higher threshold", "kept", "severity", "name", "never"],
)
def test_two_versions_differ_in(tmp_path: Path, old: str, new: str, expected: list[object], same: int) -> None:
    found, alike = compared(tmp_path, old, new)
    told = [
        "new" if each.old is None else "gone" if each.new is None
        else (each.start_shift, each.end_shift, each.labels_change)
        for each in found
    ]  # fmt: skip
    assert (sorted(told, key=str), alike) == (sorted(expected, key=str), same)


def test_equal_labels_go_together_first() -> None:
    """Where rules of one name set two severities, each has its own partner."""
    warning, critical = (
        AlertSpan("n", "Hot", (("severity", each),), 0.0, fired, None, 1.0)
        for each, fired in (("warning", 1.0), ("critical", 2.0))
    )
    assert differences([warning, critical], [critical, warning], {"Hot": {"severity"}}) == ([], 2)
