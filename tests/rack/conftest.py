"""A rack on the loopback interface: peers of every kind, a clock that can be wrong, and daemons."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from agent.catalogue.node import NODE_POWER
from agent.model import Instant, Node, Reading, Series
from agent.rack.finder import HostEntry
from agent.rack.monitor import SETTLED_SECONDS, RackMonitor
from agent.rack.peer_messages import PeerFault, Report, decode
from agent.rack.peers import Member
from agent.rack.rack_options import RackOptions
from tests.frames import snapshot_of
from tests.http_client.conftest import Server

BEGAN = Instant(time.monotonic(), time.time())


def clock() -> Instant:
    """Both clocks; the wall clock cannot be set while the tests run."""
    mono = time.monotonic()
    return Instant(mono, BEGAN.wall + mono - BEGAN.mono)


def report_at(now: float, **changes: Any) -> dict[str, Any]:
    """What a peer tells at this moment of the wall clock."""
    return {"version": 1, "rack": "r1", "cluster": "", "run": "run-of-a-peer", "instance": "n2:19400",
            "job": "coldplate", "now": now, "last": int(now), "watts": [1000.0] * 8, "source": "ipmi",
            **changes}  # fmt: skip


def answer(body: bytes, status: str = "200 OK", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def tell(**changes: Any) -> Callable[[], bytes]:
    """The answer of a good peer but for these keys."""
    return lambda: answer(json.dumps(report_at(**{"now": clock().wall, **changes})).encode())


class FakePeer(Server):
    """Answers each request with what `reply` gives; None: with nothing at all."""

    def __init__(self, reply: Callable[[], bytes | None], **options: Any) -> None:
        self.reply = reply
        self.hang_up = False
        self.trickle = 0.0
        self.times: list[float] = []
        super().__init__(self._reply_to, **options)
        self.name = f"127.0.0.1:{self.port}"

    def _reply_to(self, talk: socket.socket, number: int) -> None:
        self.times.append(clock().wall)
        reply = self.reply()
        if reply is None:
            return
        if not self.trickle:
            talk.sendall(reply)
        for byte in reply if self.trickle else b"":
            talk.sendall(bytes((byte,)))
            time.sleep(self.trickle)
        if self.hang_up:
            talk.shutdown(socket.SHUT_RDWR)


OWN = Member("", "c1", "own-run-0", "n1:19400", "coldplate")
PEER = HostEntry("127.0.0.1", 1)
NAME = "127.0.0.1:1"
SERIES = {source: Series(NODE_POWER, Node(), (("source", source),)) for source in ("ipmi", "estimate")}


class Rig:
    """An agent whose time the test chooses, and which asks nobody: answers are handed to it."""

    def __init__(self, options: RackOptions) -> None:
        self.now = Instant(50.0, 1_000.5)
        self.watch = RackMonitor(OWN, options, lambda: self.now, lambda: 0.0)

    def sample(self, watts: float | None, source: str = "ipmi") -> None:
        readings = () if watts is None else (Reading(SERIES[source], watts),)
        self.watch.observe(snapshot_of(1, self.now, readings))

    def draw(self, watts: float | None, source: str = "ipmi") -> None:
        """Sample, and let a second pass."""
        self.sample(watts, source)
        self.later(1.0)

    def later(self, seconds: float) -> None:
        self.now = Instant(self.now.mono + seconds, self.now.wall + seconds)

    def values(self) -> dict[str, float]:
        readings = self.watch.frame(self.now).readings
        assert len({each.series for each in readings}) == len(readings), "a series appears once"
        return {each.metric.name.removeprefix("coldplate_rack_"): each.value for each in readings}

    def answer(self, watts: float | None, **changes: Any) -> None:
        usual = {"cluster": "c1", "instance": "n2:1", "watts": [watts] * 4, "limits": {"node_nameplate": 10_000.0}}
        report = report_at(self.now.wall, **{**usual, **changes})
        (target,) = self.watch._finder.targets
        self.watch.answered(target, json.dumps(report).encode(), self.now, self.now)

    def refuse(self) -> None:
        self.watch.failed(self.watch._finder.targets[0], PeerFault.CONNECT, "refused")

    def told(self) -> Report:
        body = self.watch.report()
        assert body is not None
        return decode(body)


def rows(rig: Rig, name: str) -> dict[str, float]:
    found = [each for each in rig.watch.frame(rig.now).readings if each.metric.name == f"coldplate_rack_{name}"]
    return {each.labels[0][1]: each.value for each in found}


@pytest.fixture
def rig() -> Iterator[Rig]:
    """A rack of two, whose other node never answers by itself."""
    made = Rig(RackOptions("r1", entries=(PEER,), nameplate=10_000.0))
    made.watch._finder.refresh()
    made.watch._settled_by = made.now.mono + SETTLED_SECONDS
    yield made
    made.watch.stop()


@pytest.fixture
def peer() -> Iterator[Callable[..., FakePeer]]:
    with ExitStack() as stack:

        def make(reply: Callable[[], bytes | None], **options: Any) -> FakePeer:
            made = FakePeer(reply, **options)
            stack.callback(made.stop)
            return made

        yield make
