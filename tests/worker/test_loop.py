"""The worker answers every order at once, whatever its source does, and tells who joins."""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agent.backends.protocol import BackendSample, Channel, ChannelError, LaneSample, Roster, Unidentified
from agent.lib.clock import clock
from agent.model import Gpu, GpuIdentity, Instant, Lane, Reading, Reason, Series, Xid
from agent.worker.decode import Decoder
from agent.worker.loop import EXIT_ABSENT, EXIT_SOURCE, WorkerLoop
from agent.worker.worker_messages import Alive, Hello
from tests.waiting import wait_until
from tests.worker.test_reader_pool import POWER, FakeChannel

ROOT = Path(__file__).resolve().parents[2]


class FakeGpuChannel(FakeChannel):
    def __init__(self, number: int, uuid: str = "") -> None:
        super().__init__(uuid or f"GPU-{number}")
        gpu = Gpu(str(number), self.key)
        self.identity = GpuIdentity(gpu, f"0000:{number:02x}:00.0", "S", "H100")
        self._series = Series(POWER, gpu)


class FakeSource:
    """A source of which a test decides who is there, and what each call does."""

    name = "nvml"

    def __init__(self, *channels: Channel) -> None:
        self.channels = tuple(channels)
        self.missing: tuple[Unidentified, ...] = ()
        self.opening: Callable[[], object] = lambda: None
        self.reports: Callable[[], Sequence[Xid]] = tuple
        self.closed = False

    def open(self, now: Instant) -> Sequence[Channel]:
        self.opening()
        return self.channels

    def roster(self, now: Instant) -> Roster:
        return Roster(self.channels, self.missing)

    def events(self, timeout: float) -> Sequence[Xid]:
        events = self.reports()
        if not events:
            time.sleep(0.02)
        return events

    def close(self) -> None:
        self.closed = True


class Worker:
    """A worker's loop in a thread, and the other end of its pipes."""

    def __init__(self, source: FakeSource) -> None:
        self.source = source
        self._orders_out, self._orders_in = os.pipe()
        self._out, self._messages = os.pipe()
        self._decoder = Decoder(source.name)
        self._buffer = b""
        self._given = 0
        self.heard: list[Any] = []
        self._loop = WorkerLoop(source, self._orders_out, self._messages, clock)
        self.thread = threading.Thread(target=self._loop.run)
        self.thread.start()

    def order(self, words: str = "") -> int:
        self._given += 1
        os.write(self._orders_in, f"{self._given} {words}\n".encode())
        return self._given

    def listen(self) -> None:
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(self._out, select.POLLIN)
        while waiting.poll(0):
            *lines, self._buffer = (self._buffer + os.read(self._out, 1 << 16)).split(b"\n")
            self.heard += [self._decoder.decode(line) for line in lines]

    def of(self, kind: type) -> list[Any]:
        self.listen()
        return [message for message in self.heard if type(message) is kind]

    def ask(self, words: str = "") -> None:
        """Give an order and wait for its answer."""
        number = self.order(words)
        wait_until(lambda: Alive(number) in self.of(Alive))

    def stop(self) -> None:
        self.order("stop")
        self.thread.join(10)
        assert not self.thread.is_alive()

    def close(self) -> None:
        if self.thread.is_alive():
            self.stop()
        for each in (self._orders_out, self._orders_in, self._out, self._messages):
            os.close(each)


Start = Callable[[FakeSource], Worker]


@pytest.fixture
def start() -> Iterator[Start]:
    running: list[Worker] = []

    def start(source: FakeSource) -> Worker:
        running.append(Worker(source))
        return running[-1]

    yield start
    for worker in running:
        worker.close()


def test_every_order_is_answered_with_its_number(start: Start) -> None:
    worker = start(FakeSource(FakeGpuChannel(0)))
    for words in ("", "fast", "slow cold", "anew", "nonsense fast"):
        worker.ask(words)
    worker.stop()
    assert worker.source.closed


def test_orders_are_answered_while_the_source_is_opened_and_while_every_device_hangs(start: Start) -> None:
    opened, release = threading.Event(), threading.Event()
    channels = [FakeGpuChannel(number) for number in range(3)]
    for channel in channels:
        channel.act = lambda: release.wait(20)
    source = FakeSource(*channels)
    source.opening = lambda: opened.wait(20)
    worker = start(source)
    worker.ask("fast")
    assert worker.of(Hello) == []
    opened.set()
    wait_until(lambda: len(worker.of(Hello)) == 1)
    for _ in range(5):
        worker.ask("fast")
    assert worker.of(LaneSample) == []
    release.set()
    wait_until(lambda: len({each.channel for each in worker.of(LaneSample)}) == 3)


