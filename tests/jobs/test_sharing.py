"""GPUs that several jobs hold: marked, and never more than one series for a GPU, so that no join breaks."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.backends.jobs.job_files import scheduler_of
from tests.jobs.rig import LOGIN, SLURM, Rig

MEMORY, SM = "coldplate_gpu_job_memory_used_bytes", "coldplate_gpu_job_sm_ratio"


def start(rig: Rig, gpu: int, pid: int, job: int, instance: int | None = None) -> None:
    rig.proc.process(pid, SLURM.format(job), {})
    rig.put(gpu, pid, instance=instance)


def test_a_shared_gpu_has_one_series_without_a_job_and_its_jobs_have_their_own(rig: Rig) -> None:
    """The imbalance rules select mig="0": a shared GPU must not appear there."""
    start(rig, 0, 100, 1)
    start(rig, 0, 101, 2)
    start(rig, 1, 102, 1)
    assert (rig.look().holder(0)["shared"], rig.holder(0)["job_id"], rig.holder(0)["mig"]) == ("true", "", "")
    assert (rig.holder(1)["shared"], rig.holder(1)["job_id"], rig.holder(1)["mig"]) == ("false", "1", "0")
    rows = rig.rows("coldplate_gpu_shared_job_info")
    assert [(row["gpu"], row["job_id"], row["mig"]) for row in rows] == [("0", "1", "0"), ("0", "2", "0")]


def test_the_memory_and_time_of_a_shared_gpu_are_divided_among_its_jobs(rig: Rig) -> None:
    for pid, job, sm in ((100, 1, 0.25), (101, 1, 0.5), (102, 2, None)):
        rig.proc.process(pid, SLURM.format(job), {})
        rig.put(0, pid, memory=pid * 2**20, sm=sm)
    assert rig.look().value(MEMORY, gpu="0", job_id="1") == 201 * 2**20
    assert rig.value(MEMORY, gpu="0", job_id="2") == 102 * 2**20
    assert rig.value(SM, gpu="0", job_id="1") == 0.75
    assert [row["job_id"] for row in rig.rows(SM)] == ["1"]
    rig.proc.process(103, SLURM.format(1), {})
    rig.put(0, 103, memory=None)
    assert [row["job_id"] for row in rig.look().rows(MEMORY)] == ["2"], "the driver does not say it of each process"


def test_mig_instances_differ_and_a_process_without_one_has_not_the_whole_gpu(rig: Rig) -> None:
    start(rig, 0, 100, 1, instance=3)
    start(rig, 0, 101, 2, instance=4)
    start(rig, 0, 102, 3, instance=4)
    rig.put(0, 100, instance=4, memory=2**20)
    start(rig, 1, 103, 4)
    for gpu in (0, 1):
        rig.divide(gpu, a=3, b=4)
    start(rig, 2, 104, 5)
    rig.run(2, 105, LOGIN, {}, session=9)
    rig.look()
    held = {row["mig"]: (row["job_id"], row["shared"]) for row in rig.holders(0)}
    assert held == {"3": ("1", "false"), "4": ("", "true")}
    assert rig.value("coldplate_job_gpus", job_id="1") == 1
    used = [rig.value(MEMORY, mig=mig, job_id=job) for mig, job in (("3", "1"), ("4", "1"), ("4", "2"))]
    assert used == [2**30, 2**20, 2**30], "of the processes of each instance"
    assert [(row["job_id"], row["mig"]) for row in rig.holders(1)] == [("4", "")]
    assert rig.holder(2)["shared"] == "true", "a debugger shares the GPU of the job beside it"


def test_at_most_256_processes_and_16_jobs_of_a_gpu_count_and_the_rest_is_a_problem(rig: Rig) -> None:
    rig.put(0, *range(10_000, 10_300))
    for job in range(20):
        start(rig, 1, 100 + job, 1000 + job)
    assert len(rig.look().rows("coldplate_gpu_shared_job_info")) == 16
    assert rig.problems() == {"too_many": 2, "vanished": 256}


PLACEMENT = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 4), st.one_of(st.none(), st.integers(1, 3))), max_size=12
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PLACEMENT)
def test_there_is_at_most_one_holder_of_anything(tmp_path: Path, placement) -> None:
    rig = Rig(tmp_path)
    for number, (gpu, job, instance) in enumerate(placement):
        start(rig, gpu, 100 + number, job, instance)
    rig.look()
    rows = rig.rows("coldplate_gpu_job_info")
    assert len({(row["gpu"], row["mig"]) for row in rows}) == len(rows)
    whole = [(gpu, instance) for gpu, _, instance in placement if instance is None]
    assert {row["gpu"] for row in rows} == {str(gpu) for gpu, _, _ in placement}
    for gpu, _ in whole:
        jobs = {job for on, job, instance in placement if on == gpu and instance is None}
        row = next(row for row in rows if row["gpu"] == str(gpu) and row["mig"] in ("0", ""))
        assert (row["shared"], row["job_id"]) == (("true", "") if len(jobs) > 1 else ("false", str(jobs.pop())))


# Files of a prolog: dcgm-exporter's directory and /run/gpustat.
def mapped(rig: Rig, *contents: str) -> None:
    """The files that dcgm-exporter's prolog writes for GPU 0, 1 and so on."""
    rig.mapping.mkdir()
    for index, content in enumerate(contents):
        (rig.mapping / str(index)).write_text(content)


