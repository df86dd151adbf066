"""docs/detection.md is current, and the score can fail: what it counts, how it varies a scenario, what it refuses.

Nothing here plays for long. The whole score is `make score`.
"""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from agent.backends.synthetic import load_scenario
from alerts.rulefile import RuleFile
from tests.lab.score import document
from tests.lab.score.__main__ import PAGE, alerts_of, main
from tests.lab.score.expectations import EXPECTED, Companion, Expectation, Expected
from tests.lab.score.inputs import digest
from tests.lab.score.play import Firing, Play, load_pack
from tests.lab.score.plays import LATEST, Part, ScoreError, of_name, parts, refuse_gaps
from tests.lab.score.scoring import Hit, Verdict, judge, problems

STALE = "docs/detection.md was not made of these rules, scenarios and expectations: run make score"


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def rules() -> tuple[RuleFile, ...]:
    return load_pack()


def _played(scenario: str, seconds: int, rules: tuple[RuleFile, ...]) -> Play:
    """A play of a scenario as shipped, which fails and does not hang where a read is made that hangs."""
    play = Play(load_scenario(scenario), rules)
    guard = threading.Timer(30.0, play.close)
    guard.start()
    play.until(seconds)
    guard.cancel()
    play.close()
    return play


def _firing(alert: str, at: float, **labels: str) -> Firing:
    return Firing(alert, tuple(labels.items()), at)


def test_the_page_was_made_of_these_rules_scenarios_and_expectations(page: str, rules: tuple[RuleFile, ...]) -> None:
    assert page.startswith(document.head(digest(rules))), STALE


def test_the_page_says_what_was_meant_to_be_reached(page: str) -> None:
    assert "never" not in "".join(line for line in page.splitlines() if line.startswith("|"))
    assert "MISSED" not in page
    quiet = re.search(r"^\| together \| (\d+) \| ([\d.]+) \| (\d+) \|", page, re.MULTILINE)
    assert quiet is not None
    assert int(quiet[1]) >= 20
    assert float(quiet[2]) >= 20
    assert int(quiet[3]) == 0


@pytest.mark.parametrize(
    ("scenario", "seconds"), [pytest.param("ecc-remap", 345, marks=pytest.mark.release), ("driver-hang", 75)]
)
def test_a_play_as_shipped_gives_the_figures_of_the_page(
    scenario: str, seconds: int, page: str, rules: tuple[RuleFile, ...]
) -> None:
    play = _played(scenario, seconds, rules)
    hits, wrong = judge(EXPECTED[scenario], load_scenario(scenario), play.firings)
    assert (wrong, play.failures) == ([], [])
    if scenario == "driver-hang":
        assert [firing.label("gpu") for firing in play.firings if firing.alert == "GpuLost"] == ["2"]
    for (alert, about), each in document.grouped(hits).items():
        assert f"| {alert} | {about} | {document.shipped(each)} |" in page, STALE


STRAGGLER = Expectation(700, (Expected("GpuImbalance", labels={"job_id": "6001"}, within=200),))


def _straggler(*firings: Firing, expectation: Expectation = STRAGGLER) -> tuple[list[Hit], list[Firing]]:
    return judge(expectation, load_scenario("straggler"), firings)


def test_an_alert_of_the_right_gpu_after_the_fault_is_a_hit_and_its_repetition_no_false_alarm() -> None:
    first = _firing("GpuImbalance", 310.0, gpu="5", job_id="6001", severity="warning")
    hits, wrong = _straggler(first, replace(first, at=600.0))
    assert [hit.after for hit in hits] == [190.0]
    assert wrong == []
    assert [hit.after for hit in _straggler()[0]] == [None]


@pytest.mark.parametrize(
    "stray",
    [
        _firing("GpuImbalance", 310.0, gpu="4", job_id="6001"),
        _firing("GpuImbalance", 310.0, gpu="5", job_id="6002"),
        _firing("GpuImbalance", 119.0, gpu="5", job_id="6001"),
        _firing("GpuHot", 310.0, gpu="5"),
    ],
    ids=["another GPU", "another job", "before the fault", "another alert"],
)
def test_everything_else_is_a_false_alarm(stray: Firing) -> None:
    hits, wrong = _straggler(stray)
    assert (hits[0].after, wrong) == (None, [stray])


def test_a_companion_is_no_false_alarm_on_the_gpu_of_the_fault() -> None:
    expectation = replace(STRAGGLER, may=(Companion("GpuHot", "a reason"),))
    other = _firing("GpuHot", 310.0, gpu="4")
    _, wrong = _straggler(_firing("GpuHot", 310.0, gpu="5"), other, expectation=expectation)
    assert wrong == [other]


def test_every_gpu_of_a_fault_must_have_its_alert_and_a_repeated_fault_counts_from_its_occurrence() -> None:
    brake = Expectation(100, (Expected("GpuPowerBrake", 1),))
    hits, _ = judge(brake, load_scenario("power-brake"), [_firing("GpuPowerBrake", 61.0, gpu="2")])
    assert [hit.after for hit in hits] == [1.0, None, None, None, None, None]
    flap = Expectation(100, (Expected("InfinibandFlapping", of="port", occurrence=3),))
    hits, wrong = judge(
        flap, load_scenario("ib-flap"),
        [_firing("InfinibandFlapping", at, device="mlx5_3") for at in (250.0, 320.0)],
    )  # fmt: skip
    assert ([hit.after for hit in hits], len(wrong)) == ([20.0], 1)


