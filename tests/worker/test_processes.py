"""Process lists on their way from the worker to the main process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.backends.protocol import BackendSample, GpuProcess, LaneSample
from agent.model import GpuIdentity, Instant, Lane
from agent.worker.decode import Decoder
from agent.worker.reader_pool import Post
from agent.worker.worker_messages import MessageError, encode, unseal

PROCESSES = (GpuProcess(100, 2**30, None), GpuProcess(101, None, 3))


class Channel:
    """Gives what it is told to as the processes of its slow lane."""

    key = "GPU-a"
    identity: GpuIdentity | None = None

    def __init__(self) -> None:
        self.processes: tuple[GpuProcess, ...] | None = None

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        return BackendSample(processes=self.processes if lane is Lane.SLOW else None)


class Line:
    """A post and the decoder at the other end."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.sent: list[bytes] = []
        self.at = 0.0
        self._post = Post(0, self.channel, self.sent.append, self._clock)
        self._decoder = Decoder("nvml")
        for _ in range(2):
            self._decoder.decode(encode("hello", "nvml", [["GPU-a"]], []))

    def _clock(self) -> Instant:
        self.at += 1.0
        return Instant(self.at, 1e9 + self.at)

    def read(self, lane: Lane = Lane.SLOW) -> LaneSample:
        self.sent.clear()
        self._post.owed = {lane}
        self._post.read()
        *_, sample = [self._decoder.decode(line) for line in self.sent]
        assert isinstance(sample, LaneSample)
        return sample

    def kinds(self) -> list[Any]:
        return [json.loads(unseal(line))[0] for line in self.sent]


def test_processes_arrive_with_the_samples_of_their_lane_and_are_sent_when_they_change() -> None:
    line = Line()
    assert line.read().processes is None
    line.channel.processes = PROCESSES
    assert line.read().processes == PROCESSES
    assert "processes" in line.kinds()
    assert line.read().processes == PROCESSES
    assert "processes" not in line.kinds()
    assert line.read(Lane.FAST).processes is None
    line.channel.processes = ()
    assert line.read().processes == ()
    line.channel.processes = None
    assert line.read().processes is None


ROWS = [[1, None, None, None], [2, 2**40, 3, 0.5]]


def take(rows: object) -> object:
    """What a sample says that comes after this list of processes."""
    decoder = Decoder("nvml")
    for _ in range(2):
        decoder.decode(encode("hello", "nvml", [["GPU-a"]], []))
    decoder.decode(encode("processes", 0, "slow", 1, rows))
    sample = decoder.decode(encode("sample", 0, "slow", [0, 0, 1], 1.0, 0.0, 0, []))
    assert isinstance(sample, LaneSample)
    return sample.processes


def test_a_list_of_processes_is_accepted() -> None:
    assert take(ROWS) == (GpuProcess(1, None, None), GpuProcess(2, 2**40, 3, 0.5))


@pytest.mark.parametrize(
    "rows",
    [
        7, [[1, 2]], [["1", None, None, None]], [[1.5, None, None, None]], [[True, None, None, None]],
        [[-1, None, None, None]], [[2**32, None, None, None]], [[1, "x", None, None]], [[1, 2**64, None, None]],
        [[1, None, None, 1.5]], [[1, None, None, "x"]], [None], ROWS * 3000,
    ],
)  # fmt: skip
def test_a_list_that_is_not_a_list_of_processes_is_refused(rows: object) -> None:
    with pytest.raises(MessageError):
        take(rows)
