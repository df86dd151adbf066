"""The compute processes of a GPU, as the driver lists them."""

from __future__ import annotations

import pytest

from agent.backends.protocol import DeviceError, GpuProcess
from agent.model import Lane, Reason
from tests.nvml.fake_driver import DENIED, LOST, MISSING, NOT_FOUND, UNKNOWN, h100

CALL = "nvmlDeviceGetComputeRunningProcesses_v3"
MPS, SHARES = "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetProcessUtilization"
NONE = 2**32 - 1


def test_processes_come_with_the_slow_lane_only(opened):
    gpu = h100()
    gpu.calls[CALL] = [(300, 2**30, NONE, NONE), (100, 2**64 - 1, 3, 0)]
    bench = opened(gpu)
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


def test_clients_of_an_mps_server_are_processes_too(opened):
    gpu = h100()
    gpu.calls[CALL] = [(100, 2**30, NONE, NONE)]
    gpu.calls[MPS] = [(101, 2**29, NONE, NONE), (100, 2**30, NONE, NONE)]
    gpu.calls[SHARES] = [(101, 1_000, 50)]
    bench = opened(gpu)
    assert bench.read(Lane.SLOW).processes == (GpuProcess(100, 2**30), GpuProcess(101, 2**29, sm=0.5))
    gpu.calls[MPS] = MISSING
    assert shares(bench.read(Lane.SLOW)) == {100: None}
    assert shares(bench.read(Lane.SLOW)) == {100: None}
    assert bench.driver.log.count(MPS) == 2


def test_an_mps_server_without_clients_is_asked_with_every_fourth_read(opened):
    gpu = h100()
    gpu.calls[MPS] = []
    bench = opened(gpu)
    for _ in range(9):
        bench.read(Lane.SLOW)
    assert bench.driver.log.count(MPS) == 3


@pytest.mark.parametrize(("code", "reasons", "times"), [
    (NOT_FOUND, [], 2), (MISSING, [Reason.UNSUPPORTED], 1), (UNKNOWN, [Reason.LOST], 2),
])  # fmt: skip
def test_a_refused_share_costs_only_itself(opened, code, reasons, times):
    gpu = h100()
    gpu.calls[CALL] = [(100, 2**30, NONE, NONE), (101, 2**30, NONE, NONE)]
    gpu.calls[SHARES] = code
    bench = opened(gpu)
    for _ in range(2):
        sample = bench.read(Lane.SLOW)
        assert shares(sample) == {100: None, 101: None}
        found = [gap.reason for gap in sample.gaps if gap.metric.name == "coldplate_gpu_job_sm_ratio"]
        assert (len(found), bool(reasons)) == (len(reasons), bool(found))
    assert bench.driver.log.count(SHARES) == times


def test_a_gpu_without_processes_has_none_which_is_not_unknown(opened):
    assert opened(h100()).read(Lane.SLOW).processes == ()


@pytest.mark.parametrize(("code", "reason"), [(DENIED, Reason.DENIED), (MISSING, Reason.UNSUPPORTED)])
def test_a_driver_that_refuses_for_good_is_asked_once_and_reported_each_time(opened, code, reason):
    gpu = h100()
    gpu.calls[CALL] = code
    bench = opened(gpu)
    for _ in range(3):
        sample = bench.read(Lane.SLOW)
        assert sample.processes is None
        assert [gap.reason for gap in sample.gaps if gap.metric.name == "coldplate_gpu_job_info"] == [reason]
    assert bench.driver.log.count(CALL) == 1


def test_a_passing_failure_costs_the_processes_of_one_sample(opened):
    gpu = h100()
    gpu.calls[CALL] = UNKNOWN
    bench = opened(gpu)
    sample = bench.read(Lane.SLOW)
    assert sample.processes is None
    assert len(sample.readings) > 3
    gpu.calls[CALL] = []
    assert bench.read(Lane.SLOW).processes == ()


def test_a_lost_gpu_is_lost_here_too(opened):
    gpu = h100()
    gpu.calls[CALL] = LOST
    with pytest.raises(DeviceError):
        opened(gpu).read(Lane.SLOW)
