"""Files of a prolog: dcgm-exporter's directory and /run/gpustat."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.jobs.job_files import parse, scheduler_of
from tests.jobs.rig import Rig

SLURM = "/system.slice/slurmstepd.scope/job_{}/step_0/user/task_0"
LOGIN = "/user.slice/user-1000.slice/session-3.scope"


def mapped(rig: Rig, *contents: str) -> None:
    """The files that dcgm-exporter's prolog writes for GPU 0, 1 and so on."""
    rig.mapping.mkdir()
    for index, content in enumerate(contents):
        (rig.mapping / str(index)).write_text(content)


def test_dcgm_exporters_files_name_the_jobs_of_gpus_by_index(rig: Rig) -> None:
    mapped(rig, "4711\n", "4711\n4712\n", "")
    (rig.mapping / "readme").mkdir()
    rig.look()
    assert (rig.holder(0)["scheduler"], rig.holder(0)["job_id"]) == ("slurm", "4711")
    assert rig.holder(1)["shared"] == "true"
    assert rig.holders(2) == []
    assert rig.up("jobs_mapping") == 1
    assert rig.value("coldplate_job_processes", job_id="4711") == 0
    assert rig.value("coldplate_job_start_timestamp_seconds", job_id="4711") is None


def test_what_is_not_a_file_in_the_directory_is_reported_and_costs_nothing_else(rig: Rig) -> None:
    mapped(rig, "4711\n")
    os.mkfifo(rig.mapping / "1")
    (rig.mapping / "2").symlink_to("/dev/zero")
    rig.look()
    assert rig.holder(0)["job_id"] == "4711"
    assert (rig.holders(1), rig.holders(2)) == ([], [])
    assert rig.up("jobs_mapping") == 0


def test_gpustat_names_job_and_user_by_index_uuid_and_mig_uuid(rig: Rig) -> None:
    rig.gpustat.mkdir()
    rig.divide(3, slice=7)
    for name in ("0", rig.gpus[0].uuid, "MIG-slice"):
        (rig.gpustat / name).write_text("45916256 1001\n")
    rig.look()
    assert rig.holder(0) | {"job_id": "45916256", "user": "bob", "shared": "false"} == rig.holder(0)
    assert rig.holder(3)["mig"] == "7"
    assert rig.problems() == {}


def test_processes_of_a_scheduler_go_before_a_file_that_was_left_behind(rig: Rig) -> None:
    mapped(rig, "1\n")
    rig.run(0, 100, SLURM.format(2), {})
    rig.look()
    assert list(rig.jobs()) == [("slurm", "2")]


def test_a_process_of_no_scheduler_on_a_mapped_gpu_belongs_to_the_mapped_job(rig: Rig) -> None:
    mapped(rig, "4711\n")
    rig.run(0, 100, LOGIN, {})
    rig.look()
    assert list(rig.jobs()) == [("slurm", "4711")]
    assert rig.value("coldplate_job_processes", job_id="4711") == 1


def test_a_gpu_that_the_job_does_not_use_yet_is_one_with_those_that_it_uses(rig: Rig) -> None:
    rig.gpustat.mkdir()
    (rig.gpustat / "1").write_text("4711 1000\n")
    rig.run(0, 100, SLURM.format(4711), {"SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "n"})
    rig.look()
    assert rig.jobs() == {("slurm", "4711"): ["0", "1"]}
    assert rig.holder(1)["name"] == "n"


def test_a_file_of_no_gpu_is_counted(rig: Rig) -> None:
    rig.mapping.mkdir()
    (rig.mapping / "9").write_text("4711\n")
    rig.look()
    assert (rig.jobs(), rig.problems()) == ({}, {"unknown_device": 1})


def test_a_file_that_cannot_be_read_is_reported_and_the_others_count(rig: Rig) -> None:
    rig.mapping.mkdir()
    (rig.mapping / "0").symlink_to("0")
    (rig.mapping / "1").write_text("4711\n")
    rig.look()
    assert list(rig.jobs()) == [("slurm", "4711")]
    assert (rig.up("jobs_mapping"), rig.problems()) == (0, {"mapping": 1})


def test_without_the_source_no_file_is_read(rig: Rig) -> None:
    mapped(rig, "4711\n")
    rig.open("slurm", "cgroup")
    rig.look()
    assert rig.jobs() == {}


@pytest.mark.parametrize(
    ("job", "scheduler"),
    [("4711", "slurm"), ("4711_3", "slurm"), ("4711.head", "pbs"), ("job-a", "mapping"), (".x", "mapping")],
)
def test_the_shape_of_an_id_shows_its_scheduler(job: str, scheduler: str) -> None:
    assert scheduler_of(job) == scheduler


@given(st.binary(max_size=500))
def test_any_content_is_read(content: bytes) -> None:
    for entry in parse("/x/0", "0", content):
        assert entry.job
        assert scheduler_of(entry.job)


def test_what_is_not_an_id_of_a_job_is_reported_and_becomes_no_label(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    mapped(rig, '4711"}evil\n', "9" * 400 + "\n", "12\n")
    rig.look()
    assert rig.jobs() == {("slurm", "12"): ["2"]}
    assert rig.problems() == {"foul_id": 2}
    assert "is not a job id" in caplog.text
