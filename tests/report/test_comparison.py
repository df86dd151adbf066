"""Two runs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agent.lib.wording import UserError
from agent.recording.report import report_series as chosen
from agent.recording.report.comparison import comparison, comparison_card
from agent.recording.report.report_card import TextStyle
from tests.report.made import gathered, gpu, recorded, row, run_report, snapshots


def test_figures_are_means_over_the_gpus_that_have_them(tmp_path: Path) -> None:
    one = gathered(tmp_path / "one", {row(chosen.POWER, gpu(0)): 400.0, row(chosen.POWER, gpu(1)): 200.0}, 60)
    series = {row(chosen.POWER, gpu(0)): 450.0, row(chosen.UTILIZATION, gpu(1)): 0.5}
    rows = {each.name: each for each in comparison(one, gathered(tmp_path / "two", series, 120))}
    assert rows["power by energy"][2:4] == (300.0, 450.0)
    assert rows["power by energy"].change == 0.5
    assert rows["power by energy"].seen == (2, 1)
    assert rows["utilization"][2:4] == (None, 0.5)
    assert rows["utilization"].change is None
    assert rows["duration"][2:4] == (60.0, 120.0)
    assert rows["tensor activity"][2:4] == (None, None)


@pytest.mark.parametrize("width", [20, 80])
def test_the_card_tells_differences_and_what_is_said_of_one_only(tmp_path: Path, width: int) -> None:
    one = gathered(tmp_path / "one", {row(chosen.UTILIZATION, gpu(0)): 0.9, row(chosen.POWER, gpu(0)): 500.0}, 60)
    heat = row(chosen.THROTTLED, gpu(0), (("reason", "hw_thermal_slowdown"),))
    series = {row(chosen.UTILIZATION, gpu(0)): 0.4, row(chosen.POWER, gpu(0)): 400.0,
              heat: [0.5 * second for second in range(60)]}  # fmt: skip
    other = gathered(tmp_path / "two", series, 60)
    one.files, other.files = ["a"], ["b"]
    card = comparison_card(one, other, TextStyle(width))
    assert max(map(len, card)) <= width
    if width < 80:
        return
    text = " ".join(" ".join(card).split())
    assert "-50.0 points" in text
    assert "-20.0%" in text
    assert "B: GPU 0: clocks reduced by hw_thermal_slowdown" in text
    assert "SM activity" not in text


def test_the_command_compares_two_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [recorded(tmp_path / name, snapshots({row(chosen.POWER, gpu(0)): 100.0}, 20)) for name in ("a", "b")]
    assert run_report("--compare", *files, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    [power] = [each for each in document["figures"] if each["figure"] == "power by energy"]
    assert (power["one"], power["other"], power["change_ratio"]) == (100.0, 100.0, 0.0)
    assert run_report("--compare", files[0], tmp_path / "none") == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [[], ["--compare", "a", "b", "c"], ["--compare", "a", "b", "--html", "x"], ["a", "--html", "-", "--json"]]
)
def test_what_does_not_go_together_is_a_mistake(words: list[str]) -> None:
    with pytest.raises(UserError):
        run_report(*words)
