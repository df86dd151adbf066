"""The push as a whole, against a receiver that answers as it is told."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.lib.http_target import HttpTarget
from agent.lib.threads import Threads
from agent.model import Instant, Snapshot
from exporters.push import push_queue
from exporters.push.push_queue import REJECTED
from exporters.push.remote_write import RemoteWrite, RemoteWriteSettings
from tests.push.conftest import Nodes
from tests.push.decoding import Sent

INTERVAL = 0.02


def now() -> Instant:
    return Instant(time.monotonic(), time.time())


class Source:
    """Gives the snapshots that the test wants to be pushed."""

    def __init__(self) -> None:
        self.nodes = Nodes()
        self.current: Snapshot | None = None

    def next(self) -> None:
        self.current = self.nodes.snapshot()

    def latest(self) -> Snapshot | None:
        return self.current


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_queue, "FIRST_PAUSE_SECONDS", 0.05)


@pytest.fixture
def push() -> Iterator[Callable[..., RemoteWrite]]:
    """Starts pushes, which end with the test."""
    running: list[RemoteWrite] = []

    def start(url: str, source: Source, folder: Path | None = None, **options) -> RemoteWrite:
        login = {name: options.pop(name) for name in ("bearer_token_file",) if name in options}
        target = HttpTarget(url, timeout=5.0, **login)
        age = options.pop("age", 1e12)
        settings = RemoteWriteSettings("central", target, INTERVAL, {"job": "coldplate"}, folder, age=age, **options)
        made = RemoteWrite(settings, source.latest, now, Threads())
        running.append(made)
        made.start()
        return made

    yield start
    for each in running:
        each.stop(0.2)


def ticks(requests: list[list[Sent]]) -> list[float]:
    return [
        each.value for request in requests for each in request if each.name == "coldplate_ticks_total" and not each.ends
    ]


def test_each_snapshot_is_pushed_once_and_then_only_its_age(receive, push) -> None:
    source, receiver = Source(), receive()
    source.next()
    push(receiver.url, source)
    receiver.until("the first two", lambda: len(receiver.taken) >= 3)
    first, *others = receiver.taken[:3]
    assert len(first) == 5
    assert [[each.name for each in request] for request in others] == [["coldplate_sample_age_seconds"]] * 2
    assert others[0][0].stamp < others[1][0].stamp
    assert others[0][0].value < others[1][0].value or others[0][0].value == 0.0
    source.next()
    receiver.until("the next", lambda: ticks(receiver.taken) == [1.0, 2.0])
    asked = receiver.asked[0]
    assert asked["content-encoding"] == "snappy"
    assert asked["content-type"] == "application/x-protobuf"
    assert asked["x-prometheus-remote-write-version"] == "0.1.0"


def test_at_the_end_the_series_end(receive, push) -> None:
    source, receiver = Source(), receive()
    source.next()
    made = push(receiver.url, source)
    receiver.until("the first", lambda: len(receiver.taken) >= 1)
    made.stop(5.0)
    assert {each.labels for each in receiver.taken[-1]} == {each.labels for each in receiver.taken[0]}
    assert all(each.ends for each in receiver.taken[-1])


def test_a_busy_receiver_gets_everything_later_and_in_order(receive, push, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    well = threading.Event()
    source = Source()
    receiver = receive(lambda _: (204, {}, "") if well.is_set() else (503, {"Retry-After": "0"}, "busy, come later"))
    made = push(receiver.url, source, tmp_path)
    for number in range(1, 6):
        source.next()
        receiver.until(f"snapshot {number} waits", lambda number=number: made._last is source.current)
    receiver.until("a refusal", lambda: len(receiver.asked) >= 1)
    assert made.figures.pending > 0
    well.set()
    receiver.until("all of them", lambda: ticks(receiver.taken) == [1.0, 2.0, 3.0, 4.0, 5.0])
    told = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(told) == 1
    assert "busy, come later" in str(told[0].__dict__["facts"])
    assert made.figures.failures >= 1


def test_what_the_receiver_refuses_is_dropped_counted_and_said_once(receive, push, caplog) -> None:
    source = Source()
    receiver = receive(lambda number: (400, {}, "out of order sample") if number <= 3 else (204, {}, ""))
    source.next()
    made = push(receiver.url, source)
    receiver.until("it goes on", lambda: len(receiver.taken) >= 2)
    assert ticks(receiver.taken) == []
    assert made.figures.dropped[REJECTED] == 7
    assert made.figures.failures == 0
    (told,) = caplog.records
    assert "out of order sample" in str(told.__dict__["facts"])


@pytest.mark.parametrize("status", [401, 404, 429, 302])
def test_what_is_not_about_the_content_is_repeated(receive, push, status: int) -> None:
    source = Source()
    receiver = receive(lambda number: (status, {"Location": "/x"}, "no") if number == 1 else (204, {}, ""))
    source.next()
    made = push(receiver.url, source)
    receiver.until("it is repeated", lambda: ticks(receiver.taken) == [1.0])
    assert sum(made.figures.dropped.values()) == 0


def test_what_a_run_could_not_send_the_next_one_sends_first(receive, push, tmp_path: Path) -> None:
    source, away = Source(), receive(lambda _: (503, {}, ""))
    source.next()
    first = push(away.url, source, tmp_path)
    away.until("it waits", lambda: len(away.asked) >= 1)
    first.stop(0.2)
    well = receive()
    source.next()
    push(well.url, source, tmp_path)
    well.until("both", lambda: ticks(well.taken) == [1.0, 2.0])
    ends = next(number for number, request in enumerate(well.taken) if any(each.ends for each in request))
    assert ticks(well.taken[:ends]) == [1.0]


def test_without_a_snapshot_nothing_is_sent(receive, push) -> None:
    source, receiver = Source(), receive()
    made = push(receiver.url, source)
    made.stop(1.0)
    assert receiver.asked == []
