"""Whatever a worker says, the main process stays near its usual memory; and a worker's own memory is bounded."""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.worker.supervisor import WorkerOptions
from agent.worker.worker_process import ChildProcess
from tests import warm
from tests.worker.swell import STRATEGIES, grown

MOST = 48.0
"""MiB above the usual memory."""


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_main_process_does_not_grow_whatever_it_is_sent(strategy: str) -> None:
    growth, taken, refused = warm.call(grown, strategy)
    assert growth < MOST
    assert taken > 24 or refused > 100  # what was said was heard, or was garbage


@pytest.fixture
def worker() -> Iterator[ChildProcess]:
    process = ChildProcess(WorkerOptions("synthetic", "idle", time.monotonic(), log_level="error").argument())
    deadline = time.monotonic() + 20
    while not process.lines(time.monotonic()):
        process.order(b"1\n")
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    process.signal(signal.SIGKILL)
    while process.status() is None:
        time.sleep(0.02)
    process.close(time.monotonic())


def test_a_worker_is_confined_before_it_opens_anything(worker: ChildProcess) -> None:
    soft, _ = resource.prlimit(worker.pid, resource.RLIMIT_DATA)
    assert soft == 2**30
    ours = int(Path("/proc/self/oom_score_adj").read_text())
    score = int(Path(f"/proc/{worker.pid}/oom_score_adj").read_text())
    assert score == min(max(ours + 100, 0), 1000)


def test_the_memory_of_a_worker_can_be_read(worker: ChildProcess) -> None:
    held = worker.resident()
    assert held is not None
    assert 5 * 2**20 < held < 100 * 2**20
    os.kill(worker.pid, signal.SIGKILL)
    while worker.status() is None:
        time.sleep(0.02)
    assert worker.resident() is None
