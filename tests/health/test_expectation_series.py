"""What the running agent tells of its expectations, and what it says in the log."""

from __future__ import annotations

import logging

import pytest

from agent.health.examination import FACTS
from agent.health.expectation_files import load_expectations
from agent.health.expectation_series import FIRST_SECONDS, SETTLED_SECONDS, ExpectationChoice, ExpectationSeries
from agent.model import Instant, Snapshot


class Watched:
    """The series of a node whose latest snapshot the test sets."""

    def __init__(self, choice: ExpectationChoice) -> None:
        self.latest: Snapshot | None = None
        self.series = ExpectationSeries(lambda: self.latest, choice)
        self.now = 0.0

    def told(self, after: float = SETTLED_SECONDS) -> dict[str, float]:
        """By expectation, and by `=` and the name of all of them, what is told so many seconds later."""
        self.now += after
        frame = self.series.frame(Instant(self.now, self.now))
        return {
            ("=" if reading.metric.name.endswith("_info") else "") + reading.series.all_labels[0][1]: reading.value
            for reading in frame.readings
        }


def test_every_fact_that_is_known_has_a_series_and_what_is_not_has_none(look) -> None:
    watched = Watched(ExpectationChoice())
    assert watched.told() == {}
    watched.latest = look("healthy-training")
    assert watched.told() == {"=dgx-h100": 1.0, **dict.fromkeys(FACTS - {"rack-nodes"}, 1.0)}


def test_a_fact_that_is_not_met_is_0_and_told_once_and_so_is_its_end(look, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "coldplate.expectations")
    watched = Watched(ExpectationChoice())
    for name, met in (("idle", 1.0), ("nvlink-down", 0.0), ("nvlink-down", 0.0), ("idle", 1.0), ("idle", 1.0)):
        watched.latest = look(name)
        told = watched.told()
        assert told["nvlinks"] == met
        assert told["gpu-count"] == 1.0
    assert [each.getMessage() for each in caplog.records] == [
        "expectation is not met", "expectation is met again: nvlinks",
    ]  # fmt: skip
    facts = vars(caplog.records[0])["facts"]
    assert (facts["expectation"], facts["found"]) == ("nvlinks", "GPU 2: 17 up, 1 down")


def test_the_facts_are_looked_at_now_and_then_and_at_once_after_a_change(look) -> None:
    watched = Watched(ExpectationChoice())
    watched.latest = look("idle")
    first = watched.series.frame(Instant(0.0, 0.0))
    watched.latest = look("nvlink-down")
    assert watched.told(after=FIRST_SECONDS - 1)["nvlinks"] == 1.0
    assert watched.told(after=1)["nvlinks"] == 0.0
    assert watched.series.frame(Instant(15.0, 15.0)).layout is first.layout
    watched.latest = look("idle")
    assert watched.told(after=FIRST_SECONDS)["nvlinks"] == 1.0
    assert watched.told(after=FIRST_SECONDS)["nvlinks"] == 1.0, "the same once more: settled"
    watched.latest = look("nvlink-down")
    assert watched.told(after=SETTLED_SECONDS - 1)["nvlinks"] == 1.0
    assert watched.told(after=1)["nvlinks"] == 0.0
    watched.series.reconfigure(ExpectationChoice(named=load_expectations("gb200-tray")))
    told = watched.told(after=0)
    assert told["=gb200-tray"] == 1.0
    assert told["gpu-count"] == 0.0


def test_nothing_is_told_where_nothing_is_to_be_expected(look) -> None:
    watched = Watched(ExpectationChoice(by_gpus=False))
    watched.latest = look("nvlink-down")
    assert watched.told() == {}
