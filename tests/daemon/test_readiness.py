"""What `/-/ready` answers, by the age of the last sample and what became of the devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.daemon.hub import Hub
from agent.daemon.self_report import HUNG_SECONDS, UNWRITTEN_SECONDS, Readiness, Signs
from agent.lib.state_files import FileState
from agent.model import BackendReport, Instant, Lane, Outcome
from agent.sampler.backend_runner import Flight
from agent.sampler.health import LoopFacts
from agent.sampler.presence import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from tests.engine.conftest import Node

SETTINGS = Settings(fast=2.0)
PATIENCE = SETTINGS.patience(Lane.FAST)


def asked(age: float, **outcomes: Outcome) -> tuple[bool, str]:
    """What is answered so many seconds after a sample in which sources fared so."""
    hub = Hub()
    reports = tuple(BackendReport(name, outcome, 0.0, "says why") for name, outcome in outcomes.items())
    hub.publish(replace(Node().snapshot({}, Instant(100.0, 1e9)), reports=reports))
    return Readiness(hub, Sampler(SETTINGS, Inventory(None), "nvml"), lambda: Instant(100.0 + age, 1e9))()


def test_before_the_first_sample_it_is_not_ready() -> None:
    readiness = Readiness(Hub(), Sampler(SETTINGS, Inventory(None), "nvml"), lambda: Instant(0.0, 0.0))
    assert readiness() == (False, "no sample yet")


@pytest.mark.parametrize(
    ("age", "ready", "text"),
    [
        (0.0, True, "the last sample is 0.0 s old"),
        (PATIENCE, True, f"the last sample is {PATIENCE:.1f} s old"),
        (PATIENCE + 0.1, False, f"the last sample is {PATIENCE + 0.1:.1f} s old"),
        (-0.5, True, "the last sample is 0.0 s old"),
    ],
)
def test_it_is_ready_while_the_last_sample_is_fresh(age: float, ready: bool, text: str) -> None:
    assert asked(age, nvml=Outcome.OK) == (ready, text)


def test_devices_that_cannot_be_read_are_named_and_other_sources_do_not_matter() -> None:
    assert asked(0.0, host=Outcome.OK, nvml=Outcome.FAILED) == (False, "the devices cannot be read: says why")
    assert asked(0.0, nvml=Outcome.OK, infiniband=Outcome.FAILED)[0]
    assert asked(0.0, nvml=Outcome.ABSENT)[0]


def stopped(signs: Signs) -> list[str]:
    """The lines of a node with a fresh sample; none if it is ready."""
    hub = Hub()
    hub.publish(Node().snapshot({}, Instant(100.0, 1e9)))
    ready, text = Readiness(hub, Sampler(SETTINGS, Inventory(None), "nvml"), lambda: Instant(100.0, 1e9), signs)()
    return [] if ready else text.splitlines()


def test_every_part_that_has_stopped_has_a_line() -> None:
    threads = {
        "rules": "has made no progress for 31 s", "state": "ended by OSError: x",
        "backend-host": "cannot be started: y",
        "notify": "ended by ValueError: a receiver's, which has its own alert",
    }  # fmt: skip
    assert stopped(Signs(threads=lambda: threads)) == [
        "backend host: its thread cannot be started: y",
        "rules are not evaluated: their thread has made no progress for 31 s",
        "state is not written: its thread ended by OSError: x",
    ]
    assert stopped(Signs(rules=lambda: "KeyError: 'x'")) == ["rules are not evaluated: KeyError: 'x'"]
    assert stopped(Signs()) == []


def test_state_that_waits_for_the_disk_counts_after_a_minute() -> None:
    def written(good: bool, waiting: float) -> list[str]:
        return stopped(Signs(files=lambda: [FileState("alerts.state", good, 3, None, waiting)]))

    assert written(False, UNWRITTEN_SECONDS) == []
    assert written(False, UNWRITTEN_SECONDS + 1) == ["state is not written: alerts.state for 61 s"]
    assert written(True, 0.0) == []


def test_a_source_that_hangs_counts_and_one_that_fails_does_not() -> None:
    hub, sampler = Hub(), Sampler(SETTINGS, Inventory(None), "nvml")
    at = 100.0
    readiness = Readiness(hub, sampler, lambda: Instant(at, 1e9))
    sampler.take_flights({"infiniband": Flight(Lane.SLOW, 100.0)})
    for at, ready in ((100.0 + HUNG_SECONDS, True), (101.0 + HUNG_SECONDS, False)):
        hub.publish(sampler.snapshot(Instant(at, 1e9), LoopFacts()))
        assert readiness()[0] == ready
    assert readiness()[1] == "backend infiniband has not answered for 16 s"
    sampler.take_flights({})
    hub.publish(sampler.snapshot(Instant(at, 1e9), LoopFacts()))
    assert readiness()[0]
