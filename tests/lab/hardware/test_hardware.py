"""The checks themselves: a run over the stand-in library, and judgements that must be able to fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME
from tests.daemon.conftest import library
from tests.fakes.nvml.build import CONTROL, command
from tests.lab.hardware.compare import judge_number
from tests.lab.hardware.rows import ROWS, Row

__all__ = ["library"]

ROOT = Path(__file__).parents[3]


def run(library: Path, control: Path, *harm: str) -> subprocess.CompletedProcess[str]:
    """The command on GPUs of the stand-in library, which do what its control file says."""
    command(control, *harm)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), CONTROL: str(control)}
    return subprocess.run(
        [sys.executable, "-m", "tests.lab.hardware", "--nvidia-smi", "no-such-program", "--samples", "8"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_every_step_that_needs_no_gpu_runs_over_the_stand_in(library: Path, tmp_path: Path) -> None:
    done = run(library, tmp_path / "control", "count 2", "freeze 123.25")
    assert done.returncode == 0, done.stderr
    assert "NO REAL GPU" in done.stdout
    assert "**skipped** values against nvidia-smi" in done.stdout
    assert "**ok** at most 7 device calls in a fast sample" in done.stdout
    assert "**ok** GPU 1 registers for XIDs" in done.stdout
    assert "GPU-c01d97a7" not in done.stdout


@pytest.mark.parametrize(("harm", "status"), [("count 0", 77), ("mismatch", 1)])
def test_what_could_not_be_checked_is_no_success(library: Path, tmp_path: Path, harm: str, status: int) -> None:
    assert run(library, tmp_path / "control", harm).returncode == status


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
