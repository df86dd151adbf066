"""GPUs that are silent while the driver is opened, through the whole daemon, on a stand-in for the driver's library.

tests/nvml/test_gpu_enumeration.py has more cases in process, and the drill hangs all GPUs of a daemon.
"""

from __future__ import annotations

import os
import signal

ALL = dict.fromkeys("01234567", 1.0)
NOTICED, CURED = 12.0, 20.0
"""Bounds of waiting, in seconds: twice and more what the agent promises, for a machine that is busy."""


def test_one_silent_gpu_is_data_at_once_alerts_and_joins_when_it_answers(opened) -> None:
    node = opened("hang 3")
    node.until_up({**ALL, "3": 0.0}, NOTICED)
    assert node.missing() == {("3", ""): "timeout"}
    assert node.value("coldplate_gpus_expected") == 8
    assert node.ready()  # seven are read
    node.daemon.until("GpuLost fires", lambda: ("GpuLost", "3") in node.firing(), CURED)
    worker, before = node.daemon.worker_pid, node.daemon.page()
    node.command()
    ages = []

    def back() -> bool:
        ages.append(
            max(age for gpu, age in node.daemon.family("coldplate_gpu_sample_age_seconds").items() if gpu != "3")
        )
        return node.up() == ALL

    node.daemon.until("GPU 3 is back", back, CURED)
    assert max(ages) < 3.0  # nobody else was down
    assert node.missing() == {}
    assert node.daemon.worker_pid == worker
    assert node.value("coldplate_worker_restarts_total") == 0
    after = node.daemon.page()
    assert [key for key, value in after.items() if key[0].endswith("_total") and value < before.get(key, 0)] == []
    log = node.daemon.log.read_text()
    assert log.count("GPU not identified") == log.count("GPU identified") == 1


def test_a_library_that_hangs_while_it_is_opened_is_noticed_and_continues_at_once(opened) -> None:
    node = opened("hang-init")
    node.daemon.until("the worker is not up", lambda: node.value("coldplate_worker_up") == 0, NOTICED)
    assert node.daemon.family("coldplate_backend_up", "backend")["nvml"] == 0
    assert not node.ready()
    worker = node.daemon.worker_pid
    node.daemon.until("the host is read", lambda: node.daemon.family("coldplate_node_memory_total_bytes", ""), CURED)
    node.command()
    node.until_up(ALL, CURED)
    assert node.ready()
    assert node.daemon.worker_pid == worker
    assert node.value("coldplate_worker_restarts_total") == 0


def test_indexes_that_move_and_boards_that_are_swapped_are_seen_after_a_restart(opened) -> None:
    node = opened()
    node.until_up(ALL, NOTICED)
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
