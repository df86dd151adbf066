"""MIG instances, and the GPU's place in the NVLink fabric."""

import pytest

from agent.model import Lane, Reason
from tests.nvml.conftest import gaps, values
from tests.nvml.fake_driver import (
    DENIED,
    MISSING,
    NOT_FOUND,
    UNKNOWN,
    UNSUPPORTED,
    FakeDriver,
    FakeGpu,
    a100,
    h100,
    instance,
)
from tests.nvml.test_sample import UNCOUNTED

INFO, USED = "coldplate_gpu_mig_info", "coldplate_gpu_mig_memory_used_bytes"


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
    made.instances = {number: FakeGpu(0, "GPU instance") for number in (7, 8)}
    made.instances[7].gpm = {2: 50.0, 5: 25.0}
    made.instances[8].gpm = {2: 0.0, 5: 0.0}
    return made


def test_a_destroyed_or_denied_instance_costs_only_itself_and_no_list_is_a_gap(opened, driver):
    bench = opened(driver)
    assert set(values(bench.read(Lane.COLD), INFO)) == {("MIG-1", "7", "0", "1g.10gb"), ("MIG-2", "8", "0", "2g.20gb")}
    sample = bench.read(Lane.SLOW)
    assert values(sample, USED) == {("MIG-1", "7"): 10.0, ("MIG-2", "8"): 20.0}
    assert values(sample, "coldplate_gpu_mig_memory_total_bytes")[("MIG-2", "8")] == 2000.0
    driver.others["one"].calls["nvmlDeviceGetMemoryInfo_v2"] = DENIED
    sample = bench.read(Lane.SLOW)
    assert gaps(sample, USED)[0].reason is Reason.DENIED
    assert values(sample, USED) == {("MIG-2", "8"): 20.0}
    driver.log.clear()
    bench.read(Lane.SLOW)
    assert "nvmlDeviceGetMaxMigDeviceCount" not in driver.log, "one that is denied is still there"
    driver.others["two"].calls["nvmlDeviceGetGpuInstanceId"] = NOT_FOUND
    sample = bench.read(Lane.COLD)
    assert set(values(sample, INFO)) == {("MIG-1", "7", "0", "1g.10gb")}
    assert len(gaps(sample, INFO)) == 1
    driver.gpus[0].calls["nvmlDeviceGetMaxMigDeviceCount"] = UNKNOWN
    assert gaps(opened(driver).read(Lane.COLD), INFO)[0].reason is Reason.MALFORMED


SM, TENSOR = (f"coldplate_gpu_mig_{part}_active_ratio" for part in ("sm", "tensor"))
SAMPLE = "nvmlGpmMigSampleGet"


def test_compute_instances_share_the_sample_and_the_series_of_their_gpu_instance(opened, driver):
    driver.gpus[0].calls["nvmlDeviceGetMigDeviceHandleByIndex", 4] = "three"
    driver.others["three"] = instance(3)
    driver.others["three"].calls |= {"nvmlDeviceGetGpuInstanceId": 7, "nvmlDeviceGetComputeInstanceId": 1}
    bench = opened(driver)
    bench.read(Lane.SLOW)
    driver.log.clear()
    sample = bench.read(Lane.SLOW)
    assert driver.log.count(SAMPLE) == 2
    assert values(sample, SM) == {("MIG-1", "7"): 0.5, ("MIG-2", "8"): 0.0}


def test_an_instance_costs_one_call_more_in_a_slow_read_and_none_in_a_fast_one(opened, driver):
    bench = opened(driver)
    bench.read(Lane.SLOW)
    driver.log.clear()
    assert bench.read(Lane.SLOW).calls == len([name for name in driver.log if name not in UNCOUNTED])
    assert driver.log.count(SAMPLE) == len(driver.instances)
    driver.log.clear()
    bench.read(Lane.FAST)
    assert not [name for name in driver.log if "Mig" in name]


@pytest.mark.parametrize(("code", "reason"), [(UNSUPPORTED, Reason.UNSUPPORTED), (DENIED, Reason.DENIED)])
def test_an_instance_that_refuses_its_activity_is_asked_once_and_costs_only_itself(opened, driver, code, reason):
    driver.instances[8].failing = code
    bench = opened(driver)
    for _ in range(3):
        sample = bench.read(Lane.SLOW)
    assert values(sample, SM) == {("MIG-1", "7"): 0.5}
    assert [(gap.reason, gap.detail.partition(":")[0]) for gap in gaps(sample, TENSOR)] == [(reason, "MIG-2")]
    assert values(sample, USED) == {("MIG-1", "7"): 10.0, ("MIG-2", "8"): 20.0}
    driver.log.clear()
    bench.read(Lane.SLOW)
    assert driver.log.count(SAMPLE) == 1
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in driver.log


def test_instances_appear_and_end_with_the_cold_sample_after_mig_was_switched(opened, driver):
    """As of dcgm-exporter issue 747: the mode changes while the library is open."""
    calls = driver.gpus[0].calls
    bench = opened(driver)
    calls["nvmlDeviceGetMigMode"] = 0
    assert not values(bench.read(Lane.COLD), INFO)
    assert not values(bench.read(Lane.SLOW), USED)
    calls["nvmlDeviceGetMigMode"] = 1
    assert len(values(bench.read(Lane.COLD), INFO)) == 2
    assert len(values(bench.read(Lane.SLOW), USED)) == 2


