"""What a sick GPU, a hung driver and a dead worker do to the page: as little as possible, and visibly."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.daemon.conftest import RunningDaemon, Start
from tests.fakes.trees import OddTree
from tests.infiniband.conftest import FIXTURES, unpack_archive

FAST = "sampling: {fast: 250ms, slow: 1s, cold: 2s}\n"
SCENARIO = """\
description: faults soon after the start
topology: dgx-h100
seed: 1
jobs:
  - {id: "1", name: train, user: ada, gpus: all, parallelism: data, memory: 0.8, phases: [{kind: training}]}
faults:
  - {kind: lost, gpu: 1, at: 2s}
  - {kind: sentinel, gpu: 2, at: 1s, metric: coldplate_gpu_power_instant_watts, value: huge}
  - {kind: hang, gpu: 3, at: 2s}
  - {kind: sentinel, gpu: 4, at: 1s, metric: coldplate_gpu_utilization_ratio, value: nan}
  - {kind: counter-back, gpu: 5, at: 2s, duration: 2s, metric: coldplate_gpu_energy_joules_total, by: 50000}
"""
SICK = {"1": "lost", "3": "timeout"}
"""The reason for which each GPU gives no sample."""


@pytest.fixture(scope="module")
def sick(start_shared: Start, folder: Path) -> RunningDaemon:
    """A daemon two of whose GPUs do not answer any more, while sensors of others give garbage."""
    path = folder / "scenario.yaml"
    path.write_text(SCENARIO)
    daemon = start_shared("--scenario", str(path), config=FAST)
    up = {each: 0.0 if each in SICK else 1.0 for each in "01234567"}
    daemon.until("two GPUs are down", lambda: daemon.family("coldplate_gpu_up") == up, 15)
    return daemon


def missing(daemon: RunningDaemon) -> set[tuple[str, str, str]]:
    """Metric, GPU and reason of each gap."""
    rows = [dict(labels) for name, labels in daemon.page() if name == "coldplate_metric_missing"]
    return {(row["metric"], row.get("gpu", ""), row["reason"]) for row in rows}


def test_a_sick_gpu_affects_only_itself(sick: RunningDaemon) -> None:
    slowest = 0.0
    for _ in range(10):
        began = time.monotonic()
        sick.get()
        slowest = max(slowest, time.monotonic() - began)
        ages = sick.family("coldplate_gpu_sample_age_seconds")
        assert all(age < 1.5 for gpu, age in ages.items() if gpu not in SICK), ages
        time.sleep(0.05)
    assert slowest < 3  # milliseconds, if the machine is not busy; one that waited for the driver would not come at all
    assert set(sick.family("coldplate_gpu_power_watts")) == set("024567")
    assert set(sick.family("coldplate_gpu_info")) == set("01234567")
    assert {(gpu, reason) for _, gpu, reason in missing(sick) if gpu in SICK} >= {*SICK.items()}
    assert sick.get("/-/ready")


def test_garbage_of_a_sensor_is_left_out_counted_and_never_shown(sick: RunningDaemon) -> None:
    sick.until(
        "both causes are counted",
        lambda: set(sick.family("coldplate_readings_rejected_total", "cause")) == {"range", "step"},
        10,
    )
    assert all(abs(value) < 1e18 for value in sick.page().values())  # neither NaN nor a sentinel
    assert set(sick.family("coldplate_gpu_power_instant_watts")) == set("04567")
    assert set(sick.family("coldplate_gpu_utilization_ratio")) == set("02567")
    implausible = {(metric, gpu) for metric, gpu, reason in missing(sick) if reason == "implausible"}
    assert implausible >= {("coldplate_gpu_power_instant_watts", "2"), ("coldplate_gpu_utilization_ratio", "4")}


def test_a_worker_that_dies_or_is_stopped_is_replaced_and_no_counter_falls(start: Start) -> None:
    """SIGSTOP is the nearest that a test comes to a whole driver that hangs."""
    daemon = start("--scenario", "healthy-training", config=FAST)
    for restarts, number in enumerate((signal.SIGKILL, signal.SIGSTOP), 1):
        before, worker = daemon.page(), daemon.worker_pid
        os.kill(worker, number)
        if number == signal.SIGSTOP:
            daemon.until("all GPUs are down", lambda: set(daemon.family("coldplate_gpu_up").values()) == {0.0}, 15)
            assert "coldplate_gpu_power_watts" not in {name for name, _ in daemon.page()}
            assert daemon.family("coldplate_node_memory_total_bytes", "")
        daemon.until(
            "another worker's samples",
            lambda restarts=restarts: (
                daemon.family("coldplate_worker_restarts_total", "")[""] == restarts
                and daemon.family("coldplate_worker_up", "")[""] == 1
                and daemon.family("coldplate_gpu_up") == dict.fromkeys("01234567", 1.0)
                and max(daemon.family("coldplate_gpu_sample_age_seconds").values()) < 1.5
            ),
            20,
        )
        assert daemon.worker_pid != worker
        for _ in range(4):
            after = daemon.page()
            counters = [key for key in after if key[0].endswith("_total")]
            assert [key for key in counters if after[key] < before.get(key, float("-inf"))] == []
            before = {**before, **after}
            time.sleep(0.25)


def test_a_configuration_without_a_writer_costs_its_reload_and_not_the_port(start, tmp_path: Path) -> None:
    """A pipe where the file was: whoever opens it may wait for ever."""
    text = f"web: {{enable_lifecycle: true}}\nbackends: {{devices: none}}\n{FAST}"
    daemon = start(config=text)
    path = next(tmp_path.glob("*.yaml"))
    path.unlink()
    os.mkfifo(path)
    answers: list[int] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{daemon.url}/-/reload", b""), timeout=30).close()
            answers.append(200)
        except urllib.error.HTTPError as error:
            answers.append(error.code)
            error.close()

    asking = threading.Thread(target=ask)
    asking.start()
    for _ in range(20):
        assert daemon.get("/-/healthy") == "healthy\n"
        assert daemon.page()
        time.sleep(0.05)
    try:
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        assert error.errno == errno.ENXIO  # nobody waits for it: the reload was refused
    else:
        os.write(pipe, text.encode())
        os.close(pipe)
    asking.join(30)
    assert answers in ([200], [500])
    assert daemon.page()


def test_a_port_whose_firmware_hangs_from_the_start_affects_only_itself_and_comes_back(start, tmp_path: Path) -> None:
    """Opening a pipe without a writer stands for it: it does not return, and no other thread may wait for it."""
    sysfs = unpack_archive(FIXTURES / "dgx-h100.txt", tmp_path / "sys")
    file = sysfs / "class/infiniband/mlx5_3/ports/1/state"
    tree = OddTree(0)
    tree.hang(file)
    daemon = start("--backend", "none", "--path.sysfs", str(sysfs), config=FAST)

    def up() -> dict[str, float]:
        return daemon.family("coldplate_infiniband_port_up", "device")

    def missing_ports() -> dict[str, float]:
        """By adapter; what this machine itself lacks has none."""
        missing = daemon.family("coldplate_metric_missing", "device")
        return {device: count for device, count in missing.items() if device}

    daemon.until("the other ports are shown", lambda: len(up()) == 8, 10)
    assert "mlx5_3" not in up()
    assert missing_ports() == {"mlx5_3": 1}
    assert daemon.family("coldplate_backend_up", "backend")["infiniband"] == 1
    assert len(daemon.family("coldplate_infiniband_link_downed_total", "device")) == 9
    daemon.until("what it hangs in is told", lambda: f"path={file}" in daemon.log.read_text(), 5)
    aside = file.rename(tmp_path / "aside")
    file.write_text("4: ACTIVE\n")
    os.close(os.open(aside, os.O_RDWR | os.O_NONBLOCK))
    daemon.until("the port is back", lambda: len(up()) == 9, 15)
    assert missing_ports() == {}
    assert daemon.log.read_text().count(f"path={file}") == 2, "once when it hung, and once when it was over"
