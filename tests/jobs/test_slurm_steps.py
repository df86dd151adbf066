"""GPUs that Slurm gave to a job, and that no process of it has opened."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.backends.jobs.slurm_steps import gpu_numbers
from tests.jobs.rig import Rig

UNIFIED = "system.slice/n1_slurmstepd.scope/job_{}/step_{}/user/task_0"
VERSION_1 = "devices/slurm_n1/uid_1000/job_{}/step_{}/task_0"


@pytest.fixture
def slurm(rig: Rig, tmp_path: Path) -> Rig:
    for index in range(len(rig.gpus)):
        rig.minor(index, 3 - index)  # the minors are not the indices
    rig.open(cgroups=str(tmp_path / "cgroup"))
    return rig


def step(rig: Rig, job: int, name: str, pid: int, env: Mapping[str, str], path: str = UNIFIED) -> None:
    below = path.format(job, name)
    folder = rig.proc.root.parent / "cgroup" / below
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text(f"{pid}\n")
    rig.proc.process(pid, f"1:devices:/{below.partition('/')[2]}" if path == VERSION_1 else f"/{below}", env)


def held(rig: Rig) -> dict[str, tuple[str, str]]:
    return {row["gpu"]: (row["job_id"], row["held"]) for row in rig.rows("coldplate_gpu_job_info")}


@pytest.mark.parametrize("path", [UNIFIED, VERSION_1])
def test_a_job_that_opens_one_of_its_two_gpus_holds_both(slurm: Rig, path: str) -> None:
    step(slurm, 7, "batch", 100, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1", "SLURM_JOB_NAME": "train"}, path)
    slurm.put(3, 100)
    slurm.look()
    assert held(slurm) == {"3": ("7", "false"), "2": ("7", "true")}
    assert (slurm.value("coldplate_job_gpus", job_id="7"), slurm.value("coldplate_job_processes", job_id="7")) == (2, 1)
    assert slurm.holder(2)["name"] == "train"


def test_a_step_has_the_gpus_of_its_own_variable(slurm: Rig) -> None:
    """A task inherits SLURM_JOB_GPUS from the batch step of the first node, where the numbers are others."""
    step(slurm, 7, "0", 100, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0-3", "SLURM_STEP_GPUS": "2"})
    step(slurm, 7, "extern", 101, {})
    slurm.look()
    assert held(slurm) == {"1": ("7", "true")}
    assert slurm.value("coldplate_job_processes", job_id="7") == 0


def test_a_gpu_on_which_another_job_computes_is_not_claimed(slurm: Rig) -> None:
    step(slurm, 7, "batch", 100, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1,2,3,9"})
    step(slurm, 8, "batch", 101, {"SLURM_JOB_ID": "8", "SLURM_JOB_GPUS": "3"})
    slurm.put(0, 101)
    slurm.look()
    assert held(slurm) == {"0": ("8", "false"), **dict.fromkeys("123", ("7", "true"))}


def test_jobs_that_share_a_gpu_without_using_it_are_both_shown(slurm: Rig) -> None:
    for job in (7, 8):
        step(slurm, job, "batch", 100 + job, {"SLURM_JOB_ID": str(job), "SLURM_JOB_GPUS": "0"})
    slurm.look()
    assert held(slurm) == {"3": ("", "true")}
    assert slurm.holder(3)["shared"] == "true"


def test_a_step_of_a_gpu_with_instances_claims_nothing(slurm: Rig) -> None:
    step(slurm, 7, "batch", 100, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0"})
    slurm.divide(0, a=3)
    slurm.look()
    assert held(slurm) == {}


def test_a_job_that_ended_between_two_reads_holds_nothing(slurm: Rig) -> None:
    step(slurm, 7, "batch", 100, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0"})
    slurm.proc.end(100)
    slurm.look()
    assert held(slurm) == {}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", [0]), ("0,2-3", [0, 2, 3]), ("", []), ("GPU-1", []), ("3-1", []), ("0-9999", list(range(64))), ("1,x", [])],
)
def test_a_list_of_gpus_that_a_user_may_have_written(text: str, numbers: list[int]) -> None:
    assert gpu_numbers(text) == numbers