def test_what_is_wrong_is_reported_with_play_alert_and_figures() -> None:
    gpu = (("gpu", "5"),)
    verdict = Verdict(
        "straggler", 2, 700,
        (Hit("A", gpu, None), Hit("B", gpu, 181.0, within=180.0), Hit("C", gpu, 180.0, within=180.0)),
        (_firing("D", 7.0, gpu="1"),),
        ("12 s: E: vector cannot match",),
    )  # fmt: skip
    assert list(problems([verdict])) == [
        "straggler, play 2: A {gpu=5} did not fire",
        "straggler, play 2: B {gpu=5} fired after 181 s, limit 180 s",
        "straggler, play 2: D {gpu=1} fired at 7 s, and must not have",
        "straggler, play 2: a rule failed at 12 s: E: vector cannot match",
    ]


def test_a_page_of_a_failed_score_says_so() -> None:
    hits = (Hit("GpuLost", (("gpu", "5"),), None), Hit("GpuPowerBrake", (("gpu", "5"),), 19.0, within=15.0))
    verdict = Verdict("gpu-lost", 0, 8640, hits, (_firing("GpuHot", 1.0),))
    page = document.tables([verdict], ["GpuLost", "GpuPowerBrake", "GpuHot"])
    assert "| GpuLost | gpu-lost; driver-hang | 0 of 1 | never |  | the other 0 | 0 | 0.0 |" in page
    assert "| GpuPowerBrake | power-brake | 1 of 1 | 19.0, 19.0, 19.0 | 15 (MISSED 1 times) | all 1 | 0 | 0.0 |" in page
    assert "| GpuHot | thermal-throttle |  |  |  | all 1 | 1 | 10.0 |" in page


def test_the_first_play_is_the_scenario_as_shipped() -> None:
    assert Part("thermal-throttle", 0, 1000).scenario() == load_scenario("thermal-throttle")


def test_every_further_play_moves_all_faults_alike_and_has_another_seed() -> None:
    as_shipped = load_scenario("thermal-throttle")
    delays = set()
    for part in parts():
        if part.name != "thermal-throttle" or part.number == 0:
            continue
        varied = part.scenario()
        moved = {round(a.window.at - b.window.at, 6) for a, b in zip(varied.faults, as_shipped.faults, strict=True)}
        assert varied == part.scenario()
        assert varied.seed != as_shipped.seed
        assert len(moved) == 1
        assert 0 < min(moved) <= LATEST
        assert part.seconds >= EXPECTED[part.name].seconds + min(moved)
        delays |= moved
    assert len(delays) == 4


def test_the_jobs_of_a_quiet_play_begin_late_and_end_before_it_does() -> None:
    part = next(part for part in parts() if part.name == "two-jobs" and part.number == 1)
    for job in part.scenario().jobs:
        assert job.window.duration is not None
        assert 0 < job.window.at <= LATEST
        assert job.window.at + job.window.duration < part.seconds
        assert job.phases[0].window.at == job.window.at


def test_a_scenario_of_the_table_may_change_its_fault() -> None:
    assert of_name("checkpoint-stall-milder").faults[0].parameters == {"every": 120.0, "takes": 83.0}


def test_every_expectation_names_a_subject_that_its_fault_has() -> None:
    for name, expectation in EXPECTED.items():
        hits, _ = judge(expectation, of_name(name), [])
        assert len(hits) >= len(expectation.must), name
        assert all(value for hit in hits for _, value in hit.labels), name


def test_the_table_has_every_scenario_and_names_only_alerts_that_there_are(rules: tuple[RuleFile, ...]) -> None:
    refuse_gaps(set(alerts_of(rules)))


def test_a_scenario_without_expectations_and_an_alert_that_is_gone_are_refused(
    monkeypatch: pytest.MonkeyPatch, rules: tuple[RuleFile, ...]
) -> None:
    alerts = set(alerts_of(rules))
    with pytest.raises(ScoreError, match="GpuLost, which no rule of the pack is called"):
        refuse_gaps(alerts - {"GpuLost"})
    monkeypatch.setitem(EXPECTED, "no-such", Expectation(60))
    with pytest.raises(ScoreError, match="no-such, which there is no shipped scenario"):
        refuse_gaps(alerts)
    monkeypatch.delitem(EXPECTED, "no-such")
    monkeypatch.delitem(EXPECTED, "idle")
    with pytest.raises(ScoreError, match="no expectations for idle: add them"):
        refuse_gaps(alerts)


@pytest.mark.parametrize(
    ("arguments", "says"), [(["--only", "stragler"], "straggler"), (["--jobs", "0"], "give 1 or more")]
)
def test_a_mistake_on_the_command_line_is_named(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert says in capsys.readouterr().err
