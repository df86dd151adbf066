"""A channel that hangs keeps one reader and stops nobody else; no channel is ever read twice at once."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from agent.backends.protocol import BackendSample, DeviceError, SourceError
from agent.catalogue import BY_NAME
from agent.lib.clock import clock
from agent.model import Gpu, GpuIdentity, Instant, Lane, Rack, Reading, Reason, Series
from agent.worker.reader_pool import DeviceChannel, ReaderPool
from agent.worker.worker_messages import unseal

POWER = BY_NAME["coldplate_gpu_power_watts"]


class FakeChannel:
    identity: GpuIdentity | None = None

    def __init__(self, key: str, act: Callable[[], object] = lambda: None) -> None:
        self.key = key
        self.act = act
        self.reads = 0
        self.inside = 0
        self.most_inside = 0
        self._series = Series(POWER, Gpu(key, key))

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        self.reads += 1
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            self.act()
        finally:
            self.inside -= 1
        return BackendSample([Reading(self._series, 100.0)] if lane is Lane.FAST else [], calls=1)


class Bench:
    def __init__(self, *channels: FakeChannel) -> None:
        self.sent: list[list[Any]] = []
        self.broken: list[SourceError] = []
        devices = [DeviceChannel(number, channel, self._send, clock) for number, channel in enumerate(channels)]
        self.pool = ReaderPool(devices, self.broken.append)

    def _send(self, line: bytes) -> None:
        self.sent.append(json.loads(unseal(line)))

    def read(self, lane: Lane = Lane.FAST) -> None:
        """Read a lane of all channels, and wait for them."""
        self.pool.order({lane})
        self.settle(lambda: not self.pool.busy)

    def samples(self) -> list[int]:
        return [message[1] for message in self.sent if message[0] == "sample"]

    def settle(self, holds: Callable[[], bool], reinforce: bool = True) -> None:
        deadline = time.monotonic() + 5
        while not holds():
            assert time.monotonic() < deadline, "did not settle"
            time.sleep(0.005)
            if reinforce:
                self.pool.add_reader()


def readers() -> int:
    return sum(thread.name.startswith("reader-") for thread in threading.enumerate())


def test_quick_channels_share_one_reader() -> None:
    before = readers()
    bench = Bench(*(FakeChannel(str(number)) for number in range(8)))
    for _ in range(5):
        bench.pool.order({Lane.FAST})
        bench.settle(lambda: not bench.pool.busy, reinforce=False)
    assert readers() - before == 1
    assert bench.samples() == list(range(8)) * 5


@pytest.mark.parametrize("hanging", [1, 4])
def test_hung_channels_stop_no_other_and_keep_one_reader_each(hanging: int) -> None:
    release, before = threading.Event(), readers()
    hung = [FakeChannel(f"hung {number}", lambda: release.wait(10) and None) for number in range(hanging)]
    others = [FakeChannel(str(number)) for number in range(4 - hanging)]
    bench = Bench(*others[:1], *hung, *others[1:])
    for tick in range(1, 6):
        bench.pool.order({Lane.FAST})
        bench.settle(lambda tick=tick: all(each.reads == tick for each in others))
    bench.settle(lambda: all(each.reads == 1 for each in hung))
    assert {each.most_inside for each in hung} == {1}
    assert bench.pool.busy == [each.key for each in hung]
    assert readers() - before <= 4
    release.set()
    bench.settle(lambda: not bench.pool.busy)
    bench.pool.order({Lane.FAST})
    bench.settle(lambda: {each.reads for each in hung} == {2})


def test_lanes_that_fall_due_while_a_channel_hangs_are_read_once_when_it_is_free() -> None:
    release = threading.Event()
    channel = FakeChannel("a", lambda: release.wait(10) and None)
    bench = Bench(channel)
    bench.pool.order({Lane.FAST})
    bench.settle(lambda: channel.reads == 1)
    for lanes in ({Lane.FAST}, {Lane.FAST, Lane.SLOW}, {Lane.FAST}):
        bench.pool.order(lanes)
    release.set()
    bench.settle(lambda: not bench.pool.busy)
    bench.read()
    told = [message[2] for message in bench.sent if message[0] == "sample"]
    assert told == ["fast", "fast", "slow"]


def raising(error: Exception) -> Callable[[], object]:
    def act() -> None:
        raise error

    return act


def test_an_error_affects_only_its_channel_and_a_broken_source_is_reported() -> None:
    lost, surprise = DeviceError(Reason.LOST, "GPU is lost"), ZeroDivisionError("surprise")
    bench = Bench(FakeChannel("a", raising(lost)), FakeChannel("b", raising(surprise)), FakeChannel("c"))
    bench.read()
    errors = {message[1]: message[4:] for message in bench.sent if message[0] == "error"}
    assert errors == {0: ["lost", "GPU is lost"], 1: ["malformed", "ZeroDivisionError: surprise"]}
    assert bench.samples() == [2]
    bench = Bench(FakeChannel("a", raising(SourceError("driver not loaded"))))
    bench.pool.order({Lane.FAST})
    bench.settle(lambda: bool(bench.broken))
    assert str(bench.broken[0]) == "driver not loaded"


def test_a_sample_that_cannot_be_sent_affects_only_its_channel_and_is_reported_once(caplog) -> None:
    strange = FakeChannel("a")
    strange._series = Series(POWER, Rack("no entity of a worker"))
    bench = Bench(strange, FakeChannel("b"))
    for _ in range(5):
        bench.read()
    assert bench.samples() == [1] * 5
    assert strange.reads == 5
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_a_system_without_threads_to_give_costs_samples_and_nothing_else(monkeypatch, caplog) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    channels = [FakeChannel(str(number)) for number in range(3)]
    bench = Bench(*channels)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for _ in range(5):
            bench.pool.order({Lane.FAST})
    assert bench.samples() == []
    assert len(bench.pool.busy) == 3
    assert len([record for record in caplog.records if "cannot start a thread" in record.message]) == 1
    bench.read(Lane.SLOW)
    assert sorted(bench.samples()) == [0, 0, 1, 1, 2, 2]


def test_a_reader_outlives_a_pipe_that_it_cannot_write_to(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Bench):
        refused: ClassVar[list[bytes]] = []
        """What was to be sent."""

        def _send(self, line: bytes) -> None:
            if len(self.refused) < 2:
                self.refused.append(line)
                raise OSError("no pipe")
            super()._send(line)

    bench = Broken(FakeChannel("a"))
    bench.read()
    bench.read()
    assert bench.samples() == [0]
