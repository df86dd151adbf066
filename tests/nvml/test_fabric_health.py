"""What the mask of the fabric's health says of a GPU: each problem, none of them, and what a driver cannot tell."""

from __future__ import annotations

import pynvml
import pytest

from agent.catalogue.links import FABRIC_HEALTH, FABRIC_PROBLEMS
from agent.model import Lane, Reason
from tests.nvml.fake_driver import MISSING, UNKNOWN, b200
from tests.nvml.finding import gaps, values

CALL = "nvmlDeviceGetGpuFabricInfoV"
PROBLEM = "coldplate_gpu_fabric_problem"
HEALTHY = 0b01_01_0001_10_10_10_10


def read(opened, mask, **others):
    gpu = b200()
    gpu.calls[CALL] = {"cluster_uuid": "ab" * 16, "clique": 1, "state": 3, "status": 0, "health": mask, **others}
    return opened(gpu).read(Lane.COLD)


def test_a_healthy_gpu_has_no_problem(opened):
    sample = read(opened, HEALTHY)
    assert values(sample, PROBLEM) == {(name,): 0.0 for name in FABRIC_PROBLEMS}


@pytest.mark.parametrize(
    ("shift", "width", "code", "name"),
    [
        (0, 2, 1, "degraded_bandwidth"),
        (2, 2, 1, "route_recovery"),
        (4, 2, 1, "route_unhealthy"),
        (6, 2, 1, "access_timeout_recovery"),
        (8, 4, 2, "wrong_system_guid"),
        (8, 4, 3, "wrong_chassis_serial"),
        (8, 4, 4, "no_partition"),
        (8, 4, 5, "insufficient_nvlinks"),
        (8, 4, 6, "incompatible_firmware"),
        (8, 4, 7, "invalid_location"),
        (8, 4, 8, "invalid_gpu_state"),
        (12, 2, 2, "partition_unassigned"),
        (14, 2, 2, "manager_disconnected"),
    ],
)
def test_each_problem_has_its_name(opened, shift, width, code, name):
    mask = HEALTHY & ~((1 << width) - 1 << shift) | code << shift
    sample = read(opened, mask)
    assert values(sample, PROBLEM) == {(each,): float(each == name) for each in FABRIC_PROBLEMS}


def test_the_bits_are_those_that_nvidia_gives_the_names():
    prefix = "NVML_GPU_FABRIC_HEALTH_MASK"
    names = ("DEGRADED_BW", "ROUTE_RECOVERY", "ROUTE_UNHEALTHY", "ACCESS_TIMEOUT_RECOVERY", "INCORRECT_CONFIGURATION",
             "PARTITION_ASSIGNED", "GFM_STATE")  # fmt: skip
    for aspect, name in zip(FABRIC_HEALTH, names, strict=True):
        assert aspect.shift == getattr(pynvml, f"{prefix}_SHIFT_{name}")
        assert (1 << aspect.width) - 1 == getattr(pynvml, f"{prefix}_WIDTH_{name}")
        codes = {value for each, value in vars(pynvml).items() if each.startswith(f"{prefix}_{name}_")}
        assert codes == {0, aspect.good, *aspect.bad}


def test_two_problems_are_two(opened):
    sample = read(opened, HEALTHY ^ 0b1111)
    assert {name for (name,), there in values(sample, PROBLEM).items() if there} == {
        "degraded_bandwidth",
        "route_recovery",
    }


def test_what_the_driver_cannot_tell_is_left_out(opened):
    sample = read(opened, 0b01)
    assert values(sample, PROBLEM) == {("degraded_bandwidth",): 1.0}
    assert gaps(sample, PROBLEM) == []


@pytest.mark.parametrize("others", [{"health": 0}, {"state": 0, "health": 0}])
def test_a_driver_that_tells_nothing_is_a_gap_and_not_healthy(opened, others):
    sample = read(opened, 0, **others)
    assert values(sample, PROBLEM) == {}
    assert gaps(sample, PROBLEM)[0].reason is Reason.UNSUPPORTED


def test_a_code_of_a_newer_driver_is_neither_a_problem_nor_none(opened):
    sample = read(opened, HEALTHY & ~0xF00 | 9 << 8)
    assert values(sample, PROBLEM)["degraded_bandwidth",] == 0.0
    assert ("no_partition",) not in values(sample, PROBLEM)
    (gap,) = gaps(sample, PROBLEM)
    assert gap.reason is Reason.MALFORMED
    assert gap.detail == "fabric health: code 9 at bit 8 is unknown to this version"


def test_a_gpu_that_has_not_joined_says_why(opened):
    sample = read(opened, HEALTHY & ~0xF00 | 5 << 8, state=2)
    assert values(sample, PROBLEM)["insufficient_nvlinks",] == 1.0


def test_an_answer_of_an_older_recording_has_no_mask(opened):
    gpu = b200()
    del gpu.calls[CALL]["health"]
    assert values(opened(gpu).read(Lane.COLD), PROBLEM) == {}


@pytest.mark.parametrize(("answer", "reason"), [(MISSING, Reason.UNSUPPORTED), (UNKNOWN, Reason.MALFORMED)])
def test_a_call_that_fails_is_a_gap(opened, answer, reason):
    gpu = b200()
    gpu.calls[CALL] = answer
    sample = opened(gpu).read(Lane.COLD)
    assert gaps(sample, PROBLEM)[0].reason is reason
