"""What `/-/ready` answers, by the age of the last sample and what became of the devices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.daemon.hub import Hub
from agent.daemon.readiness import Readiness
from agent.model import BackendReport, Instant, Lane, Outcome
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.settings import Settings
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
