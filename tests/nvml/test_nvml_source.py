"""Opening: who is there, who cannot be had, and what is told to whom when nothing works."""

import subprocess
import sys

import pytest

from agent.backends.nvml import NvmlSource
from agent.backends.protocol import AbsentError, DeviceError, SourceError
from agent.catalogue.gpu import FACTS
from agent.model import LANES, Instant, Lane, Reason
from tests.nvml.conftest import value
from tests.nvml.fake_driver import (
    DENIED,
    LOST,
    MISMATCH,
    MISSING,
    NO_LIBRARY,
    RESET,
    TIMEOUT,
    UNINITIALIZED,
    UNKNOWN,
    UNLOADED,
    UNSUPPORTED,
    Code,
    FakeDriver,
    FakeGpu,
    a100,
    h100,
)

NOW = Instant(1.0, 2.0)


def source(driver: FakeDriver) -> NvmlSource:
    return NvmlSource(driver, wall=lambda: 0.0, timeout=0.2)


def test_every_gpu_is_a_channel_keyed_by_its_uuid(opened):
    bench = opened(h100(0), h100(1))
    assert [channel.key for channel in bench.channels] == ["GPU-00000000", "GPU-00000001"]
    identity = bench.channels[1].identity
    assert identity.gpu.index == "1"
    assert identity.slot == "0000:1c:00.0"
    assert identity.serial == "1650001"
    assert identity.model == "NVIDIA H100 80GB HBM3"
    facts = dict(identity.facts)
    assert tuple(facts) == FACTS  # those that the reference of metrics names
    assert facts["driver_version"] == "570.124.06"
    assert facts["architecture"] == "hopper"
    assert facts["compute_capability"] == "9.0"
    assert facts["minor"] == "1"
    assert facts["board_part"] == ""  # this driver does not tell


def test_devices_are_addressed_by_uuid_after_the_enumeration(opened):
    gpu = h100()
    driver = FakeDriver(gpu)
    driver.system["nvmlDeviceGetHandleByUUID"] = lambda uuid: f"handle of {uuid}"
    asked = []
    driver.system["nvmlDeviceGetHandleByIndex_v2"] = lambda index: asked.append(index) or f"handle of {gpu.uuid}"
    bench = opened(driver)
    bench.read()
    assert asked == [0]
    assert bench.driver.log.count("nvmlDeviceGetHandleByUUID") == 1


def test_a_driver_without_handles_by_uuid_is_read_through_those_by_index(opened):
    driver = FakeDriver(h100(0), h100(1))
    driver.system["nvmlDeviceGetHandleByUUID"] = MISSING
    bench = opened(driver)
    assert [value(bench.read(gpu=at), "coldplate_gpu_power_watts") for at in (0, 1)] == [
        value(opened(h100(0), h100(1)).read(gpu=at), "coldplate_gpu_power_watts") for at in (0, 1)
    ]


@pytest.mark.parametrize(
    ("answer", "shown"), [(0, "0"), (3, "3"), (-1, ""), (2**32 - 1, ""), (UNSUPPORTED, ""), (2**32 - 2, str(2**32 - 2))]
)
def test_a_fact_that_says_none_is_an_empty_label_and_zero_is_a_fact(opened, answer, shown):
    facts = dict(opened(h100(calls={"nvmlDeviceGetNumaNodeId": answer})).channels[0].identity.facts)
    assert facts["numa_node"] == shown


def test_a_gpu_that_gives_only_its_uuid_is_still_a_channel(opened):
    gpu = h100()
    for name in ("Name", "Serial", "PciInfo_v3", "VbiosVersion"):
        gpu.calls[f"nvmlDeviceGet{name}"] = UNKNOWN
    identity = opened(gpu).channels[0].identity
    assert (identity.gpu.uuid, identity.slot, identity.serial, identity.model) == ("GPU-00000000", "", "", "")


@pytest.mark.parametrize(
    ("code", "says", "last"),
    [
        (NO_LIBRARY, "libnvidia-ml.so.1", "nvmlInit"),
        (UNLOADED, "modprobe nvidia", "nvmlInit"),
        (None, "no GPU", "nvmlShutdown"),
    ],
)
def test_a_node_without_a_driver_or_a_gpu_is_absent_with_a_remedy(code, says, last):
    driver = FakeDriver()
    driver.system["nvmlInit"] = code
    with pytest.raises(AbsentError, match=says):
        source(driver).open(NOW)
    assert driver.log[-1] == last


@pytest.mark.parametrize("code", [UNINITIALIZED, MISMATCH, DENIED, UNKNOWN, Code(4711)])
def test_a_driver_that_fails_to_open_or_to_enumerate_is_a_failure_with_its_number(code):
    driver = FakeDriver(h100(0), h100(1))
    driver.system["nvmlInit"] = code
    with pytest.raises(SourceError, match=rf"NVML cannot be opened: .*\({code.code}\)"):
        source(driver).open(NOW)
    driver.system["nvmlInit"], driver.handles[1] = None, UNLOADED
    with pytest.raises(SourceError, match="not loaded"):
        source(driver).open(NOW)