def test_dcgm_exporters_files_name_the_jobs_of_gpus_by_index(rig: Rig) -> None:
    mapped(rig, "4711\n", "4711\n4712\n", "")
    (rig.mapping / "readme").mkdir()
    assert (rig.look().holder(0)["scheduler"], rig.holder(0)["job_id"]) == ("slurm", "4711")
    assert rig.holder(1)["shared"] == "true"
    assert rig.holders(2) == []
    assert rig.up("jobs_mapping") == 1
    assert rig.value("coldplate_job_processes", job_id="4711") == 0
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="4711") is None


def test_a_file_of_an_instance_names_the_job_of_that_instance(rig: Rig) -> None:
    rig.divide(0, a=7, b=9)
    mapped(rig)
    for name, job in (("0.7", "4711"), ("0.9", "4712"), ("0.3", "4713"), ("1", "4714"), ("7.1", "4715")):
        (rig.mapping / name).write_text(f"{job}\n")
    rig.look().look()
    held = {(row["gpu"], row["mig"]): row["job_id"] for row in rig.rows("coldplate_gpu_job_info")}
    assert held == {("0", "7"): "4711", ("0", "9"): "4712", ("1", "0"): "4714"}
    assert rig.problems() == {"unknown_device": 2}, "an instance and a GPU that are not there; each counts once"


@pytest.mark.parametrize(("by_minor", "gpus"), [(False, (0, 1)), (True, (3, 2))])
def test_the_numbers_of_files_are_indices_or_those_of_device_files(rig: Rig, by_minor: bool, gpus) -> None:
    for index in range(4):
        rig.minor(index, 3 - index)
    rig.divide(gpus[1], a=5)
    mapped(rig, "4711\n")
    (rig.mapping / "1.5").write_text("4712\n")
    rig.open(mapping_by_minor=by_minor)
    assert rig.look().jobs() == {("slurm", "4711"): [str(gpus[0])], ("slurm", "4712"): [str(gpus[1])]}
    assert (rig.holder(gpus[1])["mig"], rig.problems()) == ("5", {})


def test_the_variable_of_a_step_decides_where_files_name_other_gpus(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The prolog wrote the numbers of device files, and the key says that they are indices."""
    for index in range(4):
        rig.minor(index, 3 - index)
    mapped(rig, "4711\n", "4712\n")
    step = SLURM.format(4711).replace("step_0", "step_batch")
    rig.proc.process(100, step, {"SLURM_JOB_ID": "4711", "SLURM_JOB_GPUS": "0"})
    folder = tmp_path / f"cgroup{step}"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("100\n")
    rig.open(cgroups=str(tmp_path / "cgroup"))
    assert rig.look().look().jobs() == {("slurm", "4711"): ["3"], ("slurm", "4712"): ["1"]}
    assert rig.problems() == {"mapping": 1}
    assert "jobs.mapping_names" in caplog.text


def test_what_is_not_a_file_or_cannot_be_read_is_reported_and_costs_nothing_else(rig: Rig) -> None:
    mapped(rig, "4711\n")
    os.mkfifo(rig.mapping / "1")
    (rig.mapping / "2").symlink_to("/dev/zero")
    (rig.mapping / "3").symlink_to("3")
    assert rig.look().jobs() == {("slurm", "4711"): ["0"]}
    assert (rig.up("jobs_mapping"), rig.problems()) == (0, {"mapping": 3})


def test_gpustat_names_job_and_user_by_index_uuid_and_mig_uuid(rig: Rig) -> None:
    rig.gpustat.mkdir()
    rig.divide(3, slice=7)
    for name in ("0", rig.gpus[0].uuid, "MIG-slice"):
        (rig.gpustat / name).write_text("45916256 1001\n")
    assert rig.look().holder(0) | {"job_id": "45916256", "user": "bob", "shared": "false"} == rig.holder(0)
    assert rig.holder(3)["mig"] == "7"
    assert rig.problems() == {}


def test_scheduled_processes_precede_a_mapping_file_and_others_belong_to_its_job(rig: Rig) -> None:
    mapped(rig, "1\n", "4711\n")
    (rig.mapping / "9").write_text("4712\n")
    rig.run(0, 100, SLURM.format(2), {})
    rig.run(1, 101, LOGIN, {})
    assert list(rig.look().jobs()) == [("slurm", "2"), ("slurm", "4711")]
    assert rig.value("coldplate_job_processes", job_id="4711") == 1
    assert rig.problems() == {"unknown_device": 1}, "a file of no GPU"
    rig.open("slurm", "cgroup")  # no file is read
    assert set(rig.look().jobs()) == {("slurm", "2"), ("session", "101@1000")}


def test_a_gpu_that_the_job_does_not_use_yet_is_one_with_those_that_it_uses(rig: Rig) -> None:
    rig.gpustat.mkdir()
    (rig.gpustat / "1").write_text("4711 1000\n")
    rig.run(0, 100, SLURM.format(4711), {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "n"})
    assert rig.look().jobs() == {("slurm", "4711"): ["0", "1"]}
    assert rig.holder(1)["name"] == "n"


@pytest.mark.parametrize(
    ("job", "scheduler"),
    [("4711", "slurm"), ("4711_3", "slurm"), ("4711.head", "pbs"), ("job-a", "mapping"), (".x", "mapping")],
)
def test_the_shape_of_an_id_shows_its_scheduler(job: str, scheduler: str) -> None:
    assert scheduler_of(job) == scheduler


def test_what_is_not_an_id_of_a_job_is_reported_and_becomes_no_label(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    mapped(rig, '4711"}evil\n', "9" * 400 + "\n", "12\n")
    assert rig.look().jobs() == {("slurm", "12"): ["2"]}
    assert rig.problems() == {"foul_id": 2}
    assert "is not a job id" in caplog.text
