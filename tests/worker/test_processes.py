"""Process lists on their way from the worker to the main process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.backends.protocol import GpuProcess, LaneSample, Sample
from agent.model import GpuIdentity, Instant, Lane
from agent.worker.crew import Post
from agent.worker.wire import Decoder, WireError, encode

PROCESSES = (GpuProcess(100, 2**30, None), GpuProcess(101, None, 3))


class Channel:
    """Gives what it is told to as the processes of its slow lane."""

    key = "GPU-a"
    identity: GpuIdentity | None = None

    def __init__(self) -> None:
        self.processes: tuple[GpuProcess, ...] | None = None

    def read(self, lane: Lane, now: Instant) -> Sample:
        return Sample(processes=self.processes if lane is Lane.SLOW else None)


class Line:
    """A post and the decoder at the other end."""

    def __init__(self) -> None:
        self.channel = Channel()
        self.sent: list[bytes] = []
        self._post = Post(0, self.channel, self.sent.append, lambda: Instant(1.0, 2.0))
        self._decoder = Decoder()
        self._decoder.decode(encode("hello", "nvml", [["GPU-a"]]))

    def read(self, lane: Lane = Lane.SLOW) -> LaneSample:
        self.sent.clear()
        self._post.owed = {lane}
        self._post.read()
        *_, sample = [self._decoder.decode(line) for line in self.sent]
        assert isinstance(sample, LaneSample)
        return sample

    def kinds(self) -> list[Any]:
        return [json.loads(line)[0] for line in self.sent]


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


@pytest.mark.parametrize("rows", [7, [[1, 2]], [["1", None, None]], [[1.5, None, None]], [[1, "x", None]], [None]])
def test_a_list_that_is_no_list_of_processes_is_refused(rows: object) -> None:
    with pytest.raises(WireError):
        Decoder().decode(encode("processes", 0, "slow", rows))
