"""A worker that stops, and a library that goes mad, through the whole daemon on a stand-in for the driver's library."""

from __future__ import annotations

import os
import signal
import time

ALL = dict.fromkeys("01234567", 1.0)
NOTICED, CURED = 12.0, 20.0
"""Bounds of waiting, in seconds: twice and more what the agent promises, for a machine that is busy."""


def test_a_worker_that_is_stopped_is_replaced(opened) -> None:
    node = opened()
    node.until_up(ALL, NOTICED)
    first = node.daemon.worker_pid
    os.kill(first, signal.SIGSTOP)
    node.until_up(dict.fromkeys(ALL, 0.0), NOTICED)
    node.until_up(ALL, CURED)
    assert node.daemon.worker_pid != first
    assert "has not answered for 3 s" in node.daemon.log.read_text()


def test_a_library_that_takes_the_memory_costs_its_worker(opened) -> None:
    node = opened()
    node.until_up(ALL, NOTICED)
    node.command("balloon 2")
    node.daemon.until("it is ended", lambda: "MiB of memory; terminating it" in node.daemon.log.read_text(), NOTICED)
    node.command()
    node.daemon.until("another one", lambda: node.value("coldplate_worker_restarts_total") >= 1, CURED)
    node.until_up(ALL, CURED)


def test_a_library_that_chatters_holds_up_no_gpu_and_fills_no_log(opened) -> None:
    node = opened()
    node.until_up(ALL, NOTICED)
    node.command("chatter")
    node.daemon.until("it is heard", lambda: "the library says something" in node.daemon.log.read_text(), NOTICED)
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        assert node.up() == ALL
        time.sleep(0.2)
    node.command()
    size = node.daemon.log.stat().st_size
    assert 2**15 < size < 2**18
    assert node.daemon.stop() == 0
    assert "lines were dropped" in node.daemon.log.read_text()
