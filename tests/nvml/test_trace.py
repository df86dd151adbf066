"""What is recorded is what is replayed, and no identifier is in it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.backends.nvml.arrays import FieldArray, GpmArray
from agent.backends.nvml.driver import DriverError
from agent.backends.nvml.trace_replay import DriverTrace, ReplayDriver
from agent.backends.protocol import BackendSample
from agent.commands.doctor.driver_calls import IdentifierLeakError, RecordingDriver
from agent.model import Instant, Kind, Lane, Reason
from agent.recording.redaction import Redaction
from tests.lab.hardware.node import FAST_CALLS, LANES, Node, families, violations
from tests.nvml.fake_driver import LOST, U32, UNKNOWN, UNSUPPORTED, FakeDriver, FakeGpu, a100, b200, h100

MACHINES = [h100, a100, b200]
KEY = b"key of the pseudonyms"


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> Instant:
        self.at += 0.3
        return Instant(self.at, 1e9 + self.at)

    def mono(self) -> float:
        return self.at


def session(driver: object, change: object = None) -> list[BackendSample]:
    node = Node(driver, Clock())  # type: ignore[arg-type]  # any driver
    samples = []
    for turn in range(4):
        if callable(change):
            change(turn)
        samples += [node.read(gpu, lane) for gpu in range(len(node.channels)) for lane in LANES]
    node.close()
    return samples


def shown(samples: list[BackendSample]) -> list[object]:
    return [
        (
            [(r.metric.name, r.labels, r.value) for r in each.readings],
            [(g.metric.name, g.reason) for g in each.gaps],
            each.calls,
        )
        for each in samples
    ]


def record(driver: FakeDriver, path: Path, change: object = None) -> list[BackendSample]:
    recorder = RecordingDriver(driver, Clock().mono, Redaction(KEY))
    samples = session(recorder, change)
    path.write_text(recorder.text({"GPUs": "a fake"}, {"fast": families(samples)}))
    return samples


@pytest.mark.parametrize("machine", MACHINES)
def test_a_replay_gives_what_was_recorded(machine: object, tmp_path: Path) -> None:
    gpus: list[FakeGpu] = [machine(0), machine(1)]  # type: ignore[operator]  # one of MACHINES

    def change(turn: int) -> None:
        gpus[0].fields[83, 0] = (3, 1_000_000 * (turn + 1))
        gpus[1].calls["nvmlDeviceGetTemperatureV"] = 50 + turn if turn != 2 else UNKNOWN
        gpus[1].fields[186, 0] = (U32, 300_000 + turn) if turn != 3 else UNSUPPORTED

    before = record(FakeDriver(*gpus), tmp_path / "t.jsonl", change)
    replay = ReplayDriver(DriverTrace(tmp_path / "t.jsonl"))
    assert shown(session(replay)) == shown(before)
    assert replay.unknown == set()


@pytest.mark.parametrize("machine", MACHINES)
def test_no_identifier_is_in_a_trace(machine: object, tmp_path: Path) -> None:
    gpu = machine(3)  # type: ignore[operator]  # one of MACHINES
    gpu.calls["nvmlDeviceGetBoardPartNumber"] = "692-2G520-0200-000"
    gpu.calls["nvmlDeviceGetGpuFabricInfoV"] = {"cluster_uuid": "ab" * 16, "clique": 7, "state": 3, "status": 0}
    record(FakeDriver(gpu), tmp_path / "t.jsonl")
    text = (tmp_path / "t.jsonl").read_text()
    names = Redaction(KEY)
    serial = gpu.calls["nvmlDeviceGetSerial"]
    for kind, original in (
        ("uuid", gpu.uuid),
        ("serial", serial),
        ("part", "692-2G520-0200-000"),
        ("cluster", "ab" * 16),
    ):
        assert original not in text and names.pseudonym(kind, str(original)) in text
    assert "00000000:1E:00.0" in text  # bus ids stay


def test_a_trace_that_would_leak_an_original_is_not_written() -> None:
    names = Redaction(KEY)
    recorder = RecordingDriver(FakeDriver(h100()), Clock().mono, names)
    recorder.lines.append(json.dumps({"call": "x", "args": [], "value": "text about GPU-known-original, and more"}))
    assert "GPU-known-original" in recorder.text({}, {})
    names.pseudonym("uuid", "GPU-known-original")
    with pytest.raises(IdentifierLeakError):
        recorder.text({}, {})


def test_a_lost_gpu_is_replayed_as_lost(tmp_path: Path) -> None:
    gpu = h100()
    recorder = RecordingDriver(FakeDriver(gpu), Clock().mono, Redaction(KEY))
    handle = recorder.call("nvmlDeviceGetHandleByIndex_v2", 0)
    array = FieldArray([(185, 0), (9999, 0)])
    recorder.call("nvmlDeviceGetFieldValues", handle, array)
    gpu.failing = LOST
    with pytest.raises(DriverError):
        recorder.call("nvmlDeviceGetTemperatureV", handle, 0)
    (tmp_path / "t.jsonl").write_text(recorder.text({}, {}))
    replay = ReplayDriver(DriverTrace(tmp_path / "t.jsonl"))
    again = replay.call("nvmlDeviceGetHandleByIndex_v2", 0)
    with pytest.raises(DriverError) as raised:
        replay.call("nvmlDeviceGetTemperatureV", again, 0)
    assert raised.value.code == 15
    other = FieldArray([(9999, 0), (185, 0), (4, 0)])
    replay.call("nvmlDeviceGetFieldValues", again, other)
    codes = [slot if isinstance(slot, int) else slot.code for slot in other.decode()]
    assert codes == [3, 412_345, 3]
    assert replay.unknown == {("gpu0", (4, 0))}
    with pytest.raises(DriverError) as raised:
        replay.call("nvmlDeviceGetSomethingNew", again)
    assert raised.value.code == 13


def test_samples_of_gpu_instances_are_replayed_apart_from_those_of_the_gpu(tmp_path: Path) -> None:
    """An instance's id is a number in a trace, although the address of a sample may be the same number."""
    gpu, parts = h100(), {number: FakeGpu(0, "GPU instance") for number in (1001, 2)}
    driver = FakeDriver(gpu)
    driver.instances = parts
    for number, part in parts.items():
        part.gpm = {2: number / 100}
    recorder = RecordingDriver(driver, Clock().mono, Redaction(KEY))

    def activity(source: RecordingDriver | ReplayDriver) -> list[object]:
        handle = source.call("nvmlDeviceGetHandleByIndex_v2", 0)
        found: list[object] = []
        for instance in ((), *((number,) for number in parts)):
            name = "nvmlGpmMigSampleGet" if instance else "nvmlGpmSampleGet"
            earlier, later = (source.call("nvmlGpmSampleAlloc") for _ in range(2))
            for sample in (earlier, later):
                source.call(name, handle, *instance, sample)
            array = GpmArray([2])
            source.call("nvmlGpmMetricsGet", array.between(earlier, later))
            found += array.decode()
        return found

    told = activity(recorder)
    assert told == [57.0, 10.01, 0.02]
    (tmp_path / "t.jsonl").write_text(recorder.text({}, {}))
    assert '[{"is":"gpu0"},1001,{"is":"sample2"}]' in (tmp_path / "t.jsonl").read_text()
    assert activity(ReplayDriver(DriverTrace(tmp_path / "t.jsonl"))) == told