def test_a_metric_that_instances_lack_is_absent_and_not_zero(opened, driver):
    driver.instances[7].gpm[5] = UNSUPPORTED
    sample = opened(driver).again(Lane.SLOW)
    assert values(sample, TENSOR) == {("MIG-2", "8"): 0.0}
    assert values(sample, SM)[("MIG-1", "7")] == 0.5


def test_a_destroyed_instance_is_gone_after_one_gap_and_its_samples_are_freed(opened, driver):
    bench = opened(driver)
    bench.read(Lane.SLOW)
    held = driver.samples
    del driver.instances[8]
    driver.others["two"].failing = UNKNOWN
    driver.gpus[0].calls["nvmlDeviceGetMigDeviceHandleByIndex", 3] = NOT_FOUND
    sample = bench.read(Lane.SLOW)
    assert values(sample, SM) == {("MIG-1", "7"): 0.5}
    assert [gap.detail.partition(":")[0] for row in (SM, USED) for gap in gaps(sample, row)] == ["MIG-2", "MIG-2"]
    sample = bench.read(Lane.SLOW)
    assert values(sample, SM) == {("MIG-1", "7"): 0.5}
    assert values(sample, USED) == {("MIG-1", "7"): 10.0}
    assert gaps(sample, SM) == gaps(sample, USED) == []
    assert driver.samples == held - 2
    bench.source.close()
    assert driver.samples == 0


def test_an_instance_that_comes_later_is_read_after_the_next_list(opened, driver):
    made = driver.instances.pop(8)
    second = driver.gpus[0].calls.pop(("nvmlDeviceGetMigDeviceHandleByIndex", 3))
    bench = opened(driver)
    bench.read(Lane.SLOW)
    driver.instances[8] = made
    driver.gpus[0].calls["nvmlDeviceGetMigDeviceHandleByIndex", 3] = second
    bench.read(Lane.COLD)
    bench.read(Lane.SLOW)
    assert values(bench.read(Lane.SLOW), SM) == {("MIG-1", "7"): 0.5, ("MIG-2", "8"): 0.0}


@pytest.mark.parametrize(
    ("call", "answer", "shown"),
    [
        ("nvmlGpmQueryDeviceSupport", 0, {}),  # before Hopper
        # Whether a GPU with MIG enabled may be sampled as a whole is not known; its instances do not depend on it.
        ("nvmlGpmSampleGet", UNSUPPORTED, {("MIG-1", "7"): 0.5, ("MIG-2", "8"): 0.0}),
    ],
)
def test_instances_have_activity_where_there_is_gpm_though_the_gpu_has_none(opened, driver, call, answer, shown):
    driver.gpus[0].calls[call] = answer
    sample = opened(driver).again(Lane.SLOW)
    assert values(sample, SM) == shown
    assert {gap.reason for gap in gaps(sample, SM)} == (set() if shown else {Reason.UNSUPPORTED})
    assert (SAMPLE in driver.log) is bool(shown)


FABRIC, STATE = "coldplate_gpu_fabric_info", "coldplate_gpu_fabric_state"
CALL = "nvmlDeviceGetGpuFabricInfoV"


def test_the_domain_of_a_rack_is_its_cluster_and_clique(opened):
    gpu = h100()
    gpu.calls[CALL] = {"cluster_uuid": "0123456789abcdef0123456789abcdef", "clique": 7, "state": 3, "status": 0}
    sample = opened(gpu).read(Lane.COLD)
    assert values(sample, FABRIC) == {("01234567-89ab-cdef-0123-456789abcdef", "7"): 1.0}
    assert values(sample, STATE)[("completed",)] == 1.0
    assert values(opened(h100()).read(Lane.COLD), FABRIC) == {("", "0"): 1.0}, "the zero cluster of a node by itself"


@pytest.mark.parametrize(
    ("state", "status", "name", "reason"),
    [
        (0, 0, "not_supported", Reason.UNSUPPORTED),
        (1, 0, "not_started", Reason.TIMEOUT),
        (2, 0, "in_progress", Reason.TIMEOUT),
        (3, 999, "failed", Reason.MALFORMED),
        (3, 7, "failed", Reason.MALFORMED),  # insufficient resources (azhpc-images pull request 506)
        (3, 3, "not_supported", Reason.UNSUPPORTED),
        (3, 0x10006, "not_supported", Reason.UNSUPPORTED),  # a GH200 by itself (gpud pull request 1206)
        (2, 999, "in_progress", Reason.TIMEOUT),
        (9, 0, None, Reason.MALFORMED),
    ],
)
def test_without_a_completed_registration_there_is_a_state_and_no_domain(opened, state, status, name, reason):
    gpu = h100()
    gpu.calls[CALL] = {"cluster_uuid": "00" * 16, "clique": 0, "state": state, "status": status}
    sample = opened(gpu).read(Lane.COLD)
    assert [state for (state,), active in values(sample, STATE).items() if active] == ([name] if name else [])
    assert bool(gaps(sample, STATE)) is (name is None), "a state of a newer driver"
    assert values(sample, FABRIC) == {}
    assert gaps(sample, FABRIC)[0].reason is reason


def test_a_driver_without_fabric_info_is_asked_once(opened):
    bench = opened(a100(calls={CALL: MISSING}))
    assert gaps(bench.read(Lane.COLD), STATE)[0].reason is Reason.UNSUPPORTED
    bench.driver.log.clear()
    assert gaps(bench.read(Lane.COLD), STATE)[0].reason is Reason.UNSUPPORTED
    assert CALL not in bench.driver.log
