"""The observations of a report are the alerts of the rules, and beside them stands what the rules could not judge."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.commands import report
from agent.model import Node, Series
from agent.recording.report import report_series as chosen
from agent.recording.report.observation import Judgement, UnjudgedRule, coverage_texts
from alerts.backtest.coverage import coverage_of
from alerts.engine import Ruleset
from tests.backtest.simulated import heat, rules, ruleset, temperatures
from tests.recording.played import played, record
from tests.report.made import gpu, recorded, row, run_report, snapshots

HOT = "Hot: coldplate_gpu_temperature_celsius > 90\nfor: 5s\nlabels: {severity: warning}\nannotations: {summary: warm}"


def document(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    """The report as JSON."""
    assert run_report(*words, "--json") == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def observed(content: dict[str, Any]) -> list[tuple[str, str, str | None, str | None]]:
    return [(alert["severity"], alert["alert"], alert["device"], alert["inhibited_by"]) for alert in content["alerts"]]


@pytest.mark.parametrize(
    ("scenario", "begins", "ends", "expected"),
    [
        ("healthy-training", 0, 60, []),
        ("idle", 0, 60, []),
        (
            "checkpoint-stall",
            100,
            300,
            [("warning", "GpuImbalance", "GPU 0", None), ("info", "GpuImbalance", "GPU 0", None)],
        ),
        (
            "gpu-lost",
            50,
            100,
            [
                ("critical", "GpuLost", "GPU 3", None),
                *(("info", "GpuXidInfo", f"GPU {index}", None) for index in range(3)),
                ("critical", "GpuXid", "GPU 3", "GpuLost"),
            ],
        ),
        ("nvlink-down", 60, 180, [("critical", "GpuXid", "GPU 2", None), ("critical", "NvLinkDown", "GPU 2", None)]),
        ("ib-flap", 60, 130, [("critical", "InfinibandPortDown", "mlx5_3 port 1", None)]),
    ],
)
def test_a_scenario_has_the_alerts_of_the_pack_and_of_its_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scenario: str, begins: int, ends: int, expected: list[object]
) -> None:
    path = record(tmp_path / "run", played(scenario, ends, begins=begins, judged=False))
    content = document(capsys, path)
    assert observed(content) == expected
    assert all(alert["annotations"]["summary"] for alert in content["alerts"])
    assert content["rules"]["evaluated"] > len(content["rules"]["need_longer_history"]) > 0
    assert content["recorded_alerts"] == []


def test_an_alert_that_fires_twice_is_one_observation_with_both_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "r", heat(temperatures((50, 10), (95, 20), (50, 10), (95, 30))), "n1")
    (alert,) = document(capsys, path, "--rules", rules(tmp_path, HOT))["alerts"]
    assert (alert["times"], alert["seconds"], alert["to"]) == (2, 15.0 + 24.5, None)
    assert (alert["from"], alert["annotations"]) == ("2023-11-14T22:13:34Z", {"summary": "warm"})


def test_what_the_site_disables_or_overrides_holds_in_the_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "run", played("gpu-lost", 100, begins=50, judged=False))
    config = tmp_path / "coldplate.yaml"

    config.write_text("rules: {disable: [GpuLost, GpuXid, GpuXidInfo]}\n")
    assert document(capsys, path, "--config.file", config)["alerts"] == []
    assert run_report(path, "--config.file", config) == 0
    card = capsys.readouterr().out
    assert "No alert fired." in card and "does not answer" not in card

    config.write_text("rules: {override: {GpuLost: {for: 2m}}}\n")
    assert "GpuLost" not in {name for _, name, *_ in observed(document(capsys, path, "--config.file", config))}
    config.write_text("notify: {inhibition: false}\n")
    assert ("critical", "GpuXid", "GPU 3", None) in observed(document(capsys, path, "--config.file", config))


def test_advice_is_of_the_pack_and_rules_of_the_site_alone_are_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = record(tmp_path / "r", heat(temperatures((95, 10))), "n1")
    config = tmp_path / "coldplate.yaml"
    config.write_text(f"rules: {{files: [{rules(tmp_path, HOT)}]}}\n")
    assert document(capsys, path, "--config.file", config)["rules"]["evaluated"] == 1
    config.write_text("rules: {files: []}\n")
    assert run_report(path, "--config.file", config) == 0
    assert "No alert rule was evaluated: nothing was judged." in capsys.readouterr().out


def test_a_configuration_that_the_user_may_not_read_leaves_the_rules_of_the_pack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "coldplate.yaml"
    config.write_text("rules: {files: []}\n")
    monkeypatch.setattr(report, "DEFAULT_FILE", config)
    monkeypatch.setattr("os.access", lambda *_: False)
    path = record(tmp_path / "r", heat(temperatures((95, 10))), "n1")
    assert run_report(path, "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["rules"]["evaluated"] > 50
    assert f"{config}: this user cannot read it" in err


def test_what_the_rules_could_not_judge_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = record(tmp_path / "r", heat(temperatures((50, 30))), "n1")
    file = rules(
        tmp_path,
        HOT,
        "Long: coldplate_gpu_temperature_celsius > 90\nfor: 5m",
        "Other: coldplate_gpu_power_watts > 1\nlabels: {severity: warning}",
        "Other: coldplate_gpu_power_watts > 2\nlabels: {severity: critical}",
        "Other: coldplate_gpu_power_watts > 3\nlabels: {severity: critical}",
        "Odd: coldplate_gpu_temperature_celsius + on() group_left() vector(1)",
    )
    rules_of_report = document(capsys, path, "--rules", file)["rules"]
    assert rules_of_report == {
        "evaluated": 6,
        "need_longer_history": [{"alert": "Long", "severities": []}],
        "without_metrics": [{"alert": "Other", "severities": ["critical", "warning"]}],
        "failures": [],
    }
    assert run_report(path, "--rules", file) == 0
    card = " ".join(capsys.readouterr().out.split())
    assert "1 of them needs a longer history than this recording, and may have missed a fault: Long." in card
    assert "3 of them found none of their metrics (the node has no such device, or it was not recorded): Other." in card


def test_at_most_twenty_alerts_that_could_not_be_judged_are_named() -> None:
    unread = [UnjudgedRule(f"A{number:02}") for number in reversed(range(23))]
    names = ", ".join(f"A{number:02}" for number in range(20))
    for rules_unread, end in ((unread, f": {names} and 3 more."), (unread[3:], f": {names}.")):
        *_, text = coverage_texts(Judgement((), ("Any",), unread=rules_unread))
        assert text.endswith(end)


def test_a_rule_that_failed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = {row(chosen.TEMPERATURE, gpu(index)): 50.0 for index in range(2)}
    file = rules(tmp_path, "Odd: coldplate_gpu_temperature_celsius + on() coldplate_gpu_temperature_celsius")
    (text,) = document(capsys, recorded(tmp_path / "r", snapshots(two, 20)), "--rules", file)["rules"]["failures"]
    assert text.startswith("Rule Odd of heat failed on node-1 (20 times, first at 2023-11-14T22:13:19Z): ")


def coverage(tmp_path: Path, text: str, metrics: set[str], seconds: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    (tmp_path / "rules.yml").write_text(f"groups:\n- name: g\n  rules:\n{text}")
    judgement = coverage_of(ruleset(tmp_path / "rules.yml"), metrics, seconds)
    assert judgement.rules == ("A",)
    return tuple(alert for alert, _ in judgement.short), tuple(alert for alert, _ in judgement.unread)


RECORDED = """  - record: gpu:power:max5m
    expr: max_over_time(coldplate_gpu_power_watts[5m])
  - alert: A
    expr: gpu:power:max5m offset 1m > 1
    for: 1m