def test_a_device_that_joins_is_read_in_every_lane_and_each_change_is_reported(start: Start) -> None:
    source = FakeSource(FakeGpuChannel(0))
    source.missing = (Unidentified("1", Reason.TIMEOUT, "silent"),)
    worker = start(source)
    wait_until(lambda: len(worker.of(Hello)) == 1)
    assert worker.of(Hello)[0].unidentified == source.missing
    source.channels, source.missing = (*source.channels, FakeGpuChannel(1)), ()
    worker.order()
    wait_until(lambda: len(worker.of(Hello)) == 2)
    assert [key for key, _ in worker.of(Hello)[1].channels] == ["GPU-0", "GPU-1"]
    wait_until(
        lambda: {each.lane for each in worker.of(LaneSample) if each.channel == "GPU-1"} == {*Lane} - {Lane.EVENT}
    )
    for reason in (Reason.TIMEOUT, Reason.LOST):
        source.missing = (Unidentified("2", reason, "why"),)
        worker.order()
        wait_until(lambda: worker.of(Hello)[-1].unidentified == source.missing)
    for _ in range(3):
        worker.ask()
    assert len(worker.of(Hello)) == 4


def test_everything_is_sent_again_when_it_is_requested(start: Start) -> None:
    worker = start(FakeSource(FakeGpuChannel(0)))
    wait_until(lambda: len(worker.of(LaneSample)) == 3)
    worker._decoder = Decoder("nvml")  # a reader that knows nothing
    worker.heard.clear()
    worker.order("anew")
    worker.order("fast")
    wait_until(lambda: bool(worker.of(LaneSample)))
    assert worker.of(Hello)
    assert worker.of(LaneSample)[0].frame.readings[0].value == 100.0


@pytest.mark.parametrize("uuid", ["GPU-\x07", "GPU-\ud800", "x" * 100])
def test_a_gpu_with_an_odd_identity_or_that_says_odd_things_affects_only_itself(start: Start, uuid: str) -> None:
    odd = FakeGpuChannel(2)
    twice = Reading(odd._series, 1.0)
    odd.read = lambda lane, now: BackendSample([twice, twice])  # type: ignore[method-assign]  # a driver gone mad
    worker = start(FakeSource(FakeGpuChannel(0), FakeGpuChannel(1, uuid), odd))
    wait_until(lambda: len(worker.of(LaneSample)) == 3)
    (hello,) = worker.of(Hello)
    assert [key for key, _ in hello.channels] == ["GPU-0", "GPU-2"]
    assert [(each.index, each.reason) for each in hello.unidentified] == [("1", Reason.MALFORMED)]
    assert {each.channel for each in worker.of(LaneSample)} == {"GPU-0"}
    wait_until(lambda: len(worker.of(ChannelError)) > 0)
    assert {(each.channel, each.reason) for each in worker.of(ChannelError)} == {("GPU-2", Reason.MALFORMED)}


def test_the_wait_for_events_outlives_what_the_source_did_not_foresee(start: Start, caplog, monkeypatch) -> None:
    monkeypatch.setattr("agent.worker.loop.EVENT_WAIT_SECONDS", 0.01)
    calls = []

    def report() -> Sequence[Xid]:
        calls.append(1)
        if len(calls) < 20:
            raise ZeroDivisionError("surprise")
        return [Xid("GPU-0", 79, time.time(), "nvml", "fell\noff")] if len(calls) == 20 else ()

    source = FakeSource(FakeGpuChannel(0))
    source.reports = report
    worker = start(source)
    wait_until(lambda: bool(worker.of(tuple)))
    assert [(each.code, each.text) for each in worker.of(tuple)[0]] == [(79, "fell?off")]
    assert len([record for record in caplog.records if record.exc_info]) == 1


OPENING = """
import sys
sys.path[:0] = [{root!r}]
from agent.backends.protocol import *
from agent.lib.clock import clock
from agent.worker.loop import WorkerLoop
class Source:
    name = "nvml"
    def open(self, now): raise {error}
sys.exit(WorkerLoop(Source(), 0, 1, clock).run())
"""


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        ("AbsentError('no driver')", EXIT_ABSENT, b'["absent","no driver"]'),
        ("SourceError('broken')", EXIT_SOURCE, b'["failed","broken"]'),
        ("SourceError('bro' + chr(7) * 2000)", EXIT_SOURCE, b'["failed","bro???'),
        ("KeyError('surprise')", EXIT_SOURCE, b'["failed","KeyError: '),
    ],
)
def test_a_source_that_cannot_be_opened_ends_the_worker_with_the_reason(error: str, status: int, kind: bytes) -> None:
    program = OPENING.format(root=str(ROOT), error=error)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as worker:
        said = worker.stdout.read()
        assert worker.wait(10) == status
    assert kind in said
    Decoder("nvml").decode(said.splitlines()[-1])
