"""The compute processes of a GPU, as the driver lists them."""

import pytest

from agent.backends.protocol import DeviceError, GpuProcess
from agent.model import Lane, Reason
from tests.nvml.conftest import gaps, value, values
from tests.nvml.fake_driver import DENIED, LOST, MISSING, NOT_FOUND, U64, UNKNOWN, FakeDriver, h100

CALL = "nvmlDeviceGetComputeRunningProcesses_v3"
MPS, SHARES = "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetProcessUtilization"
NONE = 2**32 - 1


def test_processes_come_with_the_slow_lane_only(opened):
    bench = opened(h100(calls={CALL: [(300, 2**30, NONE, NONE), (100, 2**64 - 1, 3, 0)]}))
    assert bench.read(Lane.SLOW).processes == (GpuProcess(100, None, 3), GpuProcess(300, 2**30, None))
    assert bench.read(Lane.FAST).processes is None
    assert bench.read(Lane.COLD).processes is None


def shares(sample):
    return {each.pid: each.sm for each in sample.processes}


def test_a_shared_gpu_is_asked_what_each_process_had_of_the_time(opened):
    gpu = h100()
    gpu.calls[CALL] = [(100, 2**30, NONE, NONE), (101, 2**30, NONE, NONE)]
    gpu.calls[SHARES] = [(100, 1_000, 60), (100, 2_000, 80), (101, 1_500, 2**32 - 1)]
    bench = opened(gpu)
    assert shares(bench.read(Lane.SLOW)) == {100: 0.7, 101: None}
    gpu.calls[SHARES] = [(100, 2_000, 80), (101, 3_000, 10)]
    assert shares(bench.read(Lane.SLOW)) == {100: None, 101: 0.1}
    gpu.calls[CALL] = [(100, 2**30, NONE, NONE)]
    asked = bench.driver.log.count(SHARES)
    assert shares(bench.read(Lane.SLOW)) == {100: None}
    assert bench.driver.log.count(SHARES) == asked


def test_mps_clients_are_processes_and_a_server_without_any_is_asked_seldom(opened):
    gpu = h100(calls={CALL: [(100, 2**30, NONE, NONE)], SHARES: [(101, 1_000, 50)]})
    gpu.calls[MPS] = [(101, 2**29, NONE, NONE), (100, 2**30, NONE, NONE)]
    bench = opened(gpu)
    assert bench.read(Lane.SLOW).processes == (GpuProcess(100, 2**30), GpuProcess(101, 2**29, sm=0.5))
    gpu.calls[MPS] = MISSING
    assert shares(bench.read(Lane.SLOW)) == {100: None}
    assert shares(bench.read(Lane.SLOW)) == {100: None}
    assert bench.driver.log.count(MPS) == 2
    bench = opened(h100(calls={MPS: []}))
    for _ in range(9):
        bench.read(Lane.SLOW)
    assert bench.driver.log.count(MPS) == 3


@pytest.mark.parametrize(
    ("code", "reasons", "times"), [(NOT_FOUND, [], 2), (MISSING, [Reason.UNSUPPORTED], 1), (UNKNOWN, [Reason.LOST], 2)]
)
def test_a_refused_share_costs_only_itself(opened, code, reasons, times):
    bench = opened(h100(calls={CALL: [(100, 2**30, NONE, NONE), (101, 2**30, NONE, NONE)], SHARES: code}))
    for _ in range(2):
        sample = bench.read(Lane.SLOW)
        assert shares(sample) == {100: None, 101: None}
        found = [gap.reason for gap in sample.gaps if gap.metric.name == "coldplate_gpu_job_sm_ratio"]
        assert (len(found), bool(reasons)) == (len(reasons), bool(found))
    assert bench.driver.log.count(SHARES) == times


