"""Calls that may never return keep one thread each, and are not sent twice."""

from __future__ import annotations

import threading

import pytest

from agent.backends.nvml.driver import CallThreads


def test_one_that_is_out_is_not_sent_again_and_can_be_when_it_is_back() -> None:
    errands, release, calls = CallThreads(), threading.Event(), []

    def call() -> None:
        calls.append(1)
        release.wait(10)

    assert errands.send("a", call)
    assert [errands.send("a", call) for _ in range(10)] == [False] * 10
    assert errands.is_out("a")
    assert errands.busy
    assert errands.send("b", lambda: None)
    errands.wait(["b"], 10)
    assert not errands.is_out("b")
    release.set()
    errands.wait(["a", "b"], 10)
    assert not errands.busy
    assert errands.send("a", call)
    errands.wait(["a"], 10)
    assert len(calls) == 2


def test_the_wait_ends_while_a_call_is_in_flight() -> None:
    errands, release = CallThreads(), threading.Event()
    errands.send("a", lambda: bool(release.wait(10)) and None)  # type: ignore[arg-type]  # its answer is not looked at
    errands.wait(["a", "nobody"], 0.01)
    assert errands.is_out("a")
    release.set()


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), MemoryError()])
def test_without_a_thread_no_call_is_in_flight(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise error

    errands = CallThreads()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert not errands.send("a", lambda: None)
    assert not errands.busy
    assert errands.send("a", lambda: None)
