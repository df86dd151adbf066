"""The daemon on a driver library: a stand-in written in C, loaded through the real binding.

tests/nvml/test_gpu_enumeration.py has more cases of silent GPUs in process, and the drill hangs all GPUs of a daemon,
and its driver while it is opened.
"""

import os
import signal
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


def test_one_gpu_that_hangs_leaves_the_others_and_comes_back(node: Node) -> None:
    node.command("hang 3")
    node.until_up({**ALL, "3": 0.0}, NOTICED)
    assert set(node.daemon.family("coldplate_gpu_power_watts")) == set("0124567")
    assert "3" in node.daemon.family("coldplate_gpu_info")
    ages = node.daemon.family("coldplate_gpu_sample_age_seconds")
    assert max(age for gpu, age in ages.items() if gpu != "3") < 1.5
    assert node.daemon.get("/-/ready")


def test_a_gpu_is_attributed_to_the_job_of_the_process_that_computes_on_it(node: Node) -> None:
    environment = {**os.environ, "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "llama", "SLURM_JOB_PARTITION": "gpu"}
    with subprocess.Popen(["sh", "-c", "read end; exit"], stdin=subprocess.PIPE, env=environment) as rank:
        node.command(f"process 2 {rank.pid}", f"process 3 {rank.pid}")

        def jobs() -> list[dict[str, str]]:
            return [dict(labels) for name, labels in node.daemon.page() if name == "coldplate_gpu_job_info"]

        node.daemon.until("two GPUs with a job", lambda: len(jobs()) == 2, CURED)
        found = {(job["gpu"], job["scheduler"], job["job_id"], job["name"]) for job in jobs()}
        assert found == {(gpu, "slurm", "4711", "llama") for gpu in "23"}
        assert node.daemon.family("coldplate_job_gpus", "job_id") == {"4711": 2.0}
        rank.stdin.close()
        node.command("process 0 1")  # a process that is no job: the init of this machine, in its own cgroup
        node.daemon.until("the job's end", lambda: not any(job["job_id"] == "4711" for job in jobs()), CURED)


def test_a_registration_with_the_fabric_that_failed_is_alerted(node: Node) -> None:
    node.command("fabric 3 999")
    node.daemon.until("an alert", lambda: ("GpuFabricDegraded", "") in node.firing(), 90)


def gpus_of_jobs(node: Node) -> dict[str, float]:
    return node.daemon.family("coldplate_job_gpus", "job_id")


@pytest.mark.parametrize("code", [999, 28, 10, 15])
def test_a_gpu_whose_every_read_fails_is_lost_and_its_job_still_holds_it(node: Node, code: int) -> None:
    """Codes of dcgm-exporter 604 and sonar 72, and that of a GPU that fell off the bus."""
    environment = {**os.environ, "SLURM_JOB_ID": f"{code}"}
    with subprocess.Popen(["sh", "-c", "read end; exit"], stdin=subprocess.PIPE, env=environment) as rank:
        held = [f"process {gpu} {rank.pid}" for gpu in range(4)]
        node.command(*held)
        node.daemon.until("a job of four", lambda: gpus_of_jobs(node) == {f"{code}": 4.0}, CURED)
        node.command(*held, f"fail 3 {code}")
        node.until_up({**ALL, "3": 0.0}, NOTICED)
        node.daemon.until("GpuLost fires", lambda: ("GpuLost", "3") in node.firing(), CURED)
        states = node.states("3")
        node.daemon.until("it is lost for 7 s", lambda: node.states("3")["lost"] >= states["lost"] + 7, CURED)
        assert {state for state, seconds in node.states("3").items() if seconds > states[state]} == {"lost"}
        names = {name for name, labels in node.daemon.page() if dict(labels).get("gpu") == "3"}
        assert not {name for name in names if name.startswith(("coldplate_gpu_power_", "coldplate_gpu_utilization_"))}
        assert gpus_of_jobs(node) == {f"{code}": 4.0}
        assert any("GPU is down" in line and f"({code})" in line for line in node.daemon.log.read_text().splitlines())
        rank.stdin.close()


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


def test_indexes_that_move_and_boards_that_are_swapped_are_seen_after_a_restart(shared: Node) -> None:
    """The last one on this daemon: its GPUs are not what they were."""
    node = shared
    node.until_up(ALL, CURED)
    node.command("gone 2", "board 5 12")
    os.kill(node.daemon.worker_pid, signal.SIGKILL)

    def slots() -> dict[str, tuple[str, float]]:
        """Index and presence by slot."""
        page = node.daemon.page()
        up = {dict(labels)["uuid"]: value for (name, labels), value in page.items() if name == "coldplate_gpu_up"}
        facts = [dict(labels) for name, labels in page if name == "coldplate_gpu_info"]
        return {each["slot"][5:7]: (each["gpu"], up[each["uuid"]]) for each in facts}

    moved = {"1b": "0", "2b": "1", "3b": "2", "4b": "2", "5b": "3", "6b": "4", "7b": "5", "8b": "6"}
    expected = {slot: (index, 0.0 if slot == "3b" else 1.0) for slot, index in moved.items()}
    node.daemon.until("the others have other indexes", lambda: slots() == expected, CURED)
    assert len(node.daemon.family("coldplate_gpu_replaced_info")) == 1


def test_a_gpu_on_the_bus_that_the_driver_did_not_take_is_expected_and_alerts(start, library, tmp_path: Path) -> None:
    """As of NVSentinel issue 684: eight on the bus, seven taken, nothing known from before."""
    sysfs = tmp_path / "sys"
    bus = sysfs / "bus/pci/devices"
    for number in range(1, 9):
        add_pci_gpu(bus / f"0000:{number}b:00.0", "0x030200", "0x2330", "nvidia" if number < 8 else "")
    add_pci_gpu(bus / "0000:01:00.0", "0x030000", "0x1180", "")  # a display adapter that this driver does not support
    add_pci_gpu(bus / "0000:02:00.0", "0x030200", "0x2330", "vfio-pci")
    node = Node(start, library, tmp_path, commands=("gone 7",), arguments=("--path.sysfs", str(sysfs)))
    seven = {gpu: 1.0 for gpu in ALL if gpu != "7"}
    node.until_up(seven, NOTICED)
    assert node.daemon.value("coldplate_gpus_expected") == 8
    node.daemon.until("GpuCountWrong fires", lambda: ("GpuCountWrong", "") in node.firing(), 60 + CURED)
    assert "slot=0000:8b:00.0" in node.daemon.log.read_text()


def add_pci_gpu(device: Path, kind: str, model: str, driver: str) -> None:
    device.mkdir(parents=True)
    for name, text in {"vendor": "0x10de", "class": kind, "device": model}.items():
        (device / name).write_text(f"{text}\n")
    if driver:
        (device / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def test_one_silent_gpu_is_data_at_once_alerts_and_joins_when_it_answers(start, library, tmp_path: Path) -> None:
    node = Node(start, library, tmp_path, commands=("hang 3",))
    node.until_up({**ALL, "3": 0.0}, NOTICED)
    assert node.missing() == {("3", ""): "timeout"}
    assert node.daemon.value("coldplate_gpus_expected") == 8
    assert node.ready()  # seven are read
    node.daemon.until("GpuLost fires", lambda: ("GpuLost", "3") in node.firing(), CURED)
    worker, before = node.daemon.worker_pid, node.daemon.page()
    node.command()
    ages = []

    def back() -> bool:
        seen = node.daemon.family("coldplate_gpu_sample_age_seconds")
        ages.append(max(age for gpu, age in seen.items() if gpu != "3"))
        return node.up() == ALL

    node.daemon.until("GPU 3 is back", back, CURED)
    assert max(ages) < 3.0  # nobody else was down
    assert node.missing() == {}
    assert node.daemon.worker_pid == worker
    assert node.daemon.value("coldplate_worker_restarts_total") == 0
    after = node.daemon.page()
    assert falls(before, after) == []
    log = node.daemon.log.read_text()
    assert log.count("GPU not identified") == log.count("GPU identified") == 1


def test_a_driver_that_comes_after_the_agent_is_found(start, library: Path, tmp_path: Path) -> None:
    """And eight of them are read with seven calls each, where only the fast lane is due."""
    node = Node(start, library, tmp_path, "sampling: {fast: 250ms, slow: 30s, cold: 60s}\n", ("unloaded",))
    assert not node.up()
    assert "the NVIDIA driver is not loaded" in node.daemon.log.read_text()
    node.command()
    node.until_up(ALL, CURED)
    calls = ("coldplate_backend_calls_total", (("backend", "nvml"),))
    ticks = ("coldplate_ticks_total", ())
    first = node.daemon.page()[ticks]
    node.daemon.until("all lanes were read", lambda: node.daemon.page()[ticks] >= first + 4, NOTICED)
    before = node.daemon.page()
    node.daemon.until("eight ticks", lambda: node.daemon.page()[ticks] >= before[ticks] + 8, NOTICED)
    after = node.daemon.page()
    assert (after[calls] - before[calls]) / (after[ticks] - before[ticks]) <= 7 * 8
    assert len(node.daemon.family("coldplate_gpu_sm_active_ratio")) == 8
    assert falls(before, after) == []
    assert node.daemon.stop() == 0
    node.command("count 7")
    later = start("--backend", "nvml", config=FAST + f"state_dir: {node.state}\n", environment=node.environment)
    later.until("GPU 7 is missing", lambda: later.family("coldplate_gpu_up") == {**ALL, "7": 0.0}, NOTICED)
    assert later.value("coldplate_gpus_expected") == 8
    assert "GPU missing" in later.log.read_text()
