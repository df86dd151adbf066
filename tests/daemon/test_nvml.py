"""The daemon on a driver library: a stand-in written in C, loaded through the real binding."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.daemon.standin import FAST, Node
from tests.fakes.nvml import build

ALL = dict.fromkeys("01234567", 1.0)


def falls(before, after) -> list[object]:
    return [key for key, value in after.items() if key[0].endswith("_total") and value < before.get(key, -1)]


def test_eight_gpus_are_read_with_seven_calls_each(start, library: Path, tmp_path: Path) -> None:
    node = Node(start, library, tmp_path, "sampling: {fast: 250ms, slow: 30s, cold: 60s}\n")
    node.until_up(ALL, 5)
    time.sleep(1)
    before = node.daemon.page()
    time.sleep(3)
    after = node.daemon.page()
    calls = ("coldplate_driver_calls_total", (("backend", "nvml"),))
    ticks = ("coldplate_ticks_total", ())
    assert (after[calls] - before[calls]) / (after[ticks] - before[ticks]) <= 7 * 8
    assert len(node.daemon.family("coldplate_gpu_sm_active_ratio")) == 8
    assert falls(before, after) == []


@pytest.mark.parametrize("fault", ["lost", "hang"])
def test_one_sick_gpu_leaves_the_others_and_comes_back(start, library: Path, tmp_path: Path, fault: str) -> None:
    node = Node(start, library, tmp_path)
    node.until_up(ALL, 5)
    node.command(f"{fault} 3")
    assert node.until_up({**ALL, "3": 0.0}, 6) < 5
    assert set(node.daemon.family("coldplate_gpu_power_watts")) == set("0124567")
    assert "3" in node.daemon.family("coldplate_gpu_info")
    ages = node.daemon.family("coldplate_gpu_sample_age_seconds")
    assert max(age for gpu, age in ages.items() if gpu != "3") < 0.5
    node.command()
    node.until_up(ALL, 5)


@pytest.mark.parametrize("fault", ["unloaded", "mismatch", "segv"])
def test_a_driver_that_goes_and_comes_back_is_read_again_and_no_counter_falls(
    start, library: Path, tmp_path: Path, fault: str
) -> None:
    node = Node(start, library, tmp_path)
    node.until_up(ALL, 5)
    time.sleep(1)
    before = node.daemon.page()
    node.command(fault)
    node.daemon.until("all are down", lambda: node.up() == dict.fromkeys("01234567", 0.0), 8)
    assert node.daemon.family("coldplate_node_memory_total_bytes", "")  # the host goes on
    node.command("reset-counters")
    assert node.until_up(ALL, 10) < 10
    for _ in range(4):
        after = node.daemon.page()
        assert falls(before, after) == []
        before = {**before, **after}
        time.sleep(0.25)
    energy = node.daemon.family("coldplate_gpu_energy_joules_total")
    assert len(energy) == 8


def test_an_xid_is_counted_from_zero(start, library: Path, tmp_path: Path) -> None:
    node = Node(start, library, tmp_path)
    node.until_up(ALL, 5)
    key = ("coldplate_gpu_xid_errors_total", "79")

    def count() -> float:
        return sum(
            value for (name, labels), value in node.daemon.page().items() if (name, dict(labels).get("xid")) == key
        )

    assert count() == 0
    node.command("xid 2 79")
    node.daemon.until("the XID is counted", lambda: count() == 1, 5)


def test_a_gpu_that_is_missing_after_a_restart_is_seen(start, library: Path, tmp_path: Path) -> None:
    node = Node(start, library, tmp_path)
    node.until_up(ALL, 5)
    assert node.daemon.stop() == 0
    node.command("count 7")
    environment = {"LD_LIBRARY_PATH": str(library), build.CONTROL: str(node.control)}
    later = start("--backend", "nvml", config=FAST + f"state_dir: {node.state}\n", environment=environment)
    later.until("GPU 7 is missing", lambda: later.family("coldplate_gpu_up") == {**ALL, "7": 0.0}, 5)
    assert later.family("coldplate_gpus_expected", "")[""] == 8
    assert "GPU missing" in later.log.read_text()


def test_a_driver_that_comes_after_the_agent_is_found(start, library: Path, tmp_path: Path) -> None:
    control = tmp_path / "control"
    build.command(control, "unloaded")
    environment = {"LD_LIBRARY_PATH": str(library), build.CONTROL: str(control)}
    daemon = start("--backend", "nvml", config=FAST, environment=environment)
    assert not daemon.family("coldplate_gpu_up")
    assert "the NVIDIA driver is not loaded" in daemon.log.read_text()
    build.command(control)
    daemon.until("the GPUs are there", lambda: daemon.family("coldplate_gpu_up") == ALL, 10)


def test_a_gpu_is_attributed_to_the_job_of_the_process_that_computes_on_it(
    start, library: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "llama", "SLURM_JOB_PARTITION": "gpu"}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as rank:
        # The test's own cgroup is no scheduler's: such an environment is believed only where it is told to be.
        node = Node(start, library, tmp_path, FAST + "jobs: {trust_environment: [slurm]}\n")
        node.command(f"process 2 {rank.pid}", f"process 3 {rank.pid}")

        def jobs() -> list[dict[str, str]]:
            return [dict(labels) for name, labels in node.daemon.page() if name == "coldplate_gpu_job_info"]

        node.daemon.until("two GPUs with a job", lambda: len(jobs()) == 2, 20)
        assert {(job["gpu"], job["scheduler"], job["job_id"], job["name"]) for job in jobs()} == {
            ("2", "slurm", "4711", "llama"),
            ("3", "slurm", "4711", "llama"),
        }
        assert node.daemon.family("coldplate_job_gpus", "job_id") == {"4711": 2.0}
        rank.stdin.close()
        node.command("process 0 1")  # a process that is no job: the init of this machine, in its own cgroup
        node.daemon.until("the job's end", lambda: not any(job["job_id"] == "4711" for job in jobs()), 20)
