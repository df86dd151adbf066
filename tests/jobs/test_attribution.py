"""Processes of every scheduler give the expected jobs, through a procfs root."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.jobs.job_series import JobEnergy
from agent.model import Gpu
from tests.jobs.rig import BOOT, HEX, LOGIN, OTHER_UID, SLURM, UID, Rig

SLURM_V1 = "11:devices:/slurm/uid_1001/job_{job}/step_0\n1:name=systemd:/system.slice/slurmd.service\n"
SLURM_V2 = "/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_{task}"
SLURM_PREFIXED = "/system.slice/node7_slurmstepd.scope/job_{job}/step_0/user/task_{task}"
CONTAINERD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{hex}.scope"
CRIO = "/kubepods.slice/kubepods-pod{uid}.slice/crio-{hex}.scope"

SLURM_ENV = {
    "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "llama", "SLURM_JOB_ACCOUNT": "physics", "SLURM_JOB_PARTITION": "h100",
    "SLURM_JOB_START_TIME": str(BOOT + 4000), "SLURM_ARRAY_JOB_ID": "4700", "SLURM_ARRAY_TASK_ID": "11",
    "AWS_SECRET_ACCESS_KEY": "hunter2", "HOSTNAME": "node7",
}  # fmt: skip


@pytest.mark.parametrize("shape", [SLURM_V1, SLURM_V2, SLURM_PREFIXED], ids=["v1", "v2", "prefixed"])
def test_two_slurm_jobs_are_distinguished(rig: Rig, shape: str) -> None:
    for gpu in range(4):
        rig.run(gpu, 100 + gpu, shape.format(job=4711 + gpu // 2, task=gpu), {}, uid=1001)
    assert rig.look().jobs() == {("slurm", "4711"): ["0", "1"], ("slurm", "4712"): ["2", "3"]}
    assert rig.holder(0) | {"user": "bob", "mig": "0", "shared": "false"} == rig.holder(0)
    assert rig.value("coldplate_job_gpus", scheduler="slurm", job_id="4712") == 2
    assert rig.value("coldplate_job_processes", scheduler="slurm", job_id="4712") == 2
    assert rig.problems() == {}


def test_the_environment_adds_facts_to_a_slurm_job_and_nothing_else_is_kept(rig: Rig) -> None:
    rig.run(0, 100, SLURM_V2.format(job=4711, task=0), SLURM_ENV)
    sample = rig.look().sample
    facts = rig.rows("coldplate_job_info")[0]
    assert facts | {"name": "llama", "account": "physics", "partition": "h100", "array": "4700_11"} == facts
    assert rig.holder()["name"] == "llama"
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="4711") == BOOT + 4000
    assert rig.up("jobs_environ") == 1
    assert "hunter2" not in repr(sample) and "hunter2" not in repr(vars(rig.backend))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 5000), (str(BOOT - 1), 5000), (str(BOOT), 0), (str(BOOT + 4999), 4999), (str(BOOT + 5001), 5000)],
)
def test_a_start_before_the_nodes_or_after_the_process_is_not_believed(rig: Rig, text: str, expected: int) -> None:
    rig.run(0, 100, SLURM_V2.format(job=4711, task=0), SLURM_ENV | {"SLURM_JOB_START_TIME": text})
    assert rig.look().value("coldplate_job_start_timestamp_seconds", job_id="4711") == BOOT + expected


@pytest.mark.parametrize("shape", [CONTAINERD, CRIO], ids=["containerd", "crio"])
def test_pods_are_known_by_their_uid_and_host_name_without_the_kubelet(rig: Rig, shape: str) -> None:
    for gpu, uid in enumerate((UID, UID, OTHER_UID)):
        rig.run(gpu, 100 + gpu, shape.format(uid=uid.replace("-", "_"), hex=HEX), {"HOSTNAME": "trainer-0"}, uid=0)
    assert rig.look().jobs() == {("kubernetes", UID): ["0", "1"], ("kubernetes", OTHER_UID): ["2"]}
    assert (rig.holder()["name"], rig.holder()["user"]) == ("trainer-0", "")
    assert rig.up("jobs_kubelet") is None


def test_ray_names_the_job_where_no_cgroup_does(rig: Rig) -> None:
    for gpu, job in enumerate(("01000000", "01000000", "02000000", "ffffffff")):
        rig.run(gpu, 100 + gpu, "/system.slice/ray.service", {"RAY_JOB_ID": job}, session=9)
    jobs = {("ray", "01000000@1000"): ["0", "1"], ("ray", "02000000@1000"): ["2"], ("session", "9@1000"): ["3"]}
    assert rig.look().jobs() == jobs


def test_the_workers_of_a_ray_node_with_resource_isolation_are_no_unknown_cgroup(rig: Rig) -> None:
    for gpu in range(2):
        rig.run(gpu, 100 + gpu, "/ray-node_b9e4de76/user/workers", {"RAY_JOB_ID": "01000000"})
    assert rig.look().jobs() == {("ray", "01000000@1000"): ["0", "1"]}
    assert rig.problems() == {}


def test_jobs_of_two_ray_clusters_are_two_though_each_cluster_numbers_them_alike(rig: Rig) -> None:
    places = (f"/system.slice/docker-{HEX}.scope", "/system.slice/team-ray.service", LOGIN, LOGIN)
    for gpu, cgroup in enumerate(places):
        rig.run(gpu, 100 + gpu, cgroup, {"RAY_JOB_ID": "01000000"}, uid=1000 + gpu % 2)
    clusters = (HEX[:12], "team-ray.service@1001", "1000", "1001")
    assert rig.look().jobs() == {("ray", f"01000000@{each}"): [str(gpu)] for gpu, each in enumerate(clusters)}
    assert rig.holder(0)["user"] == "", "numbers of a container are no users of the node"


def test_the_start_of_a_process_is_by_the_clock_as_it_is_set_when_it_is_found(rig: Rig) -> None:
    rig.run(0, 100, SLURM_V2.format(job=1, task=0), {}, started=50)
    rig.look()
    (rig.proc.root / "stat").write_text(f"btime {BOOT + 3600}\n")
    rig.run(1, 101, SLURM_V2.format(job=2, task=0), {}, started=60)
    assert rig.look().value("coldplate_job_start_timestamp_seconds", job_id="2") == BOOT + 3660
    (rig.proc.root / "stat").unlink()
    rig.run(2, 102, SLURM_V2.format(job=3, task=0), {}, started=60)
    assert rig.look().value("coldplate_job_start_timestamp_seconds", job_id="3") is None


def test_the_ranks_of_a_torchrun_are_one_job_though_each_leads_its_own_session(rig: Rig) -> None:
    rig.proc.process(50, LOGIN, {}, command="torchrun", session=40, parent=40)
    for gpu in range(4):
        rig.run(gpu, 100 + gpu, LOGIN, {}, parent=50, session=100 + gpu, started=6000 + gpu)
    assert rig.look().jobs() == {("session", "40@1000"): ["0", "1", "2", "3"]}
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="40@1000") == BOOT + 6000
    assert rig.holder()["user"] == "alice"


@pytest.mark.parametrize("host", ["sshd", "systemd", "tmux: server", None])
def test_two_programs_of_two_shells_or_of_one_that_hosts_others_are_two_jobs(rig: Rig, host: str | None) -> None:
    if host is not None:
        rig.proc.process(50, LOGIN, {}, command=host, session=50)
    for gpu in range(2):
        rig.run(gpu, 100 + gpu, LOGIN, {}, parent=50 if host else 100 + gpu, session=100 + gpu)
    assert set(rig.look().jobs()) == {("session", "100@1000"), ("session", "101@1000")}


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (("kubernetes", "cgroup"), {("session", "9@1000")}),
        (("ray",), {("ray", "01000000@1000")}),
        (("kubernetes",), set()),
    ],
)
def test_only_the_configured_sources_are_used(rig: Rig, sources, expected) -> None:
    rig.open(*sources)
    env = {"RAY_JOB_ID": "01000000", "SLURM_JOB_ID": "4711"}
    rig.run(0, 100, SLURM_V2.format(job=4711, task=0), env, session=9)
    assert set(rig.look().jobs()) == expected


SERVERS = ("nvidia-cuda-mps", "nv-hostengine", "nvidia-persiste", "dcgm-exporter")


@pytest.mark.parametrize("command", SERVERS)
@pytest.mark.parametrize(
    ("cgroup", "scheduler"),
    [
        (SLURM_V2.format(job=9, task=0), "slurm"),
        (CRIO.format(uid=UID.replace("-", "_"), hex=HEX), "kubernetes"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/nvidia-mps.service", "systemd"),
        ("/system.slice/jupyter.service/nvidia-mps.service", "systemd"),
        (LOGIN, "session"),
    ],
)
def test_no_job_is_hidden_by_the_name_of_its_program(rig: Rig, command: str, cgroup: str, scheduler: str) -> None:
    rig.run(0, 100, cgroup, {}, command=command, uid=1000)
    assert rig.look().holder()["scheduler"] == scheduler


@pytest.mark.parametrize(
    ("cgroup", "uid"),
    [
        ("/system.slice/nvidia-dcgm.service", 998),
        ("/system.slice/nvidia-cuda-mps-control.service", 1000),  # the server runs as the user whom it serves
        (f"/system.slice/docker-{HEX}.scope", 0),
        (LOGIN, 0),
    ],
)
def test_a_server_that_is_roots_or_in_a_unit_for_it_belongs_to_no_job(rig: Rig, cgroup: str, uid: int) -> None:
    for gpu, command in enumerate(SERVERS):
        rig.run(gpu, 100 + gpu, cgroup, {}, command=command, uid=uid)
    assert rig.look().jobs() == {}


def test_a_server_in_a_pod_or_a_login_gives_way_to_what_its_user_runs_there(rig: Rig) -> None:
    pod = CRIO.format(uid=UID.replace("-", "_"), hex=HEX)
    rig.proc.process(90, pod, {}, command="nvidia-cuda-mps", uid=0)
    rig.proc.process(91, LOGIN, {}, command="nvidia-cuda-mps", session=91)
    rig.proc.process(100, CRIO.format(uid=OTHER_UID.replace("-", "_"), hex=HEX), {})
    rig.proc.process(101, SLURM_V2.format(job=9, task=0), {})
    rig.proc.process(102, SLURM_V2.format(job=9, task=0), {}, uid=1001)
    for gpu, pids in enumerate(((90, 100), (91, 101), (91, 102))):
        rig.put(gpu, *pids)
    assert rig.look().jobs() == {("kubernetes", OTHER_UID): ["0"], ("slurm", "9"): ["1"], ("", ""): ["2"]}


def test_a_process_on_several_gpus_holds_all_counts_once_and_goes_when_it_ends(rig: Rig) -> None:
    rig.proc.process(100, SLURM_V2.format(job=4711, task=0), {})
    for gpu in range(3):
        rig.put(gpu, 100)
    assert rig.look().value("coldplate_job_gpus", job_id="4711") == 3
    assert rig.value("coldplate_job_processes", job_id="4711") == 1
    rig.running = dict.fromkeys(rig.gpus, ())
    assert rig.look().jobs() == {}
    assert (rig.rows("coldplate_job_info"), list(rig.sample.gaps), rig.up("jobs_procfs")) == ([], [], None)


def test_a_known_process_costs_one_read_and_no_other_process_is_read(rig: Rig) -> None:
    asked: list[str] = []

    def read(path: str, most: int) -> bytes:
        asked.append(path)
        with open(path, "rb") as file:
            return file.read(most)

    rig.open(read=read)
    for pid in range(100, 116):
        rig.run(pid % 4, pid, SLURM_V2.format(job=4711, task=pid), {})
    for pid in range(1000, 1100):
        rig.proc.process(pid, "/system.slice/other.service", {})
    first = [reading.series for reading in rig.look().sample.readings]
    assert not any(f"/proc/{pid}/" in path for path in asked for pid in range(1000, 1100))
    asked.clear()
    second = [reading.series for reading in rig.look().sample.readings]
    assert all(one is other for one, other in zip(first, second, strict=True))
    assert sorted(asked) == [f"{rig.proc.root}/{pid}/stat" for pid in range(100, 116)]


# The energy of a job: only what its GPUs used while it had them to itself.
ENERGY = "coldplate_job_energy_joules_total"


@pytest.fixture
def busy(rig: Rig) -> Rig:
    """Job 1 on GPUs 0 and 1, job 2 on GPU 2."""
    for gpu, job in enumerate((1, 1, 2)):
        rig.run(gpu, 100 + gpu, SLURM.format(job), {})
    return rig


def test_energy_is_what_the_gpus_of_the_job_used_since_it_was_seen(busy: Rig) -> None:
    assert busy.look().value(ENERGY, job_id="1") is None
    assert "slurm job 1" in busy.gap(ENERGY).detail
    busy.meter(g0=1000.0, g1=5000.0, g2=7.0)
    assert busy.look().value(ENERGY, job_id="1") == 0.0
    busy.meter(g0=1100.0, g1=5300.0, g2=8.5).look()
    assert (busy.value(ENERGY, job_id="1"), busy.value(ENERGY, job_id="2")) == (400.0, 1.5)
    busy.meter(g1=5310.0).look()
    busy.meter(g0=1200.0, g1=5320.0).look()
    assert busy.value(ENERGY, job_id="1") == 520.0, "a counter that was missing for a look shows it later"
    for joules in (3.0, 5.0):
        busy.meter(g0=joules, g1=5320.0).look()
    assert busy.value(ENERGY, job_id="1") == 522.0, "one that falls takes nothing away"


def test_the_energy_of_a_shared_or_divided_gpu_is_attributed_to_no_job(busy: Rig) -> None:
    busy.meter(g0=1000.0, g1=5000.0, g2=7.0).look()
    busy.run(0, 200, SLURM.format(2), {})
    busy.meter(g0=1100.0, g1=5300.0, g2=8.0).look()
    busy.meter(g0=1900.0, g1=5400.0, g2=9.0)
    assert busy.look().value(ENERGY, job_id="1") == 400.0
    assert busy.value(ENERGY, job_id="2") == 2.0
    busy.proc.process(50, SLURM.format(3), {})
    busy.put(2, 50, instance=5)
    for joules in (1000.0, 1100.0):
        busy.meter(g2=joules).look()
    assert busy.value(ENERGY, job_id="2") == 2.0


def test_a_gpu_that_passes_to_another_job_gives_neither_what_it_used_in_between(busy: Rig) -> None:
    busy.meter(g0=1000.0, g1=0.0, g2=0.0).look()
    busy.running[busy.gpus[0]] = ()
    busy.put(0, 102)
    busy.meter(g0=1500.0, g1=0.0, g2=0.0).look()
    busy.meter(g0=1510.0, g1=0.0, g2=0.0).look()
    assert (busy.value(ENERGY, job_id="1"), busy.value(ENERGY, job_id="2")) == (0.0, 10.0)


def test_a_job_between_two_steps_keeps_counting_and_keeps_its_start(rig: Rig) -> None:
    rig.run(0, 100, SLURM.format(1), {}, started=10)
    for joules in (0.0, 50.0):
        rig.meter(g0=joules).look()
    began = rig.value("coldplate_job_start_timestamp_seconds", job_id="1")
    rig.running[rig.gpus[0]] = ()
    rig.meter(g0=60.0)
    assert rig.look().value(ENERGY, job_id="1") is None
    rig.run(0, 101, SLURM.format(1), {}, started=90)
    for joules in (70.0, 75.0):
        rig.meter(g0=joules).look()
    assert rig.value(ENERGY, job_id="1") == 55.0
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="1") == began


def test_a_job_that_was_gone_for_long_is_forgotten() -> None:
    ledger, gpu, key = JobEnergy(), Gpu("0", "a"), ("slurm", "1")
    for mono, joules in ((0.0, 10.0), (15.0, 20.0)):
        ledger.add_energy({gpu: key}, {gpu: joules})
        ledger.remember_jobs({key: 5.0}, mono)
    assert (ledger.totals.get(key), ledger.started.get(key)) == (10.0, 5.0)
    ledger.add_energy({}, {})
    ledger.remember_jobs({}, 1000.0)
    assert (ledger.totals.get(key), ledger.started.get(key)) == (None, None)


GPU, KEYS = Gpu("0", "a"), [("slurm", "1"), ("slurm", "2")]
TURN = st.tuples(st.sampled_from([None, *KEYS]), st.one_of(st.none(), st.floats(0, 1000)), st.booleans())


@given(st.lists(TURN, max_size=30))
def test_jobs_never_get_more_than_the_gpu_used_and_never_lose_any(turns) -> None:
    ledger, counter, totals = JobEnergy(), 0.0, dict.fromkeys(KEYS, 0.0)
    for mono, (owner, used, shown) in enumerate(turns):
        counter += used or 0.0
        ledger.add_energy({GPU: owner} if owner else {}, {GPU: counter} if shown else {})
        ledger.remember_jobs(dict.fromkeys(KEYS), float(mono))
        for key in KEYS:
            assert (ledger.totals.get(key) or 0.0) >= totals[key]
            totals[key] = ledger.totals.get(key) or 0.0
    assert sum(totals.values()) <= counter * (1 + 1e-9)
