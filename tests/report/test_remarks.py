"""What is said of a run: of shipped scenarios, whose truth is known, and at the edges of the thresholds."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from agent.model import Node
from agent.recording.recording_reader import Recording
from agent.recording.report import chosen_series as chosen
from agent.recording.report.expert import remarks
from agent.recording.report.gathering import gather
from agent.recording.report.remarks import Remark, ranges, share_text, span_text
from agent.recording.report.run_facts import Run
from agent.recording.report.step_time import period_of
from agent.recording.report.workload_remarks import bound_by
from tests.recording.played import played, record
from tests.report.made import Values, gathered, gpu, row

SECONDS = 600
LIMIT = 700.0
HELD = (("scheduler", "slurm"), ("job_id", "7"), ("user", "ada"), ("name", "train"))


def said_of(run: Run) -> dict[str, Remark]:
    return {remark.kind: remark for remark in remarks(run)}


@pytest.mark.parametrize(
    ("name", "seconds", "kinds", "gpus"),
    [
        ("healthy-training", 120, {"compute-bound", "power-capped"}, None),
        ("straggler", 480, {"uneven-work", "compute-bound", "power-capped"}, ("5",)),
        ("checkpoint-stall", 480, {"waiting-for-peer"}, ("0",)),
        ("slow-gpu", 300, {"slow-gpu", "compute-bound", "power-capped"}, ("6",)),
        ("data-starvation", 120, {"waiting-for-data"}, None),
        ("gpu-lost", 240, {"xid", "silent", "stalled", "power-capped"}, ("3",)),
        ("nvlink-down", 240, {"xid", "nvlink-down", "nvlink-errors", "compute-bound", "power-capped"}, ("2",)),
        ("idle", 90, set(), None),
    ],
)
def test_a_scenario_is_named(tmp_path: Path, name: str, seconds: int, kinds: set[str], gpus: tuple[str, ...]) -> None:
    with Recording(record(tmp_path / "run", played(name, seconds, judged=False))) as recording:
        found = remarks(gather([recording]))
    assert {remark.kind for remark in found} == kinds
    if gpus is not None:
        assert found[0].gpus == gpus


def job(tmp_path: Path, **values: list[Values]) -> dict[str, Remark]:
    """What is said of a job on as many GPUs as there are values of each figure."""
    names = {"util": chosen.UTILIZATION, "power": chosen.POWER, "tensor": chosen.TENSOR, "memory": chosen.MEMORY,
             "sm": chosen.SM, "dram": chosen.DRAM}  # fmt: skip
    series = {row(names[name], gpu(index)): each for name, some in values.items() for index, each in enumerate(some)}
    for index in range(len(values["util"])):
        series[row(chosen.HOLDER, gpu(index), HELD)] = 1.0
        series[row(chosen.POWER_LIMIT, gpu(index))] = LIMIT
        series[row(chosen.MEMORY_TOTAL, gpu(index))] = 80 * 2.0**30
    return said_of(gathered(tmp_path / "run", series, SECONDS))


def test_busy_peers_of_an_idle_gpu_wait_for_it_if_they_draw_little(tmp_path: Path) -> None:
    said = job(tmp_path, util=[0.02, 1.0, 1.0, 1.0], power=[120.0, 150.0, 150.0, 150.0])
    assert said["waiting-for-peer"].gpus == ("0",)
    assert said["waiting-for-peer"].figures["uneven_seconds"] == 600.0
    assert said["waiting-for-peer"].figures["busy_power_ratio"] == pytest.approx(150 / 700)


def test_busy_peers_of_an_idle_gpu_that_draw_much_do_the_work(tmp_path: Path) -> None:
    said = job(tmp_path, util=[0.02, 1.0, 1.0, 1.0], power=[120.0, 650.0, 650.0, 650.0])
    assert "uneven-work" in said
    assert "waiting-for-peer" not in said


def test_uneven_time_counts_only_when_it_was_uneven(tmp_path: Path) -> None:
    lazy = [1.0] * 300 + [0.0] * 300
    said = job(tmp_path, util=[lazy, 1.0, 1.0, 1.0], power=[600.0] * 4)
    assert said["uneven-work"].figures["lagging_seconds"] == pytest.approx(300, abs=60)


@pytest.mark.parametrize("least", [0.55, 1.0])
def test_a_difference_below_half_is_not_uneven(tmp_path: Path, least: float) -> None:
    assert job(tmp_path, util=[least, 1.0, 1.0, 1.0], power=[600.0] * 4) == {}


def test_gpus_of_two_jobs_are_not_compared(tmp_path: Path) -> None:
    other = (("scheduler", "slurm"), ("job_id", "8"))
    series: dict = {row(chosen.UTILIZATION, gpu(index)): 0.1 if index < 2 else 1.0 for index in range(4)}
    series |= {row(chosen.HOLDER, gpu(index), other if index < 2 else HELD): 1.0 for index in range(4)}
    assert "uneven-work" not in said_of(gathered(tmp_path / "run", series, SECONDS))


def test_all_at_full_utilization_and_no_power_wait(tmp_path: Path) -> None:
    said = job(tmp_path, util=[1.0] * 4, power=[[600.0] * 300 + [150.0] * 300] * 4, tensor=[0.0] * 4)
    assert said["stalled"].figures["stalled_seconds"] == pytest.approx(300, abs=3)


def test_tensor_activity_is_no_stall(tmp_path: Path) -> None:
    assert "stalled" not in job(tmp_path, util=[1.0] * 4, power=[150.0] * 4, tensor=[0.3] * 4)


def test_an_idle_gpu_that_is_held_is_an_idle_allocation(tmp_path: Path) -> None:
    said = job(tmp_path, util=[0.0, 0.0], power=[80.0, 80.0])
    assert said["idle-allocation"].gpus == ("0", "1")


def test_waiting_for_data_tells_that_storage_was_waited_for(tmp_path: Path) -> None:
    series: dict = {row(chosen.UTILIZATION, gpu(0)): 0.25, row(chosen.MEMORY, gpu(0)): 60 * 2.0**30}
    series[row(chosen.MEMORY_TOTAL, gpu(0))] = 80 * 2.0**30
    io = row(chosen.PRESSURE, Node(), (("resource", "io"),))
    quiet = said_of(gathered(tmp_path / "quiet", series, 60))["waiting-for-data"]
    loud = said_of(gathered(tmp_path / "loud", {**series, io: [0.4 * one for one in range(60)]}, 60))[
        "waiting-for-data"
    ]
    assert "what was looked at of the host was not recorded" in quiet.text
    assert "waited for storage 40% of the time" in loud.text
    assert loud.figures["io_waiting_ratio"] == pytest.approx(0.4)


def test_normal_reasons_are_no_lost_time_and_heat_is(tmp_path: Path) -> None:
    def growing(rate: float) -> list[float]:
        return [rate * second for second in range(SECONDS)]

    series = {row(chosen.THROTTLED, gpu(0), (("reason", reason),)): growing(rate) for reason, rate in (
        ("sw_power_cap", 1.0), ("gpu_idle", 1.0), ("hw_power_brake", 0.002), ("hw_thermal_slowdown", 0.2))}  # fmt: skip
    said = said_of(gathered(tmp_path / "run", series, SECONDS))
    assert set(said) == {"throttled", "power-capped"}
    assert "hw_thermal_slowdown for 2 min" in said["throttled"].text


@pytest.mark.parametrize(
    ("sm", "tensor", "dram", "kind"),
    [(0.9, 0.1, 0.7, "memory-bound"), (0.9, 0.5, 0.3, "compute-bound"), (0.9, 0.7, 0.65, "compute-bound"),
     (0.9, 0.1, 0.3, "neither-bound"), (0.3, 0.1, 0.1, "latency-bound"), (0.6, 0.2, 0.3, "mixed")],
)  # fmt: skip
def test_what_limits_the_work(sm: float, tensor: float, dram: float, kind: str) -> None:
    assert bound_by(sm, tensor, dram)[0] == kind


def steps(period: float, samples: int = 600, fine: int = 20, jitter: float = 0.01) -> list[float]:
    """Work of 80 % of each step and exchange in the rest, averaged over each sample, with jittered steps."""
    dice = random.Random(7)
    signal: list[float] = []
    while len(signal) < samples * fine:
        length = period * (1 + jitter * dice.uniform(-1, 1)) * fine
        signal += [1.0] * round(0.8 * length) + [0.2] * round(0.2 * length)
    return [math.fsum(signal[at : at + fine]) / fine for at in range(0, samples * fine, fine)]


@pytest.mark.parametrize("period", [12.5, 20.0, 33.3, 80.0])
def test_a_step_of_more_than_ten_samples_is_found(period: float) -> None:
    found = period_of(steps(period))
    assert found is not None
    assert found[0] == pytest.approx(period, rel=0.02)


@pytest.mark.parametrize("period", [0.7, 1.3, 2.4, 3.8, 5.5, 7.3])
def test_a_shorter_step_is_not_told_as_a_multiple(period: float) -> None:
    assert period_of(steps(period)) is None


def test_noise_and_constants_have_no_step() -> None:
    dice = random.Random(3)
    assert period_of([dice.random() for _ in range(600)]) is None
    assert period_of([1.0] * 600) is None
    assert period_of([float(one) for one in range(600)]) is None


def test_words_for_numbers() -> None:
    assert [span_text(one) for one in (0.5, 59, 60, 3725, 90000)] == ["0.5 s", "59 s", "1 min", "1 h 2 min", "1 d 1 h"]
    assert [share_text(one) for one in (0.0, 0.001, 0.5, 0.999, 1.0)] == ["0%", "under 1%", "50%", "over 99%", "100%"]
    assert ranges(["0", "1", "2", "7"]) == "0-2, 7"
    assert ranges(["a\x1b", "1"]) == "a\\x1b, 1"
