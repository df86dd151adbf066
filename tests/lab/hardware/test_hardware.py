"""The checks themselves: a run over the stand-in library, and judgements that must be able to fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.backends.nvml.trace import DriverTrace
from agent.catalogue import BY_NAME
from tests.fakes.nvml.build import CONTROL, build, command
from tests.lab.hardware import moving
from tests.lab.hardware.compare import judge_number
from tests.lab.hardware.findings import Section, Verdict
from tests.lab.hardware.moving import CLOCK, ENERGY, INSTANT, POWER, SM, TENSOR, UTILIZATION, Moment
from tests.lab.hardware.rows import ROWS, Row

ROOT = Path(__file__).parents[3]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command on two GPUs of the stand-in library, which do what its control file says."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), CONTROL: str(folder / "control")}
    return subprocess.run(
        [sys.executable, "-m", "tests.lab.hardware", "--nvidia-smi", "no-such-program", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_every_step_that_needs_no_gpu_runs_over_the_stand_in(tmp_path: Path) -> None:
    build(tmp_path)
    command(tmp_path / "control", "count 2", "freeze 123.25")
    report, trace = tmp_path / "report.json", tmp_path / "node7.jsonl"
    files = ("--json", str(report), "--record", str(trace), "--date", "2026-11-20")
    done = run(tmp_path, "--samples", "8", "--skip", "load,cost", *files)
    assert done.returncode == 0, done.stderr
    assert "NO REAL GPU" in done.stderr
    assert "values against nvidia-smi" in done.stderr  # which is named as not checked
    checks = [each for section in json.loads(report.read_text())["sections"] for each in section["checks"]]
    verdicts = {each["name"]: each["verdict"] for each in checks}
    assert verdicts["at most 7 device calls in a fast sample"] == verdicts["GPU 1 registers for XIDs"] == "ok"
    assert DriverTrace(trace).provenance["stand_in"] is True
    assert "GPU-c01d97a7" not in trace.read_text() + done.stdout + report.read_text()


@pytest.mark.parametrize(("harm", "status"), [("count 0", 77), ("mismatch", 1)])
def test_what_could_not_be_checked_is_no_success(tmp_path: Path, harm: str, status: int) -> None:
    build(tmp_path)
    command(tmp_path / "control", harm)
    assert run(tmp_path, "--quick").returncode == status


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


def test_every_compared_value_is_of_the_catalogue() -> None:
    for row in ROWS:
        assert tuple(name for name, _ in row.labels) == BY_NAME[row.metric].labels
        assert row.csv or row.xml


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
