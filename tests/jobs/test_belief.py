"""Whose word counts: what a user can write or name himself makes no job of a scheduler's out of his processes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.backends.jobs.cgroup import parse_cgroup
from agent.broker.questions import KEYS
from tests.jobs.rig import BOOT, GENUINE, HEX, LOGINS, UID, VARIABLES, Rig

HIS_OWN = (
    "/user.slice/user-1000.slice/user@1000.service",
    "/user/alice/0",
    "/user.slice/user-1000.slice/session-3.scope",
    "/user.slice/user-1000.slice/user@1000.service/app.slice/x.service",
    "/../../user-1000.slice/user@1000.service",
)
"""Below these a user makes cgroups himself."""
GIVEN_AWAY = ("/system.slice/jupyterhub.service", "/system.slice/run-r1.scope", "/machine.slice/vm.scope", "/work")
"""Below these, somebody who is not root may: a service with Delegate=, for one."""
DAEMONS = {
    "slurm": ["/system.slice/slurmd.service", "/system.slice/system-slurmd.slice/slurmd@n1.service/x"],
    "pbs": ["/system.slice/pbs.service"],
    "lsf": ["/system.slice/lsfd.service"],
    "sge": [
        "/system.slice/sgeexecd.p6444.service",
        "/system.slice/gridengine-exec.service",
        "/system.slice/ocs6444-execd.service",
    ],
    "flux": ["/system.slice/flux.service"],
    "htcondor": ["/system.slice/condor.service"],
    "nomad": ["/system.slice/nomad.service"],
}
"""Where a scheduler that makes no cgroups leaves what it starts."""
PBS_17 = {"PBS_JOBID": "17.head", "PBS_JOBNAME": "n", "PBS_QUEUE": "q"}


@pytest.mark.parametrize(("scheduler", "path", "job"), GENUINE, ids=[f"{name}-{path}" for name, path, _ in GENUINE])
def test_a_schedulers_cgroup_is_its_job_and_a_users_of_the_same_name_is_not(
    scheduler: str, path: str, job: str
) -> None:
    found = parse_cgroup(f"0::{path}\n")
    assert (found.scheduler, found.id, found.strange) == (scheduler, job, "")
    forged = [parse_cgroup(f"4:memory:{prefix}{path}\n0::{prefix}{path}\n") for prefix in HIS_OWN]
    forged += [parse_cgroup(f"0::{prefix}{path}\n") for prefix in GIVEN_AWAY]
    assert scheduler not in {each.scheduler for each in forged}
    # What a job's user adds below his own job, where the scheduler lets him, is that job still.
    neighbour = path.replace("4711", "4712").replace("slot1_2", "slot1_3")
    assert parse_cgroup(f"0::{path}{neighbour}").id == job
    assert {each.home for each in forged} == {""}


CONTAINER_SHAPES = (
    f"/docker-{HEX}.scope",
    f"/docker/{HEX}",
    f"/libpod-{HEX}.scope/container",
    f"/nerdctl-{HEX}.scope",
    f"/x/{HEX}",
    "/lxc/victim",
    "/lxc.payload.victim",
)
PLACES_OF_USERS = (*HIS_OWN, "/system.slice/jupyter-alice.service", "/system.slice/run-r1.scope")


@pytest.mark.parametrize("shape", CONTAINER_SHAPES)
@pytest.mark.parametrize("prefix", PLACES_OF_USERS)
def test_no_user_makes_his_process_one_of_anothers_container(rig: Rig, prefix: str, shape: str) -> None:
    """He may call a cgroup as he likes, so neither root's container nor another user's is meant by the same name."""
    bobs = prefix.replace("1000", "1001").replace("alice", "bob").replace("run-r1", "run-r2")
    for gpu, (path, uid) in enumerate(((shape, 0), (prefix + shape, 1000), (bobs + shape, 1001))):
        rig.run(gpu, 100 + gpu, path, {}, uid=uid)
    assert len(rig.look().jobs()) == 3
    assert rig.holder(0)["user"] == ""
    if prefix in HIS_OWN:
        assert [rig.holder(gpu)["user"] for gpu in (1, 2)] == ["alice", "bob"]


def test_a_rootless_container_belongs_to_its_user_whichever_user_it_has_inside(rig: Rig) -> None:
    for gpu, uid in enumerate((1000, 100999)):
        path = f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{HEX}.scope/container"
        rig.run(gpu, 100 + gpu, path, {}, uid=uid)
    assert rig.look().jobs() == {("podman", f"{HEX[:12]}@1000"): ["0", "1"]}
    assert rig.holder()["user"] == "alice"


def test_what_root_made_counts_before_what_a_user_did_in_another_hierarchy() -> None:
    """pam_cgfs gives users cgroups of version 1 in some hierarchies, beside those of the container engine."""
    text = f"4:memory:/user/alice/docker/{'4a' * 32}\n2:devices:/libpod_parent/libpod-{HEX}\n"
    assert (parse_cgroup(text).scheduler, parse_cgroup(text).id) == ("podman", HEX[:12])


@pytest.mark.parametrize("scheduler", sorted(VARIABLES))
@pytest.mark.parametrize("cgroup", LOGINS)
def test_a_process_of_no_scheduler_is_not_its_job_whatever_its_environment_says(
    rig: Rig, scheduler: str, cgroup: str
) -> None:
    rig.run(0, 100, cgroup, VARIABLES[scheduler], session=9)
    rig.look()
    ((found, _),) = rig.jobs()
    assert found in ("session", "systemd", "docker", "podman")


@pytest.mark.parametrize(("scheduler", "path"), [(name, path) for name, found in DAEMONS.items() for path in found])
def test_the_environment_counts_below_the_schedulers_daemons(rig: Rig, scheduler: str, path: str) -> None:
    rig.run(0, 100, path, VARIABLES[scheduler], session=9)
    rig.run(1, 101, f"/system.slice/jupyterhub.service{path}", VARIABLES[scheduler], session=9)
    rig.run(2, 102, path, {}, session=9)
    rig.look()
    found = [rig.holder(gpu)["scheduler"] for gpu in range(3)]
    assert (found[0], found[1] in ("session", "systemd"), found[2]) == (scheduler, True, "session")
    assert rig.problems() == {}


@pytest.mark.parametrize(
    ("scheduler", "env", "job", "facts"),
    [
        ("slurm", {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "n"}, "4711", {"name": "n"}),
        ("pbs", {"PBS_JOBID": "17[3].head", "PBS_JOBNAME": "n", "PBS_QUEUE": "q"}, "17[3].head", {"partition": "q"}),
        ("lsf", {"LSB_JOBID": "12", "LSB_JOBINDEX": "4", "LSB_JOBNAME": "n[4]"}, "12[4]", {"name": "n[4]"}),
        ("lsf", {"LSB_JOBID": "12", "LSB_PROJECT_NAME": "p"}, "12", {"account": "p"}),
        ("sge", {"JOB_ID": "12", "SGE_ROOT": "/s", "SGE_TASK_ID": "undefined", "QUEUE": "q"}, "12", {"partition": "q"}),
        ("sge", {"JOB_ID": "12", "SGE_ROOT": "/s", "SGE_TASK_ID": "3", "SGE_ACCOUNT": "a"}, "12.3", {"account": "a"}),
        ("flux", VARIABLES["flux"], "ƒABC", {"array": "ƒABC/ƒ7cyc"}),
        ("flux", {"FLUX_JOB_ID": "ƒABC", "FLUX_JOB_ID_PATH": "/ƒABC"}, "ƒABC", {"array": ""}),
        ("htcondor", VARIABLES["htcondor"], "slot1_2/dir_9", {}),
        ("nomad", VARIABLES["nomad"], UID, {"name": "n"}),
    ],
)
def test_below_the_daemons_the_environment_gives_id_and_facts(rig: Rig, scheduler, env, job, facts) -> None:
    rig.run(0, 100, DAEMONS[scheduler][0], env)
    assert list(rig.look().jobs()) == [(scheduler, job)]
    row = rig.rows("coldplate_job_info")[0]
    assert row | facts == row


@pytest.mark.parametrize(
    ("path", "env", "job", "facts"),
    [
        ("/slurm/uid_1000/job_5000/step_0", VARIABLES["slurm"], ("slurm", "5000"), {"name": ""}),
        ("/slurm/uid_1000/job_4711/step_0", {"RAY_JOB_ID": "01000000"}, ("slurm", "4711"), {}),
        ("/pbs_jobs.service/jobid/17.head", PBS_17, ("pbs", "17.head"), {"name": "n", "partition": "q"}),
        ("/pbs_jobs.service/jobid/18.head", PBS_17, ("pbs", "18.head"), {"name": "", "partition": ""}),
        ("/lsf/c/job.12.5.1700000000", {"LSB_JOBID": "12", "LSB_JOBINDEX": "4"}, ("lsf", "12[4]"), {}),
        ("/lsf/c/job.12.5.1700000000", {"LSB_JOBID": "13", "LSB_JOBNAME": "n"}, ("lsf", "12"), {"name": ""}),
        ("/UGE/4711.1", VARIABLES["sge"], ("sge", "4711.1"), {"name": "n"}),
        ("/ocs1.slice/ocs1-jobs.slice/ocs1.4711.scope", VARIABLES["sge"], ("sge", "4711"), {"name": "n"}),
        ("/ocs1.slice/ocs1-jobs.slice/ocs1.4712.scope", VARIABLES["sge"], ("sge", "4712"), {"name": ""}),
        ("/oar/alice_4711", VARIABLES["oar"], ("oar", "4711"), {"name": "n"}),
        ("/oar/alice_4712", VARIABLES["oar"], ("oar", "4712"), {"name": ""}),
        ("/htcondor/condor_x_slot1_2@n", VARIABLES["htcondor"], ("htcondor", "slot1_2/dir_9"), {}),
        ("/htcondor/condor_x_slot1_3@n", VARIABLES["htcondor"], ("htcondor", "slot1_3"), {}),
        (f"/nomad.slice/share.slice/{UID}.t.scope", VARIABLES["nomad"], ("nomad", UID), {"name": "n"}),
        (f"/nomad.slice/docker-{HEX}.scope", VARIABLES["nomad"], ("nomad", UID), {"user": ""}),
        (f"/kubepods/pod{UID}/{HEX}", {"RAY_CLUSTER_NAME": "r"}, ("kubernetes", UID), {"partition": "r"}),
    ],
)
def test_the_environment_adds_facts_to_the_job_that_the_cgroup_names(rig: Rig, path, env, job, facts) -> None:
    rig.run(0, 100, path, env)
    assert list(rig.look().jobs()) == [job]
    row = rig.rows("coldplate_job_info")[0]
    assert row | facts == row


def test_two_jobs_after_each_other_in_one_slot_of_htcondor_are_two(rig: Rig) -> None:
    rig.run(0, 100, "/htcondor/condor_x_slot1_2@n", VARIABLES["htcondor"], started=10)
    rig.look()
    later = VARIABLES["htcondor"] | {"_CONDOR_SCRATCH_DIR": "/var/lib/condor/execute/dir_10"}
    rig.proc.process(100, "/htcondor/condor_x_slot1_2@n", later, started=99)
    assert rig.look().jobs() == {("htcondor", "slot1_2/dir_10"): ["0"]}
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="slot1_2/dir_10") == BOOT + 99


LSF_ARRAY = {"LSB_JOBID": "12", "LSB_JOBINDEX": "4"}


@pytest.mark.parametrize(
    ("path", "envs", "job"),
    [
        ("/htcondor/condor_x_slot1_2@n", (VARIABLES["htcondor"], None), "slot1_2/dir_9"),
        ("/htcondor/condor_x_slot1_2@n", (None, None), "slot1_2"),
        ("/lsf/c/job.12.5.17", (None, LSF_ARRAY, LSF_ARRAY), "12[4]"),
        ("/lsf/c/job.12.5.17", (LSF_ARRAY, LSF_ARRAY | {"LSB_JOBINDEX": "5"}), "12"),  # one of them lies
    ],
)
def test_the_processes_of_one_cgroup_are_one_job_whosever_environment_is_hidden(rig: Rig, path, envs, job) -> None:
    for gpu, env in enumerate(envs):
        rig.run(gpu, 100 + gpu, path + "/sub" * gpu, env)
    assert {found: len(gpus) for (_, found), gpus in rig.look().jobs().items()} == {job: len(envs)}


def test_elements_of_an_array_with_cgroups_of_their_own_stay_separate(rig: Rig) -> None:
    for gpu, path in enumerate(("/lsf/c/job.12.5.17", "/lsf/c/job.12.6.17")):
        rig.run(gpu, 100 + gpu, path, LSF_ARRAY | {"LSB_JOBINDEX": str(gpu + 1)})
    assert set(rig.look().jobs()) == {("lsf", "12[1]"), ("lsf", "12[2]")}


def test_a_scheduler_that_is_trusted_is_believed_everywhere_and_no_other_is(rig: Rig) -> None:
    rig.open(trust=("slurm",))
    for gpu, env in enumerate((VARIABLES["slurm"], VARIABLES["pbs"])):
        rig.run(gpu, 100 + gpu, LOGINS[0], env, session=9 + gpu)
    rig.look()
    assert [rig.holder(gpu)["scheduler"] for gpu in range(2)] == ["slurm", "session"]


HUB = "/system.slice/jupyterhub.service"


@pytest.mark.parametrize(
    ("path", "env", "jobs"),
    [
        (HUB, {}, [("systemd", f"jupyterhub.service@{uid}") for uid in (1000, 1001)]),
        (HUB, {"RAY_JOB_ID": "01000000"}, [("ray", f"01000000@jupyterhub.service@{uid}") for uid in (1000, 1001)]),
        (LOGINS[0], {}, [("session", "9@1000"), ("session", "9@1001")]),
    ],
)
def test_two_users_in_one_place_are_two_jobs(rig: Rig, path: str, env: dict[str, str], jobs: list[object]) -> None:
    for gpu, uid in enumerate((1000, 1001, 1001)):
        rig.run(gpu, 100 + gpu, path, env, uid=uid, session=9)
    assert rig.look().jobs() == {jobs[0]: ["0"], jobs[1]: ["1", "2"]}
    assert [rig.holder(gpu)["user"] for gpu in range(2)] == ["alice", "bob"]


HETEROGENEOUS = {
    "SLURM_JOB_ID": "123",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_0": "123",
    "SLURM_JOB_ID_HET_GROUP_1": "124",
    "SLURM_JOB_NAME": "n",
    "SLURM_JOB_ACCOUNT": "a",
    "SLURM_JOB_PARTITION": "cpu",
    "SLURM_JOB_PARTITION_HET_GROUP_0": "cpu",
    "SLURM_JOB_PARTITION_HET_GROUP_1": "gpu",
    "SLURM_JOB_START_TIME_HET_GROUP_1": str(BOOT + 7),
}


def test_each_component_of_a_heterogeneous_job_has_its_own_facts(rig: Rig) -> None:
    """Every task finds the first component's id in SLURM_JOB_ID; the cgroup has the component's own."""
    for gpu, job in enumerate((123, 124, 125)):
        rig.run(gpu, 100 + gpu, f"/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0", HETEROGENEOUS)
    rig.look()
    facts = {row["job_id"]: (row["array"], row["partition"], row["name"]) for row in rig.rows("coldplate_job_info")}
    assert facts == {"123": ("123+0", "cpu", "n"), "124": ("123+1", "gpu", "n"), "125": ("", "", "")}
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="124") == BOOT + 7


def test_a_foul_id_is_a_problem_logged_once_and_not_a_label(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.run(0, 100, "/system.slice/pbs.service", {"PBS_JOBID": "17 or 1=1"}, session=9)
    rig.run(1, 101, "/pbs_jobs.service/jobid/" + "x" * 400, {}, session=9)
    rig.run(2, 102, "/system.slice/pbs.service", {"PBS_JOBID": "17 or 1=1"}, session=9)
    rig.look()
    assert rig.look().jobs() == {("session", "9@1000"): ["0", "1", "2"]}
    assert rig.problems() == {"foul_id": 2}
    assert "'17 or 1=1' is not a valid pbs job id" in caplog.text


@pytest.mark.parametrize(
    ("path", "env", "job"),
    [
        ("/lsf/cl/job.12.3.4", {"LSB_JOBID": "12", "LSB_JOBINDEX": "a b"}, ("lsf", "12")),
        ("/lsf/cl/job.12.3.4", {"LSB_JOBID": "12", "LSB_JOBINDEX": "٣"}, ("lsf", "12")),
        ("/lsf/cl/job.12[3].3.4", {"LSB_JOBID": "12", "LSB_JOBINDEX": "3"}, ("lsf", "12[3]")),
        ("/lsf/cl/job.12[3].3.4", {"LSB_JOBID": "12", "LSB_JOBINDEX": "777"}, ("lsf", "12[3]")),
        ("/lsf/cl/job.12[3].3.4", {"LSB_JOBID": "12[3]", "LSB_JOBINDEX": "777"}, ("lsf", "12[3]")),
        (f"/system.slice/docker-{HEX}.scope", {"RAY_JOB_ID": "a b"}, ("docker", HEX[:12])),
        ("/system.slice/x.service", {"RAY_JOB_ID": "a b"}, ("systemd", "x.service@1000")),
        ("/lxc/a b", {"RAY_JOB_ID": "a b"}, ("session", "9@1000")),
    ],
)
def test_a_foul_variable_does_not_hide_what_the_cgroup_says(rig: Rig, path, env, job) -> None:
    rig.run(0, 100, path, env, session=9)
    assert list(rig.look().jobs()) == [job]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    genuine=st.sampled_from(GENUINE),
    changed=st.dictionaries(st.sampled_from(sorted(key.decode() for key in KEYS)), st.text("4711a b[]/٣", max_size=9)),
)
def test_no_environment_takes_a_process_from_the_job_that_its_cgroup_names(
    tmp_path: Path, genuine: tuple[str, str, str], changed: dict[str, str]
) -> None:
    scheduler, path, job = genuine
    rig = Rig(tmp_path)
    rig.run(0, 100, path, VARIABLES.get(scheduler, {}) | changed, session=9)
    rig.look()
    ((found, shown),) = rig.jobs()
    assert (found, shown.startswith(job)) == (scheduler, True)