@pytest.mark.parametrize("code", [UNINITIALIZED, UNLOADED, MISMATCH])
@pytest.mark.parametrize("lane", [Lane.FAST, Lane.SLOW, Lane.COLD])
def test_a_driver_that_goes_while_reading_ends_the_source(opened, code, lane):
    gpu = h100()
    bench = opened(gpu)
    bench.read(lane)
    gpu.failing = code
    with pytest.raises(SourceError, match="new process"):
        bench.read(lane)


@pytest.mark.parametrize("code", [LOST, RESET])
@pytest.mark.parametrize("lane", [Lane.FAST, Lane.SLOW, Lane.COLD])
def test_a_lost_gpu_is_reported_and_the_others_continue(opened, code, lane):
    bench = opened(h100(0), a100(1))
    for gpu in (0, 1):
        bench.read(lane, gpu=gpu)
    bench.driver.gpus[0].failing = code
    with pytest.raises(DeviceError) as caught:
        bench.read(lane)
    assert caught.value.reason is Reason.LOST
    assert bench.read(lane, gpu=1).readings
    bench.driver.gpus[0].failing = None
    assert bench.read(lane).readings


@pytest.mark.parametrize(
    ("code", "reason"), [(UNKNOWN, Reason.MALFORMED), (Code(28), Reason.LOST), (TIMEOUT, Reason.TIMEOUT)]
)
def test_a_gpu_whose_every_read_fails_is_an_error_with_the_code(opened, code, reason):
    """As of dcgm-exporter issue 604: a sample without a value is no evidence that the GPU works."""
    bench = opened(h100(0), a100(1))
    for gpu in (0, 1):
        bench.read(gpu=gpu)
    bench.driver.gpus[0].failing = code
    with pytest.raises(DeviceError, match=rf"\({code.code}\)") as caught:
        bench.read()
    assert caught.value.reason is reason
    assert bench.read(gpu=1).readings


def test_a_gpu_that_failed_when_it_was_probed_offers_everything_once_it_answers(opened):
    expected = opened(h100())
    bench = opened(gpu := h100())
    gpu.failing = UNKNOWN
    with pytest.raises(DeviceError):
        bench.read()
    gpu.failing = None
    bench.read(Lane.COLD)
    for lane in LANES:
        served, offered = bench.again(lane).readings, expected.again(lane).readings
        assert {reading.series for reading in served} == {reading.series for reading in offered}


def test_a_gpu_that_offers_nothing_is_no_failure(opened):
    """As Tegra (intelligence-per-watt issue 40)."""
    sample = opened(FakeGpu(0, "Orin (nvgpu)")).read()
    assert not sample.readings
    assert {gap.reason for gap in sample.gaps} == {Reason.UNSUPPORTED}


@pytest.mark.parametrize("call", ["nvmlGpmQueryDeviceSupport", "nvmlDeviceGetTemperatureV"])
def test_a_gpu_lost_while_probed_leaks_nothing_and_is_probed_when_it_is_back(opened, call):
    gpu = h100()
    good, gpu.calls[call] = gpu.calls[call], LOST
    bench = opened(gpu)
    for _ in range(3):
        with pytest.raises(DeviceError):
            bench.read()
    assert bench.driver.samples == 0
    gpu.calls[call] = good
    assert value(bench.read(), "coldplate_gpu_power_watts") == 412.345
    assert bench.driver.samples == 2


def test_one_lost_field_means_the_whole_gpu_and_a_denied_gpu_says_so(opened):
    gpu = h100()
    bench = opened(gpu)
    bench.read()
    gpu.fields[82, 0] = LOST
    with pytest.raises(DeviceError, match="NVML field 82"):
        bench.read()
    other = opened(denying := h100())
    denying.failing = DENIED
    with pytest.raises(DeviceError, match="/dev/nvidia") as caught:
        other.read()
    assert caught.value.reason is Reason.DENIED


def test_a_driver_without_field_values_still_gives_what_its_calls_give(opened):
    sample = opened(h100(calls={"nvmlDeviceGetFieldValues": MISSING})).read()
    assert value(sample, "coldplate_gpu_power_watts") == 400.0
    assert value(sample, "coldplate_gpu_utilization_ratio") == 0.57


def test_mig_is_named_as_the_cause_where_the_parent_does_not_answer(opened):
    gpu = h100()
    gpu.calls |= {"nvmlDeviceGetMigMode": 1, "nvmlDeviceGetUtilizationRates": UNSUPPORTED}
    gpu.calls |= {"nvmlDeviceGetMaxMigDeviceCount": 0}
    (gap,) = [gap for gap in opened(gpu).read().gaps if gap.metric.name == "coldplate_gpu_utilization_ratio"]
    assert gap.reason is Reason.UNSUPPORTED
    assert "MIG" in gap.detail


def test_the_binding_is_loaded_when_it_is_needed_and_without_what_it_does_not_use() -> None:
    """`ctypes.util` brings subprocess, tempfile and shutil, and is still there for those who call it."""
    code = (
        "import sys, agent.backends.nvml; print('pynvml' in sys.modules)\n"
        "from agent.backends.nvml.pynvml_driver import PynvmlDriver; PynvmlDriver()\n"
        "print(*sys.modules.keys() & {'pynvml', 'subprocess', 'tempfile', 'ctypes.util'})\n"
        "import pynvml; print(pynvml.find_library('no such library'), 'subprocess' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["False", "pynvml", "None True"]
