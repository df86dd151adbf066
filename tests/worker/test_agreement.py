"""Whatever a source gives, the other end takes: what one end may say and what the other believes are one thing."""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.backends.nvml import NvmlSource
from agent.backends.protocol import Channel, ChannelError, DeviceSource, LaneSample
from agent.backends.synthetic import SyntheticSource, load_scenario, shipped_names
from agent.model import LANES, Instant, Reason
from agent.worker.decode import Decoder
from agent.worker.reader_pool import DeviceChannel
from agent.worker.worker_messages import MessageError, encode, encode_identity, unseal
from tests.nvml.fake_driver import DENIED, LOST, UNKNOWN, UNSUPPORTED, Code, FakeDriver, FakeGpu, a100, b200, h100


class Wire:
    """Posts for each channel of a source, and a decoder that hears them."""

    def __init__(self, source: DeviceSource, at: float = 100.0) -> None:
        self.at = at
        self.heard: list[object] = []
        self.sent: list[bytes] = []
        self.refused: list[str] = []
        self._decoder = Decoder(source.name)
        channels: Sequence[Channel] = source.open(self._clock())
        hello = encode("hello", source.name, [encode_identity(each.key, each.identity) for each in channels], [])
        for _ in range(2):
            self._decoder.decode(hello)
        self.devices = [
            DeviceChannel(number, channel, self._take, self._clock) for number, channel in enumerate(channels)
        ]

    def _clock(self) -> Instant:
        self.at += 0.25
        return Instant(self.at, 1e9 + self.at)

    def _take(self, line: bytes) -> None:
        self.sent.append(line)
        try:
            self.heard.append(self._decoder.decode(line))
        except MessageError as error:
            self.refused.append(str(error))

    def read(self, times: int = 3) -> None:
        for _ in range(times):
            for device in self.devices:
                device.due_lanes = set(LANES)
                device.read()
        assert self.refused == []

    @property
    def samples(self) -> list[LaneSample]:
        return [each for each in self.heard if isinstance(each, LaneSample)]

    @property
    def errors(self) -> list[ChannelError]:
        return [each for each in self.heard if isinstance(each, ChannelError)]


@pytest.fixture
def nvml() -> Iterator[Callable[..., Wire]]:
    sources: list[NvmlSource] = []

    def make(*gpus: FakeGpu, driver: FakeDriver | None = None) -> Wire:
        sources.append(NvmlSource(driver or FakeDriver(*gpus), wall=lambda: 1e9, timeout=1.0))
        return Wire(sources[-1])

    yield make
    for source in sources:
        source.close()


@pytest.mark.parametrize("make", [h100, a100, b200])
def test_what_nvml_gives_is_accepted(nvml: Callable[..., Wire], make: Callable[[int], FakeGpu]) -> None:
    wire = nvml(make(0), make(1))
    wire.read()
    assert len(wire.samples) == 2 * 3 * 3
    assert len({reading.series for each in wire.samples for reading in each.frame.readings}) > 100
    assert {json.loads(unseal(line))[0] for line in wire.sent} >= {"layout", "gaps", "sample"}
    assert max(map(len, wire.sent)) < 64 * 2**10, "lines are far shorter than they may be"
    assert wire.errors == []


@pytest.mark.parametrize("code", [LOST, DENIED, UNKNOWN, UNSUPPORTED])
def test_what_a_failing_gpu_gives_is_accepted(nvml: Callable[..., Wire], code: Code) -> None:
    gpu = h100(0)
    wire = nvml(gpu)
    gpu.failing = code
    wire.read()
    assert len(wire.samples) + len(wire.errors) == 9


def test_what_mig_gives_is_accepted(nvml: Callable[..., Wire]) -> None:
    gpu = h100(0)
    driver = FakeDriver(gpu)
    driver.divide(gpu, [f"MIG-{number}" for number in range(7)])
    wire = nvml(driver=driver)
    wire.read()
    names = [reading.series.metric.name for each in wire.samples for reading in each.frame.readings]
    assert names.count("coldplate_gpu_mig_info") == 7 * 3
    assert names.count("coldplate_gpu_mig_sm_active_ratio") == 7 * 2  # from the second read on
    assert wire.errors == []


def test_instances_that_cannot_be_distinguished_cost_their_lane_and_no_more(nvml: Callable[..., Wire]) -> None:
    gpu = h100(0)
    driver = FakeDriver(gpu, h100(1))
    driver.divide(gpu, ["MIG-same", "MIG-same"])
    for each in driver.others.values():
        each.calls["nvmlDeviceGetGpuInstanceId"] = 0
    wire = nvml(driver=driver)
    wire.read(1)
    assert {(each.channel, each.lane.value, each.reason) for each in wire.errors} == {
        ("GPU-00000000", "slow", Reason.MALFORMED),
        ("GPU-00000000", "cold", Reason.MALFORMED),
    }
    assert len(wire.samples) == 4


@given(st.text(max_size=300), st.integers(0, 2**64 - 1), st.sampled_from(["Name", "Serial", "VbiosVersion", "UUID"]))
@settings(max_examples=50)
def test_whatever_a_driver_answers_the_worker_says_nothing_that_is_refused(text: str, number: int, what: str) -> None:
    gpu = h100(0)
    driver = FakeDriver(gpu)
    driver.divide(gpu, [f"MIG-{text}", "MIG-1"])
    if what != "UUID":
        gpu.calls[f"nvmlDeviceGet{what}"] = text
    gpu.fields[83, 0] = (3, number)
    gpu.calls["nvmlDeviceGetComputeRunningProcesses_v3"] = [(number % 2**32, number, number % 2**32, 0)]
    driver.others["instance 0"].calls["nvmlDeviceGetName"] = f"NVIDIA MIG {text}"
    source = NvmlSource(driver, wall=lambda: 1e9, timeout=1.0)
    wire = Wire(source)
    wire.read(2)
    assert len(wire.samples) + len(wire.errors) == 6
    source.close()


@pytest.mark.parametrize("name", shipped_names())
def test_what_a_synthetic_node_gives_is_accepted(name: str) -> None:
    scenario = load_scenario(name)
    source = SyntheticSource(scenario, 0.0)
    wire = Wire(source, at=20.0)
    wire.read(2)
    assert len(wire.samples) == 2 * 3 * (scenario.topology.gpus + 1)
    source.close()
