"""Where Slurm puts the cgroups of its jobs, and how it names them: both parts that read them know every form."""

import logging
from pathlib import Path

import pytest

from agent.backends.jobs.cgroup import may_hold_schedulers
from tests.jobs.rig import BOOT, HEX, UID, Rig

SLUID = "s5K1KKYAYG5D00"
SCOPES = (
    "system.slice/slurmstepd.scope",
    "system.slice/n7_slurmstepd.scope",
    "site.slice/site-gpu.slice/slurmstepd.scope",
    f"kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{HEX}.scope/system.slice/slurmstepd.scope",
    f"kubepods/pod{UID}/{HEX}/system.slice/slurmstepd.scope/system.slice/slurmstepd.scope",
)
"""The default, several slurmd on a node, CgroupSlice, and slurmd in a pod, also as its first process."""
JOB_ENV = {"SLURM_JOB_ID": "4711", "SLURM_JOB_SLUID": SLUID, "SLURM_JOB_NAME": "llama"}


@pytest.fixture
def slurm(rig: Rig, tmp_path: Path) -> Rig:
    for index in range(len(rig.gpus)):
        rig.minor(index, 3 - index)  # the minors are not the indices
    rig.open(cgroups=str(tmp_path / "cgroup"))
    return rig


def put(rig: Rig, cgroup: str, pid: int) -> None:
    folder = rig.proc.root.parent / "cgroup" / cgroup
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text(f"{pid}\n")


def task(
    rig: Rig, job: str, number: int, env: dict[str, str] | None, step: str = "step_0", scope: str = SCOPES[0]
) -> int:
    """A task of a job, by the name of its cgroup. Returns its process."""
    pid = 100 + number
    cgroup = f"{scope}/{job}/{step}/user/task_{number}"
    put(rig, cgroup, pid)
    rig.proc.process(pid, f"/{cgroup}", env)
    return pid


def stepd(rig: Rig, job: str, pid: int, title: str, step: str = "step_0", scope: str = SCOPES[0]) -> None:
    """The slurmstepd of a step, with the title that it gives itself."""
    cgroup = f"{scope}/{job}/{step}/slurm"
    put(rig, cgroup, pid)
    rig.proc.process(pid, f"/{cgroup}", None, uid=0, title=title)


@pytest.mark.parametrize("name", ["job_4711", SLUID])
@pytest.mark.parametrize("scope", SCOPES)
def test_a_job_of_four_ranks_is_one_job_by_either_name_in_any_slice(slurm: Rig, scope: str, name: str) -> None:
    for gpu in range(4):
        slurm.put(gpu, task(slurm, name, gpu, JOB_ENV, scope=scope))
    assert slurm.look().jobs() == {("slurm", "4711"): ["0", "1", "2", "3"]}
    assert (slurm.holder()["name"], slurm.problems()) == ("llama", {})


@pytest.mark.parametrize(
    ("envs", "job"),
    [
        ((None, None), SLUID),
        ((None, JOB_ENV), "4711"),
        ((JOB_ENV, JOB_ENV | {"SLURM_JOB_ID": "9"}), SLUID),
        ((JOB_ENV | {"SLURM_JOB_SLUID": "s5K1KKYAYG5D01"}, None), SLUID),
        (({"SLURM_JOB_ID": "4711"}, None), SLUID),
    ],
    ids=["hidden", "one hidden", "a contradiction", "of another job", "no SLUID"],
)
def test_a_job_is_one_by_its_sluid_where_no_environment_names_its_number(slurm: Rig, envs, job: str) -> None:
    for gpu, env in enumerate(envs):
        slurm.put(gpu, task(slurm, SLUID, gpu, env))
    assert slurm.look().jobs() == {("slurm", job): ["0", "1"]}


def test_the_title_of_slurmstepd_names_the_job_whatever_its_tasks_say(slurm: Rig) -> None:
    stepd(slurm, SLUID, 90, "slurmstepd: [4711.extern]", "step_extern")
    for gpu, env in enumerate((None, JOB_ENV, JOB_ENV | {"SLURM_JOB_ID": "4712", "SLURM_JOB_NAME": "other"})):
        slurm.put(gpu, task(slurm, SLUID, gpu, env))
    assert slurm.look().jobs() == {("slurm", "4711"): ["0", "1", "2"]}
    assert slurm.holder(2)["name"] == "llama"


