"""GPU performance monitoring: means over intervals that are long enough, and never yesterday's."""

from __future__ import annotations

from agent.model import Lane, Reason
from tests.nvml.fake_driver import DENIED, UNKNOWN, FakeDriver, h100
from tests.nvml.finding import gaps, value, values

ROW = "coldplate_gpu_sm_active_ratio"


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


def test_one_metric_that_is_not_available_affects_only_itself(opened):
    gpu = h100()
    gpu.gpm[5] = DENIED
    gpu.gpm[10] = float("nan")
    bench = opened(gpu)
    bench.read()
    sample = bench.read()
    assert value(sample, ROW) == 0.57
    assert gaps(sample, "coldplate_gpu_tensor_active_ratio")[0].reason is Reason.DENIED
    assert gaps(sample, "coldplate_gpu_dram_active_ratio")[0].reason is Reason.MALFORMED


def test_the_sample_is_taken_before_any_other_call_of_the_read(opened):
    bench = opened(h100())
    bench.read()
    bench.driver.log.clear()
    bench.read()
    assert bench.driver.log[0] == "nvmlGpmSampleGet"


def test_without_sample_buffers_there_is_no_gpm_and_all_else_continues(opened):
    driver = FakeDriver(h100())
    driver.system["nvmlGpmSampleAlloc"] = UNKNOWN
    bench = opened(driver)
    bench.read()
    sample = bench.read()
    assert gaps(sample, ROW)[0].reason is Reason.MALFORMED
    assert samples_taken(driver) == 0
    assert value(sample, "coldplate_gpu_power_watts") == 412.345


def test_closing_gives_every_sample_buffer_back(opened):
    gpu = h100()
    bench = opened(gpu)
    bench.read(Lane.SLOW)
    bench.read()
    assert bench.driver.samples == 2
    bench.source.close()
    bench.source.close()
    assert bench.driver.samples == 0
    assert bench.driver.log.count("nvmlShutdown") == 1
