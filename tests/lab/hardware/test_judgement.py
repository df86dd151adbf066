"""The judgements of the checks, on numbers made up for the purpose: each must be able to fail."""

from __future__ import annotations

import os
import resource
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.hardware import cost, moving
from tests.lab.hardware.compare import judge_number, judge_text
from tests.lab.hardware.findings import Report, Section, Verdict, quantile
from tests.lab.hardware.load import Iteration, Loads, NoLoadError, iterations
from tests.lab.hardware.moving import CLOCK, ENERGY, INSTANT, POWER, SM, TENSOR, UTILIZATION, Moment
from tests.lab.hardware.rows import ROWS, Row
from tests.lab.hardware.smi import is_absent, number

WATTS = Row("power", "coldplate_gpu_power_watts", unit="W", step=0.011, slack=3.0, relative=0.05)
TOTAL = Row("memory", "coldplate_gpu_memory_total_bytes", factor=1 / 2**20, unit="MiB", step=1.0)


@pytest.mark.parametrize(
    ("row", "before", "after", "text", "verdict"),
    [
        (WATTS, 100.0, 120.0, "110.00", "same"),
        (WATTS, 120.0, 100.0, "110.00 W", "same"),
        (WATTS, 100.0, 100.0, "105.00", "near"),
        (WATTS, 100.0, 100.0, "120.00", "differs"),
        (WATTS, 0.0, 0.0, "0.00", "same"),
        (WATTS, 0.0, 0.0, "100.00", "differs"),
        (WATTS, None, 100.0, "100.00", "same"),
        (WATTS, None, None, "100.00", "only nvidia-smi"),
        (WATTS, 100.0, 100.0, "[N/A]", "only coldplate"),
        (WATTS, 100.0, 100.0, None, "only coldplate"),
        (WATTS, None, None, "[Not Supported]", "absent on both"),
        (WATTS, 100_000.0, 100_000.0, "100.00", "differs (by a factor of 1000: a unit?)"),
        (TOTAL, 2.0**30, 2.0**30, "1024", "same"),
        (TOTAL, 2.0**30, 2.0**30, "1026 MiB", "differs"),
    ],
)
def test_a_number_is_the_same_near_different_or_absent(
    row: Row, before: float | None, after: float | None, text: str | None, verdict: str
) -> None:
    assert judge_number(row, before, after, text).verdict == verdict


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1))
def test_a_value_between_the_two_readings_is_the_same(before: float, after: float, share: float) -> None:
    between = before + (after - before) * share
    assert judge_number(WATTS, before, after, f"{between:.3f}").verdict == "same"


@given(st.floats(1, 1e5), st.floats(0.2, 10))
def test_a_value_farther_off_than_the_tolerance_differs(ours: float, more: float) -> None:
    theirs = ours * (1 + more) + 4
    assert judge_number(WATTS, ours, ours, f"{theirs:.3f}").verdict.startswith("differs")


def test_identifiers_are_compared_but_for_the_case_of_letters() -> None:
    assert judge_text("x", "0000:1b:00.0", "0000:1B:00.0").verdict == "same"
    assert judge_text("x", "1", "2").verdict == "differs"
    assert judge_text("x", "", "[N/A]").verdict == "absent on both"
    assert judge_text("x", "", "7").verdict == "only nvidia-smi"


@pytest.mark.parametrize("text", ["N/A", "[N/A]", "[Not Supported]", "[Insufficient Permissions]", "", None, "None",
                                  "[Unknown Error]", "[GPU requires reset]"])  # fmt: skip
def test_a_number_that_means_no_value_is_absent(text: str | None) -> None:
    assert is_absent(text)


@pytest.mark.parametrize(("text", "value"), [("72.00 W", 72.0), ("16x", 16.0), ("Not Active", 0.0), ("Active", 1.0),
                                             ("Yes", 1.0), ("0", 0.0), ("-5 C", -5.0), ("0x0000000000000004", 4.0),
                                             ("P0", None), ("96 bank(s)", 96.0)])  # fmt: skip
def test_numbers_of_nvidia_smi(text: str, value: float | None) -> None:
    assert not is_absent(text)
    assert number(text) == value


