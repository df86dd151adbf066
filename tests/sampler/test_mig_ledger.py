"""The seconds of each GPU instance by what it did, from its activity and whether a job holds it."""

from __future__ import annotations

import pytest

from agent.catalogue import BY_NAME
from agent.model import Frame, Framer, Gpu, Reading, Series
from agent.sampler.mig_ledger import MigLedger

GPU = Gpu("0", "GPU-0")
COMPUTES, SPINS, IDLE = (
    {"utilization": 1.0, "sm_active": 0.6},
    {"utilization": 1.0, "sm_active": 0.1},
    {"utilization": 0.0},
)


class Rig:
    """A ledger of one GPU, and its frames: the activity of its instances, and those that jobs hold."""

    def __init__(self) -> None:
        self.ledger = MigLedger()
        self._activity, self._jobs = Framer(), Framer()

    def at(self, now: float, instances: dict[str, dict[str, float]], *held: str) -> dict[str, dict[str, float]]:
        """Return the seconds of each instance by state, without those that are 0."""
        activity = self._activity.frame(
            Reading(Series(BY_NAME[f"coldplate_gpu_mig_{name}_ratio"], GPU, labels(number)), value)
            for number, each in instances.items()
            for name, value in each.items()
        )
        jobs = self._jobs.frame(
            Reading(Series(BY_NAME["coldplate_gpu_job_info"], GPU, (("job_id", "7"), ("mig", number))), 1)
            for number in held
        )
        return totals(self.ledger.frame(now, (activity, jobs)))


def labels(number: str) -> tuple[tuple[str, str], ...]:
    return (("mig_uuid", f"MIG-{number}"), ("gpu_instance", number))


def totals(frame: Frame) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for reading in frame.readings:
        its = dict(reading.labels)
        assert its["mig_uuid"] == f"MIG-{its['gpu_instance']}"
        states = found.setdefault(its["gpu_instance"], {})
        if reading.value:
            states[its["state"]] = reading.value
    return found


@pytest.mark.parametrize(
    ("activity", "held", "expected"),
    [
        (COMPUTES, True, {"computing": 10.0}),
        (SPINS, True, {"waiting": 10.0}),
        (SPINS | {"dram_active": 0.2}, True, {"computing": 10.0}),
        (IDLE, True, {"held": 10.0}),
        (IDLE, False, {"free": 10.0}),
        (COMPUTES | {"utilization": 0.3}, True, {"computing": 3.0, "held": 7.0}),
        (COMPUTES | {"utilization": 0.3}, False, {"computing": 3.0, "free": 7.0}),
    ],
)
def test_ten_seconds_of_one_instance(activity: dict[str, float], held: bool, expected: dict[str, float]) -> None:
    rig = Rig()
    jobs = ["3"] if held else []
    assert rig.at(0.0, {"3": activity}, *jobs) == {"3": {}}
    assert rig.at(10.0, {"3": activity}, *jobs) == {"3": pytest.approx(expected)}


def test_the_instances_of_a_gpu_are_apart() -> None:
    rig = Rig()
    instances = {"1": COMPUTES, "2": IDLE, "5": IDLE}
    rig.at(0.0, instances, "1", "2")
    found = rig.at(10.0, instances, "1", "2")
    assert found == {"1": {"computing": 10.0}, "2": {"held": 10.0}, "5": {"free": 10.0}}


def test_an_instance_goes_on_where_it_was_if_it_comes_back_soon_and_begins_again_later() -> None:
    rig = Rig()
    rig.at(0.0, {"1": COMPUTES})
    rig.at(5000.0, {"1": COMPUTES})  # its layout never changed meanwhile
    assert rig.at(5010.0, {}) == {}
    assert rig.at(5020.0, {"1": IDLE})["1"] == {"computing": 5000.0, "free": 10.0}
    rig.at(5030.0, {})
    assert rig.at(6000.0, {"1": IDLE})["1"] == {"free": 970.0}


def test_without_activity_there_are_no_states() -> None:
    rig = Rig()
    rig.at(0.0, {"1": {"sm_active": 0.5}})
    assert rig.at(1.0, {"1": {"sm_active": 0.5}}) == {}
