"""The worker as a process: its standard error arrives within bounds, and its memory is confined and read."""

import logging
import os
import resource
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from agent.worker.supervisor import WorkerOptions
from agent.worker.trust import CALM_SECONDS, FLOOD, FLOOD_ROOM, WorkerTrust
from agent.worker.worker_messages import MessageError
from agent.worker.worker_process import LINE, RATE, ROOM, ChildProcess, LogRelay
from tests import warm
from tests.waiting import wait_until
from tests.worker.swell import STRATEGIES, grown


class Pipes:
    def __init__(self) -> None:
        source, self.writer = os.pipe()
        self.reader, target = os.pipe()
        for descriptor in (source, self.reader, self.writer):
            os.set_blocking(descriptor, False)
        self.source: IO[bytes] = os.fdopen(source, "rb", 0)
        self.target = target
        self.relay = LogRelay(self.source, target)
        self.now = 100.0

    def write(self, data: bytes) -> int:
        return os.write(self.writer, data)

    def pass_on(self, after: float = 0.0) -> bytes:
        self.now += after
        self.relay.pass_on(self.now)
        try:
            return os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    made.source.close()
    for descriptor in (made.writer, made.reader, made.target):
        os.close(descriptor)


def test_lines_arrive_whole_in_order_and_harmless_and_one_without_end_in_pieces(pipes: Pipes) -> None:
    assert pipes.pass_on() == b""
    pipes.write(b"level=info msg=one\nlevel=in")
    assert pipes.pass_on() == b"level=info msg=one\n"
    pipes.write(b"fo msg=two\n")
    assert pipes.pass_on() == b"level=info msg=two\n"
    pipes.write(b"a\x1b[2Jb\x00c\td\xc3\xa9\n")
    assert pipes.pass_on() == b"a?[2Jb?c\td\xc3\xa9\n"
    for _ in range(4):
        pipes.write(b"y" * LINE)
        pipes.pass_on()
    assert len(pipes.relay._buffer) <= LINE


def test_a_flood_is_cut_and_the_cut_is_reported_seldom(pipes: Pipes, caplog: pytest.LogCaptureFixture) -> None:
    line = b"NVRM: something is wrong, " + b"x" * 40 + b"\n"
    got = 0
    with caplog.at_level(logging.WARNING):
        for _ in range(3600):  # an hour, of as much as fits the pipe in each second
            pipes.write(line * 900)
            got += len(pipes.pass_on(after=1.0))
    assert ROOM / 2 < got < ROOM + 3600 * RATE * 1.2
    assert 10 < len(caplog.records) < 70
    assert "lines were dropped" in caplog.text


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_main_process_does_not_grow_whatever_it_is_sent(strategy: str) -> None:
    growth, taken = warm.call(grown, strategy)
    assert growth < (48.0 if strategy == "largest" else 24.0)  # MiB above the usual memory
    assert taken > 24  # what was said was heard


@pytest.fixture
def worker() -> Iterator[ChildProcess]:
    process = ChildProcess(WorkerOptions("synthetic", "idle", time.monotonic(), log_level="error").argument())
    wait_until(lambda: process.order(b"1\n") and process.lines(time.monotonic()))
    yield process
    if process.descriptor is not None:  # the test did not close it
        process.signal(signal.SIGKILL)
        wait_until(lambda: process.status() is not None)
        process.close(time.monotonic())


def test_the_last_output_of_a_worker_that_crashes_arrives(
    worker: ChildProcess, capfd: pytest.CaptureFixture[str]
) -> None:
    """faulthandler writes a traceback when a library takes the process along."""
    worker.signal(signal.SIGSEGV)
    wait_until(lambda: worker.status() is not None)
    worker.close(time.monotonic())
    assert worker.status() == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in capfd.readouterr().err


def test_a_worker_is_confined_before_it_opens_anything_and_its_memory_can_be_read(worker: ChildProcess) -> None:
    soft, _ = resource.prlimit(worker.pid, resource.RLIMIT_DATA)
    assert soft == 2**30
    ours = int(Path("/proc/self/oom_score_adj").read_text())
    score = int(Path(f"/proc/{worker.pid}/oom_score_adj").read_text())
    assert score == min(max(ours + 100, 0), 1000)
    held = worker.resident()
    assert held is not None
    assert 5 * 2**20 < held < 100 * 2**20
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: worker.status() is not None)
    assert worker.resident() is None


# How much garbage and output is suffered from a worker, in the worker's own second.
GARBAGE = MessageError("no checksum")


def test_a_spell_is_over_after_some_calm() -> None:
    trust = WorkerTrust()
    calm, now = CALM_SECONDS + 0.1, 100.0
    for _ in range(9):
        trust.record_garbage(GARBAGE, now)
        now += calm
    assert trust.lost == ""
    for _ in range(2):  # a pause that is no longer than the calm belongs to the spell
        trust.record_garbage(GARBAGE, now)
        now += CALM_SECONDS
    trust.record_garbage(GARBAGE, now)
    assert trust.lost == "has sent garbage for 6 s"


def test_a_flood_exceeds_burst_and_rate_and_silence_earns_no_credit() -> None:
    trust = WorkerTrust()
    trust.record_bytes(FLOOD_ROOM, 100.0)
    for second in range(1, 60):
        trust.record_bytes(FLOOD, 100.0 + second)
    assert trust.lost == ""
    trust.record_bytes(FLOOD + 1, 160.0)
    assert trust.lost == "floods its output"
    trust = WorkerTrust()
    trust.record_bytes(FLOOD_ROOM, 160.1)
    assert trust.lost == ""
    trust.record_bytes(FLOOD_ROOM + 1, 5000.0)
    assert trust.lost == "floods its output"