def test_an_event_is_replayed_once_and_then_none_comes(tmp_path: Path) -> None:
    gpu = h100()
    driver = FakeDriver(gpu)
    driver.events = [(f"handle of {gpu.uuid}", 8, 79)]
    recorder = RecordingDriver(driver, Clock().mono, Redaction(KEY))
    recorder.call("nvmlDeviceGetHandleByIndex_v2", 0)
    recorder.call("nvmlEventSetWait_v2", recorder.call("nvmlEventSetCreate"), 2000)
    (tmp_path / "t.jsonl").write_text(recorder.text({}, {}))
    waits: list[float] = []
    replay = ReplayDriver(DriverTrace(tmp_path / "t.jsonl"), waits.append)
    events = replay.call("nvmlEventSetCreate")
    assert replay.call("nvmlEventSetWait_v2", events, 2000) == ("gpu0", 8, 79)
    for seconds in (2.0, 0.0):
        with pytest.raises(DriverError) as raised:
            replay.call("nvmlEventSetWait_v2", events, round(seconds * 1000))
        assert raised.value.code == 10
    assert waits == [2.0, 0.0]


# Every trace under traces/ is played through the source and held to the laws.
TRACES = sorted((Path(__file__).parent / "traces").glob("*.jsonl"))
STEP = 0.25
"""Seconds between replayed samples: GPM gives a mean for each."""


