"""What is said of a run: of shipped scenarios, whose truth is known, and at the edges of the thresholds."""

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.model import Node
from agent.recording.recording_reader import Recording
from agent.recording.report import report_series as chosen
from agent.recording.report.observation import FAULT, NOTE, Observation, ranges, share_text, span_text
from agent.recording.report.performance_observations import all_observations, bound_by
from agent.recording.report.report_series import period_of
from agent.recording.report.run_facts import RecordedRun
from agent.recording.report.run_reader import read_run
from tests.recording.played import played, record
from tests.report.made import Values, gathered, gpu, row

SECONDS = 600
LIMIT = 700.0
HELD = (("scheduler", "slurm"), ("job_id", "7"), ("user", "ada"), ("name", "train"))


def said_of(run: RecordedRun) -> dict[str, Observation]:
    return {remark.kind: remark for remark in all_observations(run)}


@pytest.mark.parametrize(
    ("name", "begins", "ends", "kinds", "gpus"),
    [
        ("healthy-training", 0, 120, {"compute-bound", "power-capped"}, None),
        ("straggler", 600, 840, {"uneven-work", "compute-bound", "power-capped"}, ("5",)),
        ("checkpoint-stall", 100, 300, {"waiting-for-peer"}, ("0",)),
        ("slow-gpu", 90, 240, {"slow-gpu", "compute-bound", "power-capped"}, ("6",)),
        ("data-starvation", 0, 120, {"waiting-for-data"}, None),
        ("gpu-lost", 30, 180, {"xid", "silent", "stalled", "power-capped"}, ("3",)),
        ("nvlink-down", 50, 180, {"xid", "nvlink-down", "nvlink-errors", "compute-bound", "power-capped"}, ("2",)),
        ("idle", 0, 90, set(), None),
    ],
)
def test_a_scenario_is_named(
    tmp_path: Path, name: str, begins: int, ends: int, kinds: set[str], gpus: tuple[str, ...]
) -> None:
    with Recording(record(tmp_path / "run", played(name, ends, begins=begins, judged=False))) as recording:
        found = all_observations(read_run([recording]))
    assert {remark.kind for remark in found} == kinds
    if gpus is not None:
        assert found[0].gpus == gpus


def job(tmp_path: Path, **values: list[Values]) -> dict[str, Observation]:
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


@pytest.mark.parametrize(
    ("util", "power", "tensor", "kinds"),
    [
        ([0.02, 1.0, 1.0, 1.0], [120.0] + [650.0] * 3, [], {"uneven-work": ("0",), "idle-allocation": ("0",)}),
        ([0.55, 1.0, 1.0, 1.0], [600.0] * 4, [], {}),  # a difference below half is not uneven
        ([1.0, 1.0, 1.0, 1.0], [600.0] * 4, [], {}),
        ([1.0] * 4, [150.0] * 4, [0.3] * 4, {}),  # tensor activity is no stall
        ([0.0, 0.0], [80.0, 80.0], [], {"idle-allocation": ("0", "1")}),
    ],
)
def test_what_is_said_of_a_job(
    tmp_path: Path, util: list[Values], power: list[Values], tensor: list[Values], kinds: dict[str, tuple[str, ...]]
) -> None:
    said = job(tmp_path, util=util, power=power, tensor=tensor)
    assert {kind: remark.gpus for kind, remark in said.items()} == kinds


@pytest.mark.parametrize(("grades", "kind"), [(("nonfatal",), NOTE), (("nonfatal", "fatal"), FAULT), ((), FAULT)])
def test_an_nvlink_error_is_a_fault_unless_the_kernel_log_called_it_none(
    tmp_path: Path, grades: tuple[str, ...], kind: str
) -> None:
    once = [None] * 5 + [1.0] * 5
    series: dict = {row(chosen.POWER, gpu(0)): 1.0, row(chosen.XIDS, gpu(0), (("xid", "145"),)): once}
    for grade in grades:
        series[row(chosen.GRADED_XIDS, gpu(0), (("xid", "145"), ("grade", grade)))] = once
    said = said_of(gathered(tmp_path / "run", series, 10))["xid"]
    assert said.rank == kind
    assert "XID 145 (NVLink 5 error, unit RLW) once" in said.text