"""


def test_a_rule_needs_history_and_metrics_of_the_recording_rules_it_reads(tmp_path: Path) -> None:
    power = {"coldplate_gpu_power_watts"}
    assert coverage(tmp_path, RECORDED, power, 419.0) == (("A",), ())
    assert coverage(tmp_path, RECORDED, power, 420.0) == ((), ())
    assert coverage(tmp_path, RECORDED, {"gpu:power:max5m"}, 9.0) == ((), ("A",))
    own = RECORDED.replace("coldplate_gpu_power_watts[5m]", "gpu:power:max5m[5m]")  # reads what it writes
    assert coverage(tmp_path, own, set(), 9.0) == ((), ("A",))


def test_a_counter_that_begins_with_its_first_error_is_judged_while_its_sum_is_there(tmp_path: Path) -> None:
    rule = "  - {alert: A, expr: coldplate_gpu_xid_errors_total > 0}\n"
    assert coverage(tmp_path, rule, {"coldplate_gpu_xids_total"}, 9.0) == ((), ())
    assert coverage(tmp_path, rule, {"coldplate_gpu_power_watts"}, 9.0) == ((), ("A",))
    assert coverage(tmp_path, '  - {alert: A, expr: "{gpu=\\"0\\"} > 0"}\n', set(), 9.0) == ((), ())


def test_without_rules_nothing_is_judged() -> None:
    assert coverage_of(Ruleset(), set(), 9.0).rules == ()


def test_an_old_recording_gives_a_report_that_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its metrics have names that the catalogue no longer has, and its agent had alerts of other names."""
    old = replace(row(chosen.TEMPERATURE, gpu(0)).metric, name="coldplate_gpu_heat_degrees")
    alert = (("alertname", "GpuHotterThanBefore"), ("alertstate", "firing"), ("gpu", "0"), ("severity", "warning"))
    series = {Series(old, gpu(0), ()): 99.0, row(chosen.ALERT, Node(), alert): [None] * 10 + [1.0] * 10}
    content = document(capsys, recorded(tmp_path / "run", snapshots(series, 20)))
    assert content["alerts"] == []
    assert len(content["rules"]["without_metrics"]) > content["rules"]["evaluated"] / 2
    (alert_told,) = content["recorded_alerts"]
    assert (alert_told["alert"], alert_told["device"], alert_told["severity"]) == (
        "GpuHotterThanBefore",
        "GPU 0",
        "warning",
    )
    assert run_report(tmp_path / "run") == 0
    card = capsys.readouterr().out
    assert "No alert fired." in card
    assert card.index("What only the rules of its own agent said") < card.index("GpuHotterThanBefore on GPU 0 from")