@pytest.mark.parametrize(("code", "reason"), [(DENIED, Reason.DENIED), (MISSING, Reason.UNSUPPORTED)])
def test_a_driver_that_refuses_for_good_is_asked_once_and_reported_each_time(opened, code, reason):
    bench = opened(h100(calls={CALL: code}))
    for _ in range(3):
        sample = bench.read(Lane.SLOW)
        assert sample.processes is None
        assert [gap.reason for gap in sample.gaps if gap.metric.name == "coldplate_gpu_job_info"] == [reason]
    assert bench.driver.log.count(CALL) == 1


def test_a_passing_failure_costs_one_list_of_processes_and_a_lost_gpu_the_sample(opened):
    gpu = h100(calls={CALL: UNKNOWN})
    bench = opened(gpu)
    sample = bench.read(Lane.SLOW)
    assert sample.processes is None
    assert len(sample.readings) > 3
    gpu.calls[CALL] = []
    assert bench.read(Lane.SLOW).processes == ()
    gpu.calls[CALL] = LOST
    with pytest.raises(DeviceError):
        bench.read(Lane.SLOW)


# GPU performance monitoring: means over intervals that are long enough, and never yesterday's.
ROW = "coldplate_gpu_sm_active_ratio"
SENT = "coldplate_gpu_pcie_transmit_bytes_total"


def samples_taken(driver: FakeDriver) -> int:
    return driver.log.count("nvmlGpmSampleGet")


def test_a_quick_lane_keeps_the_newest_mean_until_the_next_interval_is_long_enough(opened):
    gpu = h100()
    bench = opened(gpu)
    bench.read()
    assert value(bench.read(after=0.12), ROW) == 0.57
    taken = samples_taken(bench.driver)
    gpu.gpm[2] = 80.0
    sample = bench.read(after=0.05)
    assert value(sample, ROW) == 0.57
    assert samples_taken(bench.driver) == taken
    assert sample.calls == 6
    assert value(bench.read(after=0.07), ROW) == 0.8


def test_after_a_failure_there_is_a_gap_and_a_fresh_start(opened):
    gpu = h100()
    bench = opened(gpu)
    bench.read()
    bench.read()
    gpu.calls["nvmlGpmSampleGet"] = UNKNOWN
    sample = bench.read()
    assert values(sample, ROW) == {}
    assert gaps(sample, ROW)[0].reason is Reason.MALFORMED
    gpu.calls["nvmlGpmSampleGet"] = None
    assert values(bench.read(), ROW) == {}
    assert value(bench.read(), ROW) == 0.57


def test_growth_per_second_adds_up_to_a_counter(opened):
    gpu = h100()
    bench = opened(gpu)
    bench.read()
    before = value(bench.read(after=1.0), SENT)
    gpu.gpm[20] = 50_000.0  # a link of generation 5 at full speed: more than a counter of 32 bits holds in a second
    after = value(bench.read(after=2.0), SENT)
    assert (after - before) / 2**20 == pytest.approx(100_000.0)
    gpu.gpm[20] = UNKNOWN
    assert gaps(bench.read(), SENT)
    gpu.gpm[20] = 0.0
    assert value(bench.read(), SENT) == after


def test_without_gpm_the_driver_counts_bytes_and_without_buffers_the_rest_continues(opened):
    gpu = h100(calls={"nvmlGpmQueryDeviceSupport": 0}, fields={(197, 0): (U64, 4_000)})
    assert value(opened(gpu).again(), SENT) == 4_000
    driver = FakeDriver(h100())
    driver.system["nvmlGpmSampleAlloc"] = UNKNOWN
    sample = opened(driver).again()
    assert gaps(sample, ROW)[0].reason is Reason.MALFORMED
    assert samples_taken(driver) == 0
    assert value(sample, "coldplate_gpu_power_watts") == 412.345


def test_the_gpm_sample_is_the_first_call_and_closing_frees_every_buffer(opened):
    bench = opened(h100())
    bench.read()
    bench.driver.log.clear()
    bench.read()
    assert bench.driver.log[0] == "nvmlGpmSampleGet"
    assert bench.driver.samples == 2
    bench.source.close()
    bench.source.close()
    assert bench.driver.samples == 0
    assert bench.driver.log.count("nvmlShutdown") == 1
