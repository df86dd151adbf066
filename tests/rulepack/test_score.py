"""docs/dev/detection.md is current, and its table fits the rules and scenarios. The whole score is `make score`."""

from __future__ import annotations

import re
import threading

import pytest

from agent.backends.synthetic import load_scenario
from alerts.rulefile import RuleFile
from tests.lab.score import document
from tests.lab.score.__main__ import PAGE, alerts_of
from tests.lab.score.expectations import EXPECTED
from tests.lab.score.play import Play, load_pack
from tests.lab.score.plays import digest, of_name, refuse_gaps
from tests.lab.score.scoring import judge

STALE = "docs/dev/detection.md was not made of these rules, scenarios and expectations: run make score"


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


def test_the_page_was_made_of_these_rules_scenarios_and_expectations(page: str, rules: tuple[RuleFile, ...]) -> None:
    assert page.startswith(document.head(digest(rules))), STALE


def test_the_page_says_what_was_meant_to_be_reached(page: str) -> None:
    assert "never" not in "".join(line for line in page.splitlines() if line.startswith("|"))
    assert "MISSED" not in page
    quiet = re.search(r"^\| together \| (\d+) \| ([\d.]+) \| (\d+) \|", page, re.MULTILINE)
    assert quiet is not None
    assert int(quiet[1]) >= 12
    assert float(quiet[2]) >= 12
    assert int(quiet[3]) == 0
    healthy = re.search(r"Healthy ones: (\d+) node-hours,\s0 false alarms", page)
    assert healthy is not None
    assert int(healthy[1]) >= 60


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


def test_every_expectation_names_a_subject_that_its_fault_has() -> None:
    for name, expectation in EXPECTED.items():
        hits, _ = judge(expectation, of_name(name), [])
        assert len(hits) >= len(expectation.must), name
        assert all(value for hit in hits for _, value in hit.labels), name


def test_the_table_has_every_scenario_and_names_only_alerts_that_there_are(rules: tuple[RuleFile, ...]) -> None:
    refuse_gaps(set(alerts_of(rules)))
