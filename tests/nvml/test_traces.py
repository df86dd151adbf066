"""Every trace under traces/ is played through the source and held to the laws.

A trace is what one machine's driver answered (`make hardware ARGS='--record FILE'`). A trace whose name
begins with `standin-` comes from the stand-in library: it proves the way, and nothing about hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.backends.nvml.trace_file import DriverTrace
from agent.backends.nvml.trace_replay import ReplayDriver
from agent.backends.protocol import BackendSample
from agent.model import Instant, Kind, Lane, Reason
from tests.lab.hardware.node import FAST_CALLS, LANES, Node, families, violations

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


def test_there_is_a_trace() -> None:
    assert TRACES


def test_a_stand_in_says_that_it_is_one(replayed: Replayed) -> None:
    assert replayed.trace.provenance["stand_in"] is replayed.path.name.startswith("standin-")
    assert {"GPUs", "driver", "date", "coldplate", "command"} <= set(replayed.trace.provenance)
    assert replayed.path.stat().st_size <= 200_000


def test_every_reading_is_possible_and_every_fast_sample_is_cheap(replayed: Replayed) -> None:
    first = dict.fromkeys(range(len(replayed.node.channels)), True)
    for gpu, lane, sample in replayed.samples:
        probing = lane is Lane.FAST and first[gpu]
        first[gpu] = first[gpu] and lane is not Lane.FAST
        assert violations(BackendSample(sample.readings) if probing else sample, lane) == []
    assert max(sample.calls for sample in replayed.of(Lane.FAST)[len(first) :]) <= FAST_CALLS


def test_every_metric_that_the_machine_showed_is_shown(replayed: Replayed) -> None:
    recorded = {
        name for names in replayed.trace.shown.values() for name in names
    }  # a row may have moved to another lane
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


def test_counters_of_a_healthy_machine_only_grow(replayed: Replayed) -> None:
    last: dict[object, float] = {}
    for sample in replayed.of(Lane.FAST):
        for reading in sample.readings:
            if reading.metric.kind is Kind.COUNTER:
                assert reading.value >= last.get(reading.series, 0.0), reading.series
                last[reading.series] = reading.value
    assert last


def test_every_gap_says_why(replayed: Replayed) -> None:
    assert all(gap.detail for _, _, sample in replayed.samples for gap in sample.gaps)
