"""docs/dev/detection.md is current, and its table fits the rules and scenarios. The whole score is `make score`."""

from __future__ import annotations

import re
import threading

import pytest

from agent.backends.synthetic import load_scenario
from agent.model import Instant, Snapshot
from alerts.rulefile import RuleFile
from tests.lab.score import document
from tests.lab.score.__main__ import PAGE, alerts_of
from tests.lab.score.expectations import EXPECTED
from tests.lab.score.play import Play, load_pack
from tests.lab.score.plays import ScoreError, digest, of_name, refuse_gaps
from tests.lab.score.scoring import judge
from tests.lab.score.surroundings import Surroundings, figure

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


def test_an_alert_that_no_scenario_has_is_an_error(rules: tuple[RuleFile, ...]) -> None:
    with pytest.raises(ScoreError, match="no scenario has NewAlert: add one"):
        refuse_gaps({*alerts_of(rules), "NewAlert"})


def test_a_figure_is_in_place_of_what_the_node_shows_while_its_fault_lasts() -> None:
    ticks, mount = "coldplate_ticks_missed_total", 'coldplate_node_mount_up{mountpoint="/a",fstype="nfs4"}'
    shown, added = figure(ticks, 0, 7, healthy=2), figure(mount, 10, 0, healthy=1, duration=5)
    empty = Snapshot(1, Instant(0.0, 0.0), ())
    node = Surroundings((shown,)).around(empty, 0.0)
    assert [(each.metric.name, each.value) for each in node.readings] == [(ticks, 9.0)]
    again = Surroundings((figure(ticks, 10, 3, rate=0.5), added))
    found = [tuple(each.value for each in again.around(node, t).readings) for t in (0.0, 10.0, 14.0, 15.0)]
    assert found == [(0.0, 1.0), (3.0, 0.0), (5.0, 0.0), (5.0, 1.0)]


def test_a_variation_changes_only_what_it_names() -> None:
    before, after = of_name("parts-degraded").faults, of_name("parts-degraded-healthy").faults
    assert [each.kind for each in before] == [each.kind for each in after]
    assert (before[5].window.duration, after[5].window.duration) == (None, 40.0)
    assert (after[4].options["reason"], after[4].options["metric"]) == ("unsupported", before[4].options["metric"])
