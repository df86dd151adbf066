"""Schedulers are found by being there, and their variables are those that the broker tells."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from agent.backends.jobs.cgroup import CgroupOwner, parse_cgroup
from agent.backends.jobs.jobs_backend import SOURCES, check_jobs, is_enabled
from agent.backends.jobs.schedulers import SCHEDULERS
from agent.backends.jobs.slurm_steps import gpu_numbers
from agent.broker.questions import KEYS
from agent.config.schema import ConfigError, JobsConfig
from tests.jobs.rig import HEX, UID, Rig


def test_schedulers_are_found_in_the_folder_and_the_broker_has_their_variables() -> None:
    """They stand in agent/broker/questions.py, where the privileged process has them before it."""
    home = Path(sys.modules["agent.backends.jobs.schedulers"].__file__ or "").parent
    files = {path.stem for path in home.glob("*.py")} - {"__init__"}
    assert {each.name for each in SCHEDULERS} == files
    assert [each.rank for each in SCHEDULERS] == sorted(each.rank for each in SCHEDULERS)
    assert {name for each in SCHEDULERS for name in each.variables} == {key.decode() for key in KEYS}


def test_every_scheduler_is_a_source_that_can_be_named() -> None:
    check_jobs(JobsConfig(sources=("all", *SOURCES), trust_environment=("slurm",)))
    assert is_enabled("lsf", ("all",))
    assert is_enabled("slurm", ("slurm",))
    assert not is_enabled("lsf", ("slurm",))
    with pytest.raises(ConfigError, match="sources: 'cobalt' is unknown; use any of all, slurm"):
        check_jobs(JobsConfig(sources=("cobalt",)))
    with pytest.raises(ConfigError, match="trust_environment: 'all' is unknown; use any of slurm"):
        check_jobs(JobsConfig(trust_environment=("all",)))


# Cgroup paths, by their shape.
UNDERSCORED = UID.replace("-", "_")
SHORT = HEX[:12]

SHAPES = {
    "/system.slice/gpu_a_7_slurmstepd.scope/job_4711": ("slurm", "4711"),
    "/ray-node_b9e4de76/user/workers": ("session", ""),
    "/ray/ray-node_b9e4de76/user/non-ray": ("session", ""),
    "/system.slice/system.slice/localhost_slurmstepd.scope/job_4711/step_0": ("slurm", "4711"),
    f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDERSCORED}.slice/crio-{HEX}.scope/container":
        ("kubernetes", UID),
    f"/kubepods/besteffort/pod{'0f' * 16}/{HEX}": ("kubernetes", "0f" * 16),
    f"/system.slice/containerd.service/kubepods-burstable-pod{UNDERSCORED}.slice:cri-containerd:{HEX}":
        ("kubernetes", UID),
    f"/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/cri-containerd-{HEX}.scope":
        ("kubernetes", UID),
    f"/../../pod{UID}/{HEX}": ("kubernetes", UID),
    f"/docker/{HEX}/kubelet/kubepods/burstable/pod{UID}/{'4a' * 32}": ("kubernetes", UID),
    f"/system.slice/docker-{HEX}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDERSCORED}.slice/"
    f"cri-containerd-{'4a' * 32}.scope": ("kubernetes", UID),
    f"/system.slice/k3s.service/kubepods/besteffort/pod{UID}/{HEX}": ("kubernetes", UID),
    f"/system.slice/snap.microk8s.daemon-kubelite.service/kubepods-pod{UNDERSCORED}.slice:cri-containerd:{HEX}":
        ("kubernetes", UID),
    f"/kubepods/burstable/pod{UID}/crio-{HEX}": ("kubernetes", UID),
    f"/kubepods/pod{UID}/{HEX}/docker/{'4a' * 32}": ("kubernetes", UID),
    f"/kubepods/pod{UID}/{HEX}/system.slice/w0_slurmstepd.scope/job_4711/step_0": ("slurm", "4711"),
    "/site_gpu.service/jobid/4711.head": ("pbs", "4711.head"),
    "/pbs_jobs/jobid/4711[3].head/x": ("pbs", "4711[3].head"),
    "/pbs_jobs.service": ("session", ""),
    f"/docker/{HEX}": ("docker", SHORT),
    f"/machine.slice/libpod-{HEX}.scope/container": ("podman", SHORT),
    f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope": ("podman", SHORT),
    f"/system.slice/nerdctl-{HEX}.scope": ("containerd", SHORT),
    f"/ecs/task/{HEX}": ("container", SHORT),
    "/lxc.payload.trainer/init.scope": ("lxc", "trainer"),
    "/system.slice/vllm@llama.service/worker": ("systemd", "vllm@llama.service"),
    "/system.slice/run-r0123.scope": ("systemd", "run-r0123.scope"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/tune.service": ("systemd", "user-1000/tune.service"),
    "/user.slice/user-1000.slice/user@1000.service/app.slice/vte-spawn-1.scope": ("session", ""),
    "/system.slice/ssh.service": ("session", ""),
    "/system.slice/slurmd.service": ("session", ""),
    "/init.scope": ("session", ""),
    "/": ("session", ""),
}  # fmt: skip
"""Whose the process in a path is, beside those of GENUINE."""


@pytest.mark.parametrize(("path", "expected"), SHAPES.items(), ids=list(SHAPES))
def test_a_path_says_whose_the_process_is(path: str, expected: tuple[str, str]) -> None:
    found = parse_cgroup(f"0::{path}\n")
    assert (found.scheduler, found.id) == expected
    assert found.strange == ""


def test_slurm_on_cgroup_v1_is_found_beside_other_hierarchies_and_names_the_user() -> None:
    text = "12:devices:{0}/task_0\n4:memory:{0}/task_0\n1:name=systemd:{1}\n0::{1}\n".format(
        "/slurm/uid_1000/job_4711/step_0", "/system.slice/slurmd.service"
    )
    assert parse_cgroup(text) == CgroupOwner("slurm", "4711", uid=1000, top="/slurm/uid_1000/job_4711")


@pytest.mark.parametrize(
    "path",
    [
        "/opt/work/7",
        "/htcondor/x",
        f"/kubepods/pod{UID[:-2]}/x",
        "/slurm/job_x",
        "/ocs1.slice/ocs1-jobs.slice/ocs2.4711.scope",
    ],
)
def test_an_unknown_shape_is_logged_as_it_is_and_a_huge_text_looked_at_in_part(path: str) -> None:
    assert parse_cgroup(f"0::{path}") == CgroupOwner("session", strange=path)
    assert parse_cgroup(f"9:x:{path}\n" * 100_000).strange == path


# GPUs that Slurm gave to a job, and that no process of it has opened.
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
    assert held(slurm.look()) == {"3": ("7", "false"), "2": ("7", "true")}
    assert (slurm.value("coldplate_job_gpus", job_id="7"), slurm.value("coldplate_job_processes", job_id="7")) == (2, 1)
    assert slurm.holder(2)["name"] == "train"


def test_a_step_has_the_gpus_of_its_own_variable(slurm: Rig) -> None:
    """A task inherits SLURM_JOB_GPUS from the batch step of the first node, where the numbers are others."""
    step(slurm, 7, "0", 100, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0-3", "SLURM_STEP_GPUS": "2"})
    step(slurm, 7, "extern", 101, {})
    assert held(slurm.look()) == {"1": ("7", "true")}
    assert slurm.value("coldplate_job_processes", job_id="7") == 0


def test_a_gpu_on_which_another_job_computes_is_not_claimed(slurm: Rig) -> None:
    step(slurm, 7, "batch", 100, {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1,2,3,9"})
    step(slurm, 8, "batch", 101, {"SLURM_JOB_ID": "8", "SLURM_JOB_GPUS": "3"})
    slurm.put(0, 101)
    assert held(slurm.look()) == {"0": ("8", "false"), **dict.fromkeys("123", ("7", "true"))}


def test_jobs_that_share_an_idle_gpu_are_shown_and_ended_ones_and_instances_are_not(slurm: Rig) -> None:
    for job, gpu in ((7, 0), (8, 0), (9, 1), (10, 2)):
        step(slurm, job, "batch", 100 + job, {"SLURM_JOB_ID": str(job), "SLURM_JOB_GPUS": str(gpu)})
    slurm.proc.end(110)
    assert held(slurm.look()) == {"3": ("", "true"), "2": ("9", "true")}
    assert slurm.holder(3)["shared"] == "true"
    slurm.divide(0, a=3)
    assert held(slurm.look()) == {}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0", [0]), ("0,2-3", [0, 2, 3]), ("", []), ("GPU-1", []), ("3-1", []), ("0-9999", list(range(64))), ("1,x", [])],
)
def test_a_list_of_gpus_that_a_user_may_have_written(text: str, numbers: list[int]) -> None:
    assert gpu_numbers(text) == numbers