def test_every_compared_value_is_of_the_catalogue_and_every_path_can_be_looked_up() -> None:
    from agent.catalogue import BY_NAME

    for row in ROWS:
        assert tuple(name for name, _ in row.labels) == BY_NAME[row.metric].labels
        assert row.csv or row.xml
        for path in row.xml:
            assert ElementTree.fromstring("<gpu/>").findtext(path) is None
    assert len({row.title for row in ROWS}) == len(ROWS)


def moments(seconds: float, watts: float, start: float = 0.0, energy: float = 1000.0, **other: float) -> list[Moment]:
    """Samples of a GPU that takes `watts`; the counter grows with `counted` watts."""
    counted = other.get("counted", watts)
    found = []
    for i in range(round(seconds / 0.2)):
        values = {POWER: watts, INSTANT: watts, ENERGY: energy + counted * i * 0.2, UTILIZATION: other.get("used", 0.0),
                  SM: other.get("sm", 0.0), TENSOR: other.get("tensor", 0.0), CLOCK: 1.9e9}  # fmt: skip
        found.append(Moment(start + i * 0.2, values))
    return found


IDLE = moments(4, 80.0)
GOOD = moments(10, 600.0, 10.0, 2000.0, used=1.0, sm=0.9, tensor=0.6)


def judged(idle: list[Moment], loaded: list[Moment], *, tensor: bool = True) -> dict[str, Verdict]:
    section = Section("load", "")
    moving.judge(section, idle, loaded, tensor=tensor)
    return {check.name: check.verdict for check in section.checks}


def test_a_gpu_whose_values_move_together_is_well() -> None:
    verdicts = judged(IDLE, GOOD)
    assert Verdict.FAILED not in verdicts.values()
    assert verdicts["energy agrees with the sampled mean power"] is Verdict.OK
    assert verdicts["tensor active goes up"] is Verdict.OK


