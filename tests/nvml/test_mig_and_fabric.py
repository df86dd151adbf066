"""MIG instances, and the GPU's place in the NVLink fabric."""

from __future__ import annotations

import pytest

from agent.model import Lane, Reason
from tests.nvml.fake_driver import DENIED, MISSING, NOT_FOUND, UNKNOWN, UNSUPPORTED, FakeDriver, FakeGpu, a100, h100
from tests.nvml.finding import gaps, values

INFO, USED = "coldplate_gpu_mig_info", "coldplate_gpu_mig_memory_used_bytes"


def instance(number: int) -> FakeGpu:
    gpu = FakeGpu(0, f"NVIDIA H100 80GB HBM3 MIG {number}g.{number}0gb")
    gpu.calls |= {
        "nvmlDeviceGetUUID": f"MIG-{number}",
        "nvmlDeviceGetGpuInstanceId": number + 6,
        "nvmlDeviceGetComputeInstanceId": 0,
        "nvmlDeviceGetMemoryInfo_v2": {"total": 1000 * number, "reserved": 0, "free": 1, "used": 10 * number},
    }
    return gpu


@pytest.fixture
def driver() -> FakeDriver:
    parent = h100()
    parent.calls |= {
        "nvmlDeviceGetMigMode": 1,
        "nvmlDeviceGetUtilizationRates": UNSUPPORTED,
        "nvmlDeviceGetMaxMigDeviceCount": 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": NOT_FOUND,
        ("nvmlDeviceGetMigDeviceHandleByIndex", 0): "one",
        ("nvmlDeviceGetMigDeviceHandleByIndex", 3): "two",
    }
    made = FakeDriver(parent)
    made.others = {"one": instance(1), "two": instance(2)}
    return made


def test_instances_are_listed_with_their_profiles(opened, driver):
    sample = opened(driver).read(Lane.COLD)
    assert set(values(sample, INFO)) == {("MIG-1", "7", "0", "1g.10gb"), ("MIG-2", "8", "0", "2g.20gb")}


def test_memory_is_read_by_instance(opened, driver):
    sample = opened(driver).read(Lane.SLOW)
    assert values(sample, USED) == {("MIG-1", "7"): 10.0, ("MIG-2", "8"): 20.0}
    assert values(sample, "coldplate_gpu_mig_memory_total_bytes")[("MIG-2", "8")] == 2000.0


def test_a_destroyed_instance_is_gone_after_one_gap(opened, driver):
    bench = opened(driver)
    bench.read(Lane.SLOW)
    driver.others["two"].failing = UNKNOWN
    driver.gpus[0].calls["nvmlDeviceGetMigDeviceHandleByIndex", 3] = NOT_FOUND
    sample = bench.read(Lane.SLOW)
    assert values(sample, USED) == {("MIG-1", "7"): 10.0}
    assert "MIG-2" in gaps(sample, USED)[0].detail
    sample = bench.read(Lane.SLOW)
    assert values(sample, USED) == {("MIG-1", "7"): 10.0}
    assert gaps(sample, USED) == []


def test_a_denied_instance_is_a_gap(opened, driver):
    driver.others["one"].calls["nvmlDeviceGetMemoryInfo_v2"] = DENIED
    sample = opened(driver).read(Lane.SLOW)
    assert gaps(sample, USED)[0].reason is Reason.DENIED
    assert values(sample, USED) == {("MIG-2", "8"): 20.0}


def test_a_list_that_is_not_available_is_a_gap(opened, driver):
    driver.gpus[0].calls["nvmlDeviceGetMaxMigDeviceCount"] = UNKNOWN
    assert gaps(opened(driver).read(Lane.COLD), INFO)[0].reason is Reason.MALFORMED


def test_calls_on_instances_are_counted(opened, driver):
    bench = opened(driver)
    bench.read(Lane.SLOW)
    driver.log.clear()
    assert bench.read(Lane.SLOW).calls == len(driver.log)


def test_a_gpu_without_mig_costs_no_call_for_it(opened):
    bench = opened(h100())
    bench.read(Lane.COLD)
    bench.driver.log.clear()
    bench.read(Lane.COLD)
    assert not [name for name in bench.driver.log if "Mig" in name]


FABRIC, STATE = "coldplate_gpu_fabric_info", "coldplate_gpu_fabric_state"
CALL = "nvmlDeviceGetGpuFabricInfoV"


def test_the_domain_of_a_rack_is_its_cluster_and_clique(opened):
    gpu = h100()
    gpu.calls[CALL] = {"cluster_uuid": "0123456789abcdef0123456789abcdef", "clique": 7, "state": 3, "status": 0}
    sample = opened(gpu).read(Lane.COLD)
    assert values(sample, FABRIC) == {("01234567-89ab-cdef-0123-456789abcdef", "7"): 1.0}
    assert values(sample, STATE)[("completed",)] == 1.0


def test_the_zero_cluster_of_a_node_by_itself_is_not_shown_as_a_cluster(opened):
    assert values(opened(h100()).read(Lane.COLD), FABRIC) == {("", "0"): 1.0}


@pytest.mark.parametrize(
    ("state", "status", "name", "reason"),
    [
        (0, 0, "not_supported", Reason.UNSUPPORTED),
        (1, 0, "not_started", Reason.TIMEOUT),
        (2, 0, "in_progress", Reason.TIMEOUT),
        (3, 999, "completed", Reason.MALFORMED),
    ],
)
def test_without_a_completed_registration_there_is_a_state_and_no_domain(opened, state, status, name, reason):
    gpu = h100()
    gpu.calls[CALL] = {"cluster_uuid": "00" * 16, "clique": 0, "state": state, "status": status}
    sample = opened(gpu).read(Lane.COLD)
    assert values(sample, STATE)[(name,)] == 1.0
    assert sum(values(sample, STATE).values()) == 1.0
    assert values(sample, FABRIC) == {}
    assert gaps(sample, FABRIC)[0].reason is reason


def test_an_unknown_fabric_state_is_a_gap(opened):
    gpu = h100()
    gpu.calls[CALL] = {"cluster_uuid": "00" * 16, "clique": 0, "state": 9, "status": 0}
    sample = opened(gpu).read(Lane.COLD)
    assert values(sample, STATE) == {}
    assert gaps(sample, STATE)[0].reason is Reason.MALFORMED


def test_a_driver_without_fabric_info_is_asked_once(opened):
    gpu = a100()
    gpu.calls[CALL] = MISSING
    bench = opened(gpu)
    assert gaps(bench.read(Lane.COLD), STATE)[0].reason is Reason.UNSUPPORTED
    bench.driver.log.clear()
    assert gaps(bench.read(Lane.COLD), STATE)[0].reason is Reason.UNSUPPORTED
    assert CALL not in bench.driver.log
