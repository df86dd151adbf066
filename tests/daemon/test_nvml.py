"""The daemon on a driver library: a stand-in written in C, loaded through the real binding."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.conftest import Start
from tests.daemon.standin import FAST, Node

ALL = dict.fromkeys("01234567", 1.0)
DOWN = dict.fromkeys(ALL, 0.0)
NOTICED, CURED = 12.0, 20.0
"""Bounds of waiting, in seconds: twice and more what the agent promises, for a machine that is busy."""


@pytest.fixture(scope="module")
def shared(start_shared: Start, library: Path, folder: Path) -> Node:
    """One daemon for all tests whose faults can be cured."""
    # The test's own cgroup is no scheduler's: such an environment is believed only where the configuration says so.
    return Node(start_shared, library, folder, FAST + "jobs: {trust_environment: [slurm]}\n")


@pytest.fixture
def node(shared: Node) -> Iterator[Node]:
    """The daemon with eight healthy GPUs, before and after the test."""
    shared.until_up(ALL, CURED)
    yield shared
    shared.command()
    shared.until_up(ALL, CURED)


def falls(before, after) -> list[object]:
    return [key for key, value in after.items() if key[0].endswith("_total") and value < before.get(key, -1)]


def test_eight_gpus_are_read_with_seven_calls_each(start, library: Path, tmp_path: Path) -> None:
    node = Node(start, library, tmp_path, "sampling: {fast: 250ms, slow: 30s, cold: 60s}\n")
    node.until_up(ALL, NOTICED)
    calls = ("coldplate_driver_calls_total", (("backend", "nvml"),))
    ticks = ("coldplate_ticks_total", ())
    first = node.daemon.page()[ticks]
    node.daemon.until("all lanes were read", lambda: node.daemon.page()[ticks] >= first + 4, NOTICED)
    before = node.daemon.page()
    node.daemon.until("eight ticks", lambda: node.daemon.page()[ticks] >= before[ticks] + 8, NOTICED)
    after = node.daemon.page()
    assert (after[calls] - before[calls]) / (after[ticks] - before[ticks]) <= 7 * 8
    assert len(node.daemon.family("coldplate_gpu_sm_active_ratio")) == 8
    assert falls(before, after) == []


@pytest.mark.parametrize("fault", ["lost", "hang"])
def test_one_sick_gpu_leaves_the_others_and_comes_back(node: Node, fault: str) -> None:
    node.command(f"{fault} 3")
    node.until_up({**ALL, "3": 0.0}, NOTICED)
    assert set(node.daemon.family("coldplate_gpu_power_watts")) == set("0124567")
    assert "3" in node.daemon.family("coldplate_gpu_info")
    ages = node.daemon.family("coldplate_gpu_sample_age_seconds")
    assert max(age for gpu, age in ages.items() if gpu != "3") < 1.5
    assert node.daemon.get("/-/ready")


def test_an_xid_is_counted_from_zero(node: Node) -> None:
    key = ("coldplate_gpu_xid_errors_total", "79")

    def count() -> float:
        return sum(
            value for (name, labels), value in node.daemon.page().items() if (name, dict(labels).get("xid")) == key
        )

    assert count() == 0
    node.command("xid 2 79")
    node.daemon.until("the XID is counted", lambda: count() == 1, NOTICED)


def test_a_gpu_is_attributed_to_the_job_of_the_process_that_computes_on_it(node: Node) -> None:
    environment = {**os.environ, "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "llama", "SLURM_JOB_PARTITION": "gpu"}
    with subprocess.Popen(["sh", "-c", "read end; exit"], stdin=subprocess.PIPE, env=environment) as rank:
        node.command(f"process 2 {rank.pid}", f"process 3 {rank.pid}")

        def jobs() -> list[dict[str, str]]:
            return [dict(labels) for name, labels in node.daemon.page() if name == "coldplate_gpu_job_info"]

        node.daemon.until("two GPUs with a job", lambda: len(jobs()) == 2, CURED)
        assert {(job["gpu"], job["scheduler"], job["job_id"], job["name"]) for job in jobs()} == {
            ("2", "slurm", "4711", "llama"),
            ("3", "slurm", "4711", "llama"),
        }
        assert node.daemon.family("coldplate_job_gpus", "job_id") == {"4711": 2.0}
        assert rank.stdin is not None
        rank.stdin.close()
        node.command("process 0 1")  # a process that is no job: the init of this machine, in its own cgroup
        node.daemon.until("the job's end", lambda: not any(job["job_id"] == "4711" for job in jobs()), CURED)


def test_a_worker_that_crashes_is_replaced_and_no_counter_falls(node: Node) -> None:
    before = node.daemon.page()
    node.command("segv")
    node.until_up(DOWN, NOTICED)
    assert node.daemon.family("coldplate_node_memory_total_bytes", "")  # the host goes on
    node.command("reset-counters")
    node.until_up(ALL, CURED)
    for _ in range(4):
        after = node.daemon.page()
        assert falls(before, after) == []
        before = {**before, **after}
        time.sleep(0.25)
    assert len(node.daemon.family("coldplate_gpu_energy_joules_total")) == 8


def test_a_driver_that_comes_after_the_agent_is_found_and_a_gpu_that_is_missing_later_is_seen(
    start, library: Path, tmp_path: Path
) -> None:
    node = Node(start, library, tmp_path, commands=("unloaded",))
    assert not node.up()
    assert "the NVIDIA driver is not loaded" in node.daemon.log.read_text()
    node.command()
    node.until_up(ALL, CURED)
    assert node.daemon.stop() == 0
    node.command("count 7")
    later = start("--backend", "nvml", config=FAST + f"state_dir: {node.state}\n", environment=node.environment)
    later.until("GPU 7 is missing", lambda: later.family("coldplate_gpu_up") == {**ALL, "7": 0.0}, NOTICED)
    assert later.family("coldplate_gpus_expected", "")[""] == 8
    assert "GPU missing" in later.log.read_text()