class Replayed:
    """A trace, and the samples that a source made of it."""

    def __init__(self, path: Path, left_out: Sequence[str] = ()) -> None:
        """`left_out` are functions that were not called while recording."""
        self.path = path
        self.trace = DriverTrace(path)
        self.trace.calls = [line for line in self.trace.calls if line["call"] not in left_out]
        self.driver = ReplayDriver(self.trace)
        self._at = 1000.0
        self.node = Node(self.driver, lambda: Instant(self._at, 1e9 + self._at))
        turns = sum(line["call"] == "nvmlDeviceGetUtilizationRates" for line in self.trace.calls)
        self.samples: list[tuple[int, Lane, BackendSample]] = []
        for turn in range(max(3, turns // max(1, len(self.node.channels)))):
            self._at += STEP
            for gpu in range(len(self.node.channels)):
                for lane in LANES if turn in (0, 2) else (Lane.FAST,):
                    self.samples.append((gpu, lane, self.node.read(gpu, lane)))

    def of(self, lane: Lane) -> list[BackendSample]:
        return [sample for _, which, sample in self.samples if which is lane]


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.stem)
def replayed(request: pytest.FixtureRequest) -> Iterator[Replayed]:
    replayed = Replayed(request.param)
    yield replayed
    replayed.node.close()


def test_a_trace_says_where_it_was_recorded_and_is_small(replayed: Replayed) -> None:
    assert replayed.trace.provenance["stand_in"] is False
    assert {"GPUs", "driver", "date", "coldplate", "command"} <= set(replayed.trace.provenance)
    assert replayed.path.stat().st_size <= 200_000


def test_readings_are_possible_counters_grow_gaps_say_why_and_samples_are_cheap(replayed) -> None:
    first = dict.fromkeys(range(len(replayed.node.channels)), True)
    last: dict[object, float] = {}
    for gpu, lane, sample in replayed.samples:
        probing = lane is Lane.FAST and first[gpu]
        first[gpu] = first[gpu] and lane is not Lane.FAST
        assert violations(BackendSample(sample.readings) if probing else sample, lane) == []
        assert all(gap.detail for gap in sample.gaps)
        for reading in sample.readings:
            if lane is Lane.FAST and reading.metric.kind is Kind.COUNTER:
                assert reading.value >= last.get(reading.series, 0.0), reading.series
                last[reading.series] = reading.value
    assert last
    assert max(sample.calls for sample in replayed.of(Lane.FAST)[len(first) :]) <= FAST_CALLS


def test_every_metric_that_the_machine_showed_is_shown(replayed: Replayed) -> None:
    recorded = {name for names in replayed.trace.shown_metrics.values() for name in names}  # of whichever lane
    assert recorded <= {name for lane in LANES for name in families(replayed.of(lane))}
    expected = {"coldplate_gpu_power_watts", "coldplate_gpu_temperature_celsius", "coldplate_gpu_memory_total_bytes"}
    assert expected <= set(families(replayed.of(Lane.FAST)))


ASKED_LATER = ("nvmlDeviceGetMarginTemperature",)


def test_what_recording_did_not_ask_costs_only_itself(replayed: Replayed) -> None:
    """A newer agent asks for more. What is new is a gap then, and the trace goes on telling of all else."""
    older = Replayed(replayed.path, left_out=ASKED_LATER)
    try:
        assert {question[0] for question in older.driver.unknown if isinstance(question, tuple)} >= {*ASKED_LATER}
        lost = set(families(replayed.of(Lane.SLOW))) - set(families(older.of(Lane.SLOW)))
        assert lost == {"coldplate_gpu_temperature_margin_celsius"}
        reasons = {gap.reason for sample in older.of(Lane.SLOW) for gap in sample.gaps if gap.metric.name in lost}
        assert reasons == {Reason.UNSUPPORTED}
        for lane in (Lane.FAST, Lane.COLD):
            assert families(older.of(lane)) == families(replayed.of(lane))
    finally:
        older.node.close()