@pytest.mark.parametrize(
    ("loaded", "name"),
    [
        (moments(10, 600.0, 10.0, 2000.0, used=1.0, sm=0.9, tensor=0.6, counted=300.0),
         "energy agrees with the sampled mean power"),
        (moments(10, 600.0, 10.0, 2000.0, used=0.0, sm=0.9, tensor=0.6), "utilization goes up"),
        (moments(10, 600.0, 10.0, 2000.0, used=1.0, sm=0.01, tensor=0.6), "SM active goes up"),
        (moments(10, 600.0, 10.0, 2000.0, used=1.0, sm=0.9, tensor=0.0), "tensor active goes up"),
        (moments(10, 80.0, 10.0, 2000.0, used=1.0, sm=0.9, tensor=0.6), "power goes up"),
        (moments(10, 600.0, 10.0, 5.0, used=1.0, sm=0.9, tensor=0.6), "energy only grows"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_move_along_fails(loaded: list[Moment], name: str) -> None:
    assert judged(IDLE, loaded)[name] is Verdict.FAILED


def test_what_a_load_or_a_gpu_cannot_show_is_skipped_not_well() -> None:
    assert judged(IDLE, GOOD, tensor=False)["tensor active goes up"] is Verdict.SKIPPED
    bare = [
        Moment(each.at, {key: value for key, value in each.values.items() if key not in (SM, ENERGY)}) for each in GOOD
    ]
    verdicts = judged(bare, bare)
    assert verdicts["SM active goes up"] is Verdict.SKIPPED
    assert verdicts["energy"] is Verdict.SKIPPED
    assert verdicts["throttled time"] is Verdict.SKIPPED


@pytest.mark.parametrize(
    ("counted", "verdict"), [(0.98, Verdict.OK), (0.00098, Verdict.FAILED), (980.0, Verdict.FAILED)]
)
def test_throttled_time_in_a_wrong_unit_is_found(counted: float, verdict: Verdict) -> None:
    labels = (("reason", "sw_power_cap"),)
    throttled = [
        Moment(each.at, {**each.values, ("coldplate_gpu_throttle_active", labels): 1.0,
                         ("coldplate_gpu_throttle_seconds_total", labels): 5.0 + counted * (each.at - GOOD[0].at)})
        for each in GOOD
    ]  # fmt: skip
    assert judged(IDLE, throttled)["throttled time: sw_power_cap"] is verdict


def test_the_cost_is_given_against_the_rounds_without_a_daemon() -> None:
    windows = [
        cost.Window(mode, start, start + 1.0, 7.0, 0.01) for mode, start in (("off", 0.0), ("1s", 2.0), ("100ms", 4.0))
    ]
    made, at = [], 0.0
    while at < 6.0:
        seconds = 0.005 if at < 4.0 else 0.010
        at += seconds
        made.append(Iteration(at, seconds))
    section = Section("cost", "")
    cost.tell(section, windows, made)
    texts = {check.name: check.text for check in section.checks}
    assert texts["cost at 100ms"].startswith("throughput -50")
    assert texts["cost at 1s"].startswith(("throughput +0.00%", "throughput -0.50%", "throughput +0.50%"))
    assert cost.pace(cost.Window("off", 100.0, 101.0), made) is None


def test_a_cost_without_iterations_is_skipped() -> None:
    section = Section("cost", "")
    cost.tell(section, [cost.Window(mode, 0.0, 1.0) for mode in cost.MODES], [])
    assert section.checks[0].verdict is Verdict.SKIPPED


def test_the_real_daemon_is_measured_beside_a_load(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = tmp_path / "control"
    control.write_text("count 2\n")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    monkeypatch.setenv("COLDPLATE_FAKE_NVML", str(control))
    loads = Loads("auto", None, shlex.join([sys.executable, str(Path(__file__).with_name("stub_load.py"))]), tmp_path)
    load = loads.start("GPU-x", "9.0", 30.0)
    windows = cost.measure(1, 0.5, 0.2, tmp_path, str)
    made = load.stop()
    section = Section("cost", "")
    cost.tell(section, windows, made)
    assert [window.mode for window in windows] == ["off", "1s", "100ms"]
    assert windows[0].calls is None
    assert (windows[2].calls or 0) >= 2 * 7 * 2  # two rounds in half a second, which 1 s never makes
    assert {check.verdict for check in section.checks} == {Verdict.MEASURED}
    assert len(made) > 100


def test_a_load_is_heard_by_a_process_with_many_descriptors(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    held = [os.open("/dev/null", os.O_RDONLY) for _ in range(1024)]
    try:
        command = shlex.join([sys.executable, str(Path(__file__).with_name("stub_load.py"))])
        Loads("auto", None, command, tmp_path).start("GPU-x", "9.0", 30.0).stop()  # started: its first line was heard
    finally:
        for each in held:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_a_load_that_is_not_available_says_why(tmp_path: Path) -> None:
    with pytest.raises(NoLoadError, match=r"torch of .*(torch|PyTorch)"):
        Loads("torch", None, None, tmp_path).start("GPU-x", "9.0", 1.0)
    with pytest.raises(NoLoadError, match="--load none"):
        Loads("none", None, None, tmp_path).start("GPU-x", "9.0", 1.0)
    with pytest.raises(NoLoadError, match="no-such-program"):
        Loads("auto", None, "no-such-program", tmp_path).start("GPU-x", "9.0", 1.0)


def test_a_record_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\0" * 37)
    assert iterations(tmp_path / "x") == [Iteration(0.0, 0.0)] * 2
    assert iterations(tmp_path / "none") == []


@given(st.lists(st.floats(0, 1e3), min_size=1), st.floats(0.01, 1.0))
def test_a_quantile_is_one_of_the_values_and_enough_lie_below(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert found in values
    assert sum(each <= found for each in values) >= share * len(values) - 1e-9


def test_a_report_never_counts_a_skipped_check_as_well() -> None:
    report = Report({"GPUs": "a | b"}, True)
    section = report.add("x", "X")
    section.ok("one", "fine")
    section.skipped("two", "no GPU")
    assert report.summary() == "2 checks: 1 ok, 1 skipped"
    assert "a \\| b" in report.markdown()
    assert "NO REAL GPU" in report.markdown()
