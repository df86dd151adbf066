"""`coldplate report` as a person has it: the card, the JSON, two runs side by side, and files that are none."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from agent.lib.wording import UserError
from agent.model import Series
from agent.recording.report import report_series as chosen
from agent.recording.report.comparison import comparison, comparison_card
from agent.recording.report.observation import Judgement, Observation, PendingAlert, UnjudgedRule
from agent.recording.report.report_card import TextStyle, report_card
from tests.report.made import IbPort, Node, gathered, gpu, recorded, row, run_report, snapshots

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: object) -> tuple[int, str, str]:
        status = run_report(*words)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def small(path: Path, seconds: int = 120) -> Path:
    port = IbPort("mlx5_0", "1")
    series = {
        row(chosen.UTILIZATION, gpu(0)): 1.0,
        row(chosen.UTILIZATION, gpu(1)): [0.0] * (seconds // 2) + [None] * (seconds // 2),
        row(chosen.POWER, gpu(0)): [500.0 + second for second in range(seconds)],
        row(chosen.POWER, gpu(2)): 100.0,  # divided into instances
        row(chosen.ENERGY, gpu(0)): [3.6e4 * second for second in range(seconds)],
        row(chosen.PORT_OUT, port): [1e9 * second for second in range(seconds)],
    }
    return recorded(path, snapshots(series, seconds), command=("python", "train.py"))


def test_card_and_document_have_a_line_per_gpu_and_tell_absent_from_zero(tmp_path: Path, run: Run) -> None:
    path = small(tmp_path / "run")
    status, card, errors = run(path)
    assert (status, errors) == (0, "")
    lines = [line.split() for line in card.splitlines()]
    assert ["0", "100%", "100-100%", "n/a", "n/a", "n/a", "n/a", "560", "619", "n/a", "n/a"] in lines
    assert ["1", "0%", "0-0%", *["n/a"] * 8] in lines
    assert ["0", "0.019", "n/a", "n/a", "n/a", "n/a", "n/a", "n/a", "120"] in lines
    assert ["1", *["n/a"] * 7, "60"] in lines
    assert ["2", "0.003", "n/a", "n/a", "n/a", "n/a", "n/a", "n/a", "120"] in lines
    assert ["mlx5_0/1", "1.0", "1.0", "n/a", "n/a", "n/a", "n/a"] in lines
    assert "ran: python train.py" in card
    status, text, _ = run(path, "--json")
    document: dict[str, Any] = json.loads(text)
    one, other, _ = document["nodes"][0]["gpus"]
    assert status == 0
    assert one["power_watts"]["high"] == 619.0
    assert one["energy"] == {"joules": 67140.0, "seconds": 120.0, "source": "power"}
    assert other["power_watts"] is None
    assert other["utilization_ratio"]["mean"] == 0.0
    assert other["utilization_ratio"]["seconds"] == 60.0
    assert document["nodes"][0]["ports"][0]["transmit"]["bytes"] == 119e9


def test_a_table_says_what_the_gpus_did_with_their_time(tmp_path: Path, run: Run) -> None:
    half = [float(second) / 2 for second in range(121)]
    series = {
        row(chosen.STATE_SECONDS, gpu(0), (("state", "computing"),)): [float(second) for second in range(121)],
        row(chosen.STATE_SECONDS, gpu(0), (("state", "awaited"),)): 7.0,
        row(chosen.STATE_SECONDS, gpu(1), (("state", "computing"),)): half,
        row(chosen.STATE_SECONDS, gpu(1), (("state", "waiting"),)): half,
    }
    path = recorded(tmp_path / "run", snapshots(series, 121))
    lines = [line.split() for line in run(path)[1].splitlines()]
    assert ["GPU", "computing", "waiting", "hours"] in lines
    assert ["0", "100%", "0%", "0.03"] in lines
    assert ["1", "50%", "50%", "0.03"] in lines
    assert ["all,", "GPU-hours", "0.05", "0.02", "0.07"] in lines
    gpus = json.loads(run(path, "--json")[1])["nodes"][0]["gpus"]
    assert gpus[1]["state_seconds"] == {"computing": 60.0, "waiting": 60.0}


@pytest.mark.parametrize(("lost", "share"), [(480, "80%"), (600, "100%"), (10, "")])
def test_a_gpu_that_was_lost_is_not_said_to_be_equal(tmp_path: Path, run: Run, lost: int, share: str) -> None:
    held = (("scheduler", "slurm"), ("job_id", "7"))
    series: dict[Series, Any] = {row(chosen.UTILIZATION, gpu(index)): 0.9 for index in range(3)}
    series |= {row(chosen.HOLDER, gpu(index), held): 1.0 for index in range(4)}
    series[row(chosen.UTILIZATION, gpu(3))] = [0.9] * (600 - lost) + [None] * lost
    path, rules = recorded(tmp_path / "run", snapshots(series, 600)), tmp_path / "strain.yml"
    rules.write_text(STRAIN)
    card = " ".join(run(path, "--rules", rules)[1].split())
    unknown = f"Utilization of GPU 3 is not known for {share} of the time in which that of others is, and not compared"
    assert ("of its GPUs, where it is known, differs by 0%" in card) is (unknown in card) is bool(share)
    assert ("of its GPUs differs by 0%" in card) is not bool(share)
    (group,) = json.loads(run(path, "--json", "--rules", rules)[1])["groups"]
    assert group["unknown_utilization_ratio"] == ({"3": pytest.approx(lost / 600, abs=0.01)} if share else {})
    assert (f"B: {unknown}" in " ".join(run("--compare", path, path, "--rules", rules)[1].split())) is bool(share)


@pytest.mark.parametrize("width", [20, 40, 80, 100])
def test_no_line_is_wider_than_the_terminal_and_all_is_ascii(tmp_path: Path, width: int) -> None:
    held = (("scheduler", "slurm"), ("job_id", "7"), ("user", "ada"), ("name", "train"))
    series = {row(chosen.UTILIZATION, gpu(index)): 0.01 if index else 1.0 for index in range(8)}
    series |= {row(chosen.HOLDER, gpu(index), held): 1.0 for index in range(8)}
    run_facts = gathered(tmp_path / "run", series, 90)
    run_facts.files = ["run.coldplate"]
    texts = {"summary": "GPU 0 waits.", "description": "The others work, and it does not. " * 4}
    labels = {"gpu": "0", "job_id": "7", "severity": "warning"}
    alert = Observation(
        "GpuImbalance", "node-1", labels, texts, run_facts.first, run_facts.last, 90.0, 2, True, "GpuLost"
    )
    judgement = Judgement(
        [alert], ["GpuImbalance", "GpuLost"], [UnjudgedRule("GpuLost")], [UnjudgedRule("GpuImbalance")]
    )

    card = report_card(run_facts, judgement, [alert], TextStyle(width))
    assert max(map(len, card)) <= width
    assert "\n".join(card).isascii()
    assert "\x1b" not in "\n".join(card)


def test_colour_changes_no_letter(tmp_path: Path) -> None:
    found = gathered(tmp_path / "run", {row(chosen.POWER, gpu(0)): 100.0}, 10)
    alerts = [Observation("A", "n", {"severity": each}, {}, 0.0, 1.0, 1.0) for each in ("critical", "warning", "info")]
    styles = (TextStyle(80), TextStyle(80, colour=True))
    plain, coloured = ("\n".join(report_card(found, Judgement(alerts), (), each)) for each in styles)
    assert coloured != plain
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


def test_what_a_hostile_recording_calls_things_reaches_no_terminal_raw(tmp_path: Path, run: Run) -> None:
    held = (("scheduler", "\x1b[2J"), ("job_id", "7\n8"), ("user", "\x07"), ("name", "\u202e"))
    path = recorded(tmp_path / "run", snapshots({row(chosen.HOLDER, gpu(0), held): 1.0}, 20), "\x1b[31mnode")
    alert = (("alertname", "\x1b[31mOld"), ("alertstate", "firing"), ("gpu", "\u202e"), ("severity", "\x07"))
    fatal = (("pci", "0"), ("sxid", "\x1b[1m"), ("grade", "fatal"))
    switch = {
        row("coldplate_node_nvswitch_sxid_errors_total", Node(), fatal): [None] * 5 + [1.0] * 15,
        row(chosen.ALERT, Node(), alert): 1.0,
    }
    other = recorded(tmp_path / "other", snapshots(switch, 20), "\x1b[31mother")
    _, card, _ = run(path, other)
    assert "NvSwitchErrors of \\x1b[31mother from" in card
    assert "\\x1b[31mOld on GPU \\u202e of \\x1b[31mother from" in card
    assert not set("\x1b\x07\u202e") & set(card)


def test_a_file_that_is_cut_or_none_is_told_and_what_can_be_read_is_reported(tmp_path: Path, run: Run) -> None:
    path, foreign, none = small(tmp_path / "run"), tmp_path / "foreign", tmp_path / "none"
    foreign.write_text("hello")
    status, card, errors = run(foreign, path)
    assert (status, "node-1" in card) == (0, True)
    assert errors == f"coldplate report: {foreign}: is not a recording of coldplate's\n"
    assert "Damaged or doubled:" in card and "No alert fired in the 120 snapshots that could be read" in card
    path.write_bytes(path.read_bytes()[:-30])
    status, card, errors = run(path)
    assert (status, "GPU" in card) == (0, True)
    assert errors.startswith(f"coldplate report: {path}: ends in the middle of a record at byte ")
    assert errors.count("\n") == 1
    head, rest = card.split("What the rules say")
    assert f"Damaged or doubled: {errors.removeprefix('coldplate report: ').strip()}" in " ".join(head.split())
    snapshots_read = json.loads(run(path, "--json")[1])["nodes"][0]["snapshots"]
    assert f"No alert fired in the {snapshots_read} snapshots that could be read. " in " ".join(rest.split())
    path.write_bytes(path.read_bytes()[:400])
    status, card, errors = run(path)
    assert (status, card, errors.count("\n")) == (1, "", 1)
    assert "there is no snapshot to report on; " in errors and "ends in the middle of a record at byte " in errors
    assert run(none) == (1, "", f"coldplate report: {none}: cannot be read: No such file or directory\n")


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path, run: Run) -> None:
    path = small(tmp_path / "run")
    (tmp_path / "folder").mkdir()
    once = run(path, "--json")
    twice = run(path, tmp_path / "folder" / ".." / "run", "--json")
    assert twice[:2] == once[:2]
    assert twice[2].count("\n") == 1 and twice[2].endswith("; it is read once\n")


STRAIN = """groups:
- name: strain
  rules:
  - alert: PowerHigh
    expr: coldplate_gpu_power_watts > 560
    labels: {severity: warning}