def test_what_the_recorded_alerts_and_the_rules_both_say_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = document(capsys, record(tmp_path / "run", played("xid-storm", 90, begins=50)))
    assert "GpuXid" in {name for _, name, *_ in observed(content)}
    assert content["recorded_alerts"] == []


def test_an_alert_pending_at_the_end_is_shown_and_one_that_went_away_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first pending alert ends by itself, the second with a pause; the third is one second short of its `for`."""
    slow = HOT.replace("5s", "2m").replace("warning", "critical")
    before = heat(temperatures((50, 10), (95, 30), (50, 10), (95, 30)))
    path = record(tmp_path / "r", [*before, *heat(temperatures((95, 120)), start=900.0, sequence=901)], "n1")
    file, page = rules(tmp_path, slow), tmp_path / "page"
    content = document(capsys, path, "--rules", file, "--html", page)
    (alert,) = content["pending_alerts"]
    assert content["alerts"] == []
    assert (alert["alert"], alert["severity"], alert["device"]) == ("Hot", "critical", "GPU 0")
    assert (alert["from"], alert["for_seconds"]) == ("2023-11-14T22:28:19Z", 120.0)
    assert alert["missing_seconds"] == 120.0 - alert["seconds"] == 0.5
    assert run_report(path, "--rules", file) == 0
    about = "critical, pending from 2023-11-14T22:28:19Z for 1 min 59 s, until the end, 0.5 s of its 2 min missing"
    card = " ".join(capsys.readouterr().out.split())
    assert f" pending Hot on GPU 0 {about} would fire as: warm No alert fired; 1 was pending when the" in card
    assert (
        f'<li class="pending"><b>Pending.</b> Hot on GPU 0 {about}<br><small>would fire as: warm</small></li>'
        in page.read_text()
    )