def test_the_components_of_a_heterogeneous_job_are_two_by_their_titles(slurm: Rig) -> None:
    """Every task has the first component's number, and the cgroup has none."""
    env = {
        "SLURM_JOB_ID": "123",
        "SLURM_JOB_ID_HET_GROUP_0": "123",
        "SLURM_JOB_ID_HET_GROUP_1": "124",
        "SLURM_JOB_PARTITION_HET_GROUP_1": "gpu",
    }
    names = ("s5K1KKYAYG5D00", "s5K1KKYAYG5D01", "s5K1KKYAYG5D02")
    for gpu, name in enumerate(names):
        slurm.put(gpu, task(slurm, name, gpu, env | {"SLURM_JOB_SLUID": name}))
    for number in (0, 1):
        stepd(slurm, names[number], 90 + number, f"slurmstepd: [{123 + number}.0]")
    slurm.look()
    assert set(slurm.jobs()) == {("slurm", "123"), ("slurm", "124"), ("slurm", names[2])}
    facts = {row["job_id"]: (row["array"], row["partition"]) for row in slurm.rows("coldplate_job_info")}
    assert facts["124"] == ("123+1", "gpu")


@pytest.mark.parametrize("name", ["job_4711x", "s5K1KKYAYG5DU0", "9f3c"])
def test_an_unknown_name_in_the_scope_is_one_job_counted_and_no_login(
    slurm: Rig, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="coldplate.jobs"):
        for gpu in range(2):
            slurm.put(gpu, task(slurm, name, gpu, {"SLURM_JOB_ID": "9"}))
        slurm.look()
    assert slurm.jobs() == {("slurm", name): ["0", "1"]}
    assert slurm.problems() == {"unknown_cgroup": 1}
    assert name in caplog.text
    stepd(slurm, name, 90, "slurmstepd: [4711.0]")
    slurm.put(2, task(slurm, name, 2, {}))
    assert ("slurm", "4711") in slurm.look().jobs()


def test_what_slurmd_starts_in_its_own_cgroup_is_its_work(slurm: Rig) -> None:
    """A prolog that tests the GPUs, where slurmd is the first process of a container."""
    slurm.run(0, 100, f"/{SCOPES[0]}/slurmd", {"SLURM_JOB_ID": "4711"})
    slurm.run(1, 101, f"/{SCOPES[0]}/system", {}, session=9)
    assert set(slurm.look().jobs()) == {("slurm", "4711"), ("session", "9@1000")}
    assert slurm.problems() == {}


@pytest.mark.parametrize("name", ["job_4711", SLUID])
@pytest.mark.parametrize("scope", SCOPES)
def test_idle_gpus_of_a_job_are_found_by_either_name_in_any_slice(slurm: Rig, scope: str, name: str) -> None:
    task(slurm, name, 0, JOB_ENV | {"SLURM_JOB_GPUS": "0,1"}, "step_batch", scope)
    slurm.put(3, 100)
    held = {row["gpu"]: (row["job_id"], row["held"]) for row in slurm.look().rows("coldplate_gpu_job_info")}
    assert held == {"3": ("4711", "false"), "2": ("4711", "true")}


def test_a_scope_that_is_made_later_is_found_and_a_users_is_not_searched(slurm: Rig) -> None:
    idle = JOB_ENV | {"SLURM_JOB_GPUS": "0"}
    assert slurm.look().jobs() == {}
    for place in ("user.slice/user-1000.slice/user@1000.service", "system.slice/jupyterhub.service"):
        task(slurm, "job_9", 9, {"SLURM_JOB_ID": "9", "SLURM_JOB_GPUS": "1"}, scope=f"{place}/slurmstepd.scope")
    task(slurm, SLUID, 0, idle, "step_batch", SCOPES[2])
    assert slurm.look().jobs() == {}
    assert slurm.look(120).jobs() == {("slurm", "4711"): ["3"]}
    assert slurm.value("coldplate_job_start_timestamp_seconds", job_id="4711") == BOOT + 5000


def test_no_scope_is_looked_for_where_users_make_cgroups() -> None:
    searched = ("/system.slice", "/site.slice/site-gpu.slice", f"/kubepods/pod{UID}", f"/kubepods/pod{UID}/{HEX}")
    assert all(map(may_hold_schedulers, searched))
    assert not any(map(may_hold_schedulers, ("/user.slice", "/user.slice/user-1000.slice", "/system.slice/x.service")))
