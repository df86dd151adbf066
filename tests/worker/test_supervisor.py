"""There is one worker, and never a second beside one that is not gone."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from agent.model import Lane
from agent.worker.supervisor import Supervisor, WorkerOptions
from agent.worker.wire import Hello, Message


class Watch:
    """A supervisor, stepped until something holds."""

    def __init__(self, silence: float = 10.0, source: str = "synthetic") -> None:
        options = WorkerOptions(source, "idle", time.monotonic(), log_level="error")
        self.supervisor = Supervisor(options, silence)
        self.messages: list[Message] = []

    def step(self) -> None:
        self.messages += self.supervisor.receive(time.monotonic())
        self.supervisor.step(time.monotonic())

    def until(self, holds, seconds: float = 8.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "not in time"
            self.step()
            time.sleep(0.02)


@pytest.fixture
def watch() -> Iterator[Watch]:
    each = Watch()
    yield each
    each.supervisor.stop(time.sleep)


def test_it_says_hello_and_answers(watch: Watch) -> None:
    watch.until(lambda: watch.supervisor.running)
    assert isinstance(watch.messages[0], Hello)
    assert watch.supervisor.ask([Lane.FAST], time.monotonic())
    watch.until(lambda: len(watch.messages) >= 9)  # eight GPUs and the fabric


def test_a_pause_between_orders_is_no_silence() -> None:
    watch = Watch(silence=0.4)
    try:
        watch.until(lambda: watch.supervisor.running)
        for _ in range(2):
            before = len(watch.messages)
            watch.supervisor.ask([Lane.FAST], time.monotonic())
            watch.step()
            watch.until(lambda before=before: len(watch.messages) > before)
            time.sleep(0.6)
            watch.step()
        assert watch.supervisor.running
    finally:
        watch.supervisor.stop(time.sleep)


def test_a_worker_that_does_not_answer_is_ended_and_another_started_when_it_is_gone() -> None:
    watch = Watch(silence=0.4)
    try:
        watch.until(lambda: watch.supervisor.running)
        first = watch.supervisor.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        watch.supervisor.ask([Lane.FAST], time.monotonic())
        watch.until(lambda: watch.supervisor.downfall is not None)
        assert "silent" in (watch.supervisor.downfall or "")
        time.sleep(1.0)
        watch.step()
        assert watch.supervisor.pid == first  # stopped, it cannot take SIGTERM: no second one beside it
        os.kill(first, signal.SIGCONT)
        watch.until(lambda: watch.supervisor.running and watch.supervisor.pid != first)
        assert watch.supervisor.restarts == 1
    finally:
        watch.supervisor.stop(time.sleep)


def test_a_source_that_is_absent_is_no_restart() -> None:
    watch = Watch(source="nvml")
    try:
        watch.until(lambda: watch.supervisor.refusal is not None or watch.supervisor.running)
        if watch.supervisor.running:
            pytest.skip("this machine has a GPU")
        assert watch.supervisor.refusal is not None
        assert watch.supervisor.refusal.absent
        watch.until(lambda: watch.supervisor.pid is None)
        assert watch.supervisor.downfall is None
        assert watch.supervisor.restarts == 0
    finally:
        watch.supervisor.stop(time.sleep)


def test_nobody_is_asked_while_there_is_nobody(watch: Watch) -> None:
    assert not watch.supervisor.ask([Lane.FAST], time.monotonic())
    assert watch.supervisor.descriptor is None