@pytest.mark.parametrize(("grade", "kind"), [("fatal", FAULT), ("nonfatal", NOTE)])
def test_an_sxid_is_as_grave_as_the_kernel_log_called_it(tmp_path: Path, grade: str, kind: str) -> None:
    labels = (("pci", "0000:c1:00.0"), ("sxid", "20034"), ("grade", grade))
    series: dict = {row(chosen.POWER, gpu(0)): 1.0, row(chosen.SWITCH_ERRORS, Node(), labels): [None] * 5 + [1.0] * 5}
    said = said_of(gathered(tmp_path / "run", series, 10))["sxid"]
    assert said.rank == kind
    assert "NVSwitch 0000:c1:00.0 reported" in said.text
    assert ("fatal" in said.text) is (kind == FAULT)


def test_uneven_time_counts_only_when_it_was_uneven(tmp_path: Path) -> None:
    lazy = [1.0] * 300 + [0.0] * 300
    said = job(tmp_path, util=[lazy, 1.0, 1.0, 1.0], power=[600.0] * 4)
    assert said["uneven-work"].figures["lagging_seconds"] == pytest.approx(300, abs=60)


def test_gpus_of_two_jobs_are_not_compared(tmp_path: Path) -> None:
    other = (("scheduler", "slurm"), ("job_id", "8"))
    series: dict = {row(chosen.UTILIZATION, gpu(index)): 0.1 if index < 2 else 1.0 for index in range(4)}
    series |= {row(chosen.HOLDER, gpu(index), other if index < 2 else HELD): 1.0 for index in range(4)}
    assert "uneven-work" not in said_of(gathered(tmp_path / "run", series, SECONDS))


def test_all_at_full_utilization_and_no_power_wait(tmp_path: Path) -> None:
    said = job(tmp_path, util=[1.0] * 4, power=[[600.0] * 300 + [150.0] * 300] * 4, tensor=[0.0] * 4)
    assert said["stalled"].figures["stalled_seconds"] == pytest.approx(300, abs=3)


def test_waiting_for_data_tells_that_the_host_was_not_recorded(tmp_path: Path) -> None:
    series: dict = {row(chosen.UTILIZATION, gpu(0)): 0.25, row(chosen.MEMORY, gpu(0)): 60 * 2.0**30}
    series[row(chosen.MEMORY_TOTAL, gpu(0))] = 80 * 2.0**30
    said = said_of(gathered(tmp_path / "run", series, 60))["waiting-for-data"]
    assert "the cause is not known: the host was not recorded" in said.text


def starving(
    tmp_path: Path, util: float, pcie: float, waits: float, busy: float, used: float = 60.0
) -> dict[str, Observation]:
    """What is said of a GPU with so many bytes a second over PCIe, on a node whose tasks wait and work so much."""
    seconds = range(60)
    series: dict = {row(chosen.UTILIZATION, gpu(0)): util, row(chosen.MEMORY, gpu(0)): used * 2.0**30}
    series[row(chosen.MEMORY_TOTAL, gpu(0))] = 80 * 2.0**30
    series[row(chosen.PCIE_IN, gpu(0))] = [pcie * one for one in seconds]
    series[row(chosen.PRESSURE, Node(), (("resource", "io"),))] = [waits * one for one in seconds]
    series[row(chosen.PRESSURE, Node(), (("resource", "cpu"),))] = [0.9 * one for one in seconds]
    for mode, share in (("user", busy), ("idle", 0.75 * (1 - busy)), ("iowait", 0.25 * (1 - busy))):
        series[row(chosen.CPU, Node(), (("mode", mode),))] = [share * one for one in seconds]
    return said_of(gathered(tmp_path / "run", series, 60))


EVERYTHING = (
    "; up to 4.0 GB/s came in over PCIe, tasks waited for storage 50% of the time, "
    "the processors of node-1 were 90% busy"
)


@pytest.mark.parametrize(
    ("pcie", "waits", "busy", "signs"),
    [
        (0.9e9, 0.04, 0.69, "; the cause is not known: nothing on the host was busy"),
        (1.1e9, 0.04, 0.69, "; up to 1.1 GB/s came in over PCIe"),
        (0.9e9, 0.06, 0.69, "; tasks waited for storage 6% of the time"),
        (0.9e9, 0.04, 0.72, "; the processors of node-1 were 72% busy"),
        (4e9, 0.5, 0.9, EVERYTHING),
    ],
)  # fmt: skip
def test_waiting_for_data_names_every_sign_of_where_it_waits(
    tmp_path: Path, pcie: float, waits: float, busy: float, signs: str
) -> None:
    remark = starving(tmp_path, 0.25, pcie, waits, busy)["waiting-for-data"]
    text = f"GPU 0 had work for at most 25% of the time with their memory in use{signs}. "
    assert remark.text.startswith(text)
    figures = {"utilization_ratio": 0.25}
    figures |= {"pcie_receive_bytes_per_second": pcie} if pcie > 1e9 else {}
    figures |= {"io_waiting_ratio": waits} if waits > 0.05 else {}
    figures |= {"processor_busy_ratio": busy} if busy > 0.7 else {}
    assert remark.figures == pytest.approx(figures)
    assert remark.gpus == ("0",)