"""


def test_the_named_rules_are_evaluated_over_the_recording(tmp_path: Path, run: Run) -> None:
    recording, rules = small(tmp_path / "run"), tmp_path / "strain.yml"
    rules.write_text(STRAIN)
    status, card, errors = run(recording, "--rules", rules)
    assert (status, errors) == (0, "")
    assert " warning  PowerHigh\n          PowerHigh on GPU 0 from" in card
    document = json.loads(run(recording, "--rules", rules, "--json")[1])
    (alert,) = document["alerts"]
    assert (alert["alert"], alert["device"], alert["times"]) == ("PowerHigh", "GPU 0", 1)
    assert (alert["severity"], alert["to"], alert["inhibited_by"]) == ("warning", None, None)
    assert alert["seconds"] == pytest.approx(58, abs=2)  # the power rises by 1 W a second, from 500
    assert document["rules"] == {"evaluated": 1, "need_longer_history": [], "without_metrics": [], "failures": []}
    rules.write_text(STRAIN.replace("560", "9000"))
    assert "No alert fired. 1 alert rule was evaluated" in run(recording, "--rules", rules)[1]
    rules.write_text("groups: 1")
    status, card, errors = run(recording, "--rules", rules)
    assert (status, card) == (1, "")
    assert "strain.yml" in errors


def test_figures_are_means_over_the_gpus_that_have_them(tmp_path: Path) -> None:
    one = gathered(tmp_path / "one", {row(chosen.POWER, gpu(0)): 400.0, row(chosen.POWER, gpu(1)): 200.0}, 60)
    series = {row(chosen.POWER, gpu(0)): 450.0, row(chosen.UTILIZATION, gpu(1)): 0.5}
    rows = {figure.name: figure for figure in comparison(one, gathered(tmp_path / "two", series, 120))}
    assert rows["power by energy"][2:4] == (300.0, 450.0)
    assert rows["power by energy"].change == 0.5
    assert rows["utilization"][2:4] == (None, 0.5)
    assert rows["utilization"].change is None
    assert rows["duration"][2:4] == (60.0, 120.0)
    assert rows["tensor activity"][2:4] == (None, None)


@pytest.mark.parametrize("width", [20, 80])
def test_the_card_of_a_comparison_has_differences_and_the_alerts_of_one_run_only(tmp_path: Path, width: int) -> None:
    one = gathered(tmp_path / "one", {row(chosen.UTILIZATION, gpu(0)): 0.9, row(chosen.POWER, gpu(0)): 500.0}, 60)
    series = {row(chosen.UTILIZATION, gpu(0)): 0.4, row(chosen.POWER, gpu(0)): 400.0}
    other = gathered(tmp_path / "two", series, 60)
    one.files, other.files = ["a"], ["b"]
    both, hot = (
        Observation(name, "node-1", {"severity": "critical"}, {"summary": f"{name} it is."}, 0.0, 9.0, 9.0)
        for name in ("Both", "Hot")
    )
    hot = replace(hot, inhibited_by="Both")
    soon = PendingAlert("Soon", "node-1", {}, {}, 5.0, 4.0, 10.0)
    card = comparison_card(
        one, other, (Judgement([both], ["Both"]), Judgement([hot, both], ["Both"], pending=[soon])), TextStyle(width)
    )
    assert max(map(len, card)) <= width
    if width < 80:
        return
    text = " ".join(" ".join(card).split())
    assert "-50.0 points" in text
    assert "power by energy, W 500 400 -100 -20.0%" in text
    assert "energy, all GPUs, kWh 0.008 0.007 -0.002 -20.0%" in text
    assert (
        "B: critical: Hot it is. Hot from 1970-01-01T00:00:00Z for 9 s, an effect of Both B: pending: Soon warning, "
        "pending from 1970-01-01T00:00:05Z for 4 s, until the end, 6 s of its 10 s missing A: 1 alert rule was"
    ) in text
    assert "SM activity" not in text
    same = " ".join(" ".join(comparison_card(one, other, (Judgement(), Judgement()), TextStyle(80))).split())
    assert "No alert fired in one of them only. A: No alert rule was evaluated: nothing was judged." in same


def test_every_synthetic_recording_of_a_run_is_said_to_be_one(tmp_path: Path, capsys) -> None:
    files = [
        recorded(tmp_path / node, snapshots({row(chosen.POWER, gpu(0)): 100.0}, 5), node, scenario=scenario)
        for node, scenario in (("a", ""), ("b", "idle"), ("c", "gpu-lost"))
    ]
    assert run_report(*files) == 0
    assert "synthetic devices played gpu-lost, idle: not all of this is real" in capsys.readouterr().out
    assert run_report(*files[1:]) == 0
    assert "synthetic devices played gpu-lost, idle: nothing of this is real" in capsys.readouterr().out


def test_the_command_compares_two_files_and_what_does_not_go_together_is_a_mistake(tmp_path: Path, capsys) -> None:
    files = [
        recorded(
            tmp_path / name, snapshots({row(chosen.POWER, gpu(0)): power, row(chosen.TEMPERATURE, gpu(0)): celsius}, 20)
        )
        for name, power, celsius in (("a", 100.0, 30.0), ("b", 99.9999, 60.0))
    ]
    assert run_report("--compare", *files, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    [power] = [figure for figure in document["figures"] if figure["figure"] == "power by energy"]
    assert (power["one"], power["other"]) == (100.0, pytest.approx(99.9999))
    assert document["other"]["files"] == [str(files[1])]
    assert run_report(files[0], "--json") == 0
    assert document["version"] == json.loads(capsys.readouterr().out)["version"]
    assert (document["other"]["alerts"], document["other"]["rules"]["failures"]) == ([], [])
    assert run_report("--compare", *files) == 0
    lines = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["power by energy, W"].split()[-4:] == ["100", "100", "+0", "+0.0%"]  # with the same decimals
    assert lines["temperature, C"].split()[-1] == "+30.00"  # twice as many degrees are not twice as hot
    assert run_report("--compare", files[0], tmp_path / "none") == 1
    assert "cannot be read" in capsys.readouterr().err
    for words in (
        [],
        ["--compare", "a", "b", "c"],
        ["--compare", "a", "b", "--html", "x"],
        ["a", "--html", "-", "--json"],
    ):
        with pytest.raises(UserError):
            run_report(*words)
    with pytest.raises(UserError, match="give a recording, before --rules"):
        run_report("--rules", "builtin", *files)