@pytest.mark.parametrize(
    ("util", "used", "said"),
    [(0.06, 24.0, True), (0.04, 24.0, False), (0.39, 24.0, True), (0.41, 24.0, False), (0.25, 23.9, False)],
)
def test_waiting_for_data_is_said_of_what_works_little_with_much_in_memory(
    tmp_path: Path, util: float, used: float, said: bool
) -> None:
    assert ("waiting-for-data" in starving(tmp_path, util, 0.0, 0.0, 0.1, used)) == said


@pytest.mark.parametrize(
    ("clock", "power", "said"),
    [
        (0.85, 0.95, "85% of their median SM clock (1275 of 1500 MHz) and 95% of their power while busy"),
        (0.85, 1.5, None),  # it has more to do
        (0.95, 0.65, "95% of their median SM clock (1425 of 1500 MHz) and 65% of their power while busy"),
        (0.95, 0.75, None),
        (0.9, 0.7, None),
        (0.85, None, "85% of their median SM clock (1275 of 1500 MHz) while busy"),
    ],
)
def test_a_gpu_is_slow_by_its_clock_or_its_power_but_not_where_it_draws_more(
    tmp_path: Path, clock: float, power: float | None, said: str | None
) -> None:
    series: dict = {}
    for index in range(4):
        series[row(chosen.UTILIZATION, gpu(index))] = 1.0
        series[row(chosen.CLOCK, gpu(index), chosen.SM_CLOCK)] = 1.5e9 * (clock if index == 2 else 1.0)
        if power is not None or index != 2:
            series[row(chosen.POWER, gpu(index))] = 600.0 * (power if power is not None and index == 2 else 1.0)
    found = said_of(gathered(tmp_path / "run", series, 120)).get("slow-gpu")
    assert (found is None) == (said is None)
    if found is not None and said is not None:
        assert said in found.text
        assert found.figures == pytest.approx({"clock_ratio": clock} | ({"power_ratio": power} if power else {}))


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


def test_a_step_of_more_than_ten_samples_is_found_and_none_of_a_shorter_one_of_noise_and_of_constants() -> None:
    for period in (12.5, 20.0, 33.3, 80.0):
        found = period_of(steps(period))
        assert found is not None
        assert found[0] == pytest.approx(period, rel=0.02)
    for period in (0.7, 1.3, 2.4, 3.8, 5.5, 7.3):
        assert period_of(steps(period)) is None, period
    dice = random.Random(3)
    assert period_of([dice.random() for _ in range(600)]) is None
    assert period_of([1.0] * 600) is None
    assert period_of([float(one) for one in range(600)]) is None


@pytest.mark.parametrize(
    ("words", "given", "text"),
    [
        *((span_text, seconds, text) for seconds, text in (
            (0, "0 s"), (0.5, "0.5 s"), (3, "3 s"), (9.5, "9.5 s"), (10.4, "10 s"), (59.6, "1 min"), (60, "1 min"),
            (61, "1 min 1 s"), (3599, "59 min 59 s"), (3600, "1 h"), (3659, "1 h"), (3660, "1 h 1 min"),
            (86_399, "23 h 59 min"), (86_400, "1 d"), (90_000, "1 d 1 h"), (270_000, "3 d 3 h"))),
        *((share_text, share, text) for share, text in (
            (0.0, "0%"), (0.001, "under 1%"), (0.005, "under 1%"), (0.0051, "1%"), (0.5, "50%"), (0.9949, "99%"),
            (0.995, "over 99%"), (1.0, "100%"), (1.004, "100%"))),
        *((ranges, names.split(), text) for names, text in (
            ("", ""), ("5", "5"), ("0 1 2 7", "0-2, 7"), ("10 9 2 1", "1-2, 9-10"), ("a\x1b 1", "1, a\\x1b"),
            ("99999999 1", "1, 99999999"), ("999999999 1", "1, 999999999"), ("x" * 40, "x" * 29 + "..."))),
    ],
)  # fmt: skip
def test_words_for_numbers(words: Callable[[Any], str], given: object, text: str) -> None:
    assert words(given) == text
