"""Receivers of every temper on the loopback, and the real Alertmanager."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from email.utils import formatdate
from functools import cached_property
from http import HTTPStatus
from typing import Any

import pytest

from agent.lib.http_target import HttpTarget
from agent.model import Alert, Instant, Phase
from alerts.notify.delivery import Pace
from alerts.notify.receiver import Counts, Notice
from tests.http_client.conftest import Server, serve
from tests.servers import Alertmanager as RealAlertmanager

__all__ = ["serve"]

SWIFT = Pace(first=0.02, longest=0.08)
"""So that a test need not wait."""


def make_alert(
    name: str = "GpuHot",
    fired_at: float | None = 1000.0,
    resolved_at: float | None = None,
    annotations: dict[str, str] | None = None,
    value: float = 91.0,
    **labels: str,
) -> Alert:
    phase = Phase.PENDING if fired_at is None else Phase.FIRING if resolved_at is None else Phase.RESOLVED
    pairs = tuple(sorted({"alertname": name, **labels}.items()))
    active_at = 900.0 if fired_at is None else fired_at
    return Alert(name, pairs, phase, value, active_at, fired_at, resolved_at, annotations or {})


def make_notice(*arguments: Any, valid_for: float = 240.0, **labels: Any) -> Notice:
    return Notice(make_alert(*arguments, **labels), time.time() + valid_for)


def seconds(text: str) -> float:
    """Go leaves out the zeros at the end of a fraction, which 3.10 does not read."""
    whole, _, fraction = text.removesuffix("Z").partition(".")
    return datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")


class Ear:
    """A receiver that remembers what it was handed: (labels, phase, valid_until) and when."""

    url = ""
    queued = 0

    def __init__(self, name: str = "ear", repeats: bool = True) -> None:
        self.name = name
        self.repeats = repeats
        self.counts = Counts()
        self.heard: list[tuple[float, Notice]] = []
        self.stopped: list[float] = []

    def accept_notices(self, notices: Sequence[Notice], at: float) -> None:
        self.heard.extend((at, notice) for notice in notices)

    def stop(self, grace: float) -> None:
        self.stopped.append(grace)

    def phases(self) -> list[tuple[float, str]]:
        return [(at, notice.alert.phase.value) for at, notice in self.heard]


class Post:
    def __init__(self, path: str, headers: dict[str, str], body: bytes) -> None:
        self.path = path
        self.headers = headers
        self.body = body

    @cached_property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def alerts(self) -> list[dict[str, Any]]:
        return self.json if isinstance(self.json, list) else self.json["alerts"]

    @property
    def names(self) -> list[str]:
        return [alert["labels"]["alertname"] for alert in self.alerts]


class Listener(Server):
    """Takes posts, and gives each the status and text of `answer` once `gate` is open."""

    def __init__(self, port: int = 0) -> None:
        self.posts: list[Post] = []
        self.answer: Callable[[Post], tuple[int, bytes]] = lambda post: (200, b"")
        self.headers: dict[str, str] = {}
        self.gate = threading.Event()
        self.gate.set()
        super().__init__(lambda held, number: None, port=port)

    def take(self, held: socket.socket, question: bytes, body: bytes) -> None:
        line, *fields = question.decode("latin-1").split("\r\n")
        post = Post(line.split()[1], dict(each.split(": ", 1) for each in fields), body)
        self.posts.append(post)
        self.gate.wait(5)
        status, text = self.answer(post)
        headers = {"Date": formatdate(usegmt=True), "Content-Length": len(text), **self.headers}
        head = [
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
            *(f"{key}: {value}" for key, value in headers.items()),
        ]
        held.sendall("\r\n".join([*head, "", ""]).encode() + text)

    def stop(self) -> None:
        self.gate.set()
        super().stop()

    @property
    def accepted(self) -> list[Post]:
        return [post for post in self.posts if self.answer(post)[0] == 200]

    def received(self) -> list[str]:
        return [name for post in self.posts for name in post.names]


Listen = Callable[..., Listener]


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Starts listeners, `listen(port)`, which end with the test."""
    with ExitStack() as stack:

        def start(port: int = 0) -> Listener:
            listener = Listener(port)
            stack.callback(listener.stop)
            return listener

        yield start


@pytest.fixture
def listener(listen: Listen) -> Listener:
    return listen()


@pytest.fixture
def receive() -> Iterator[Callable[..., Any]]:
    """Makes HTTP receivers, `receive(Alertmanager, url, ...)`, and stops them; the node's clock is `off` by seconds."""
    made: list[Any] = []

    def build(
        kind: Any,
        url: str,
        timeout: float = 2.0,
        pace: Pace = SWIFT,
        options: Any = None,
        off: float = 0.0,
        **target: Any,
    ) -> Any:
        def off_clock() -> Instant:
            return Instant(time.monotonic(), time.time() + off)

        made.append(kind(HttpTarget(url, timeout=timeout, **target), off_clock, pace=pace, **(options or {})))
        return made[-1]

    yield build
    for each in made:
        each.stop(0)


@pytest.fixture
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., RealAlertmanager]]:
    """Starts Alertmanagers, below a path prefix as behind a proxy: `alertmanager(webhook=URL)`."""
    with ExitStack() as stack:

        def start(webhook: str = "") -> RealAlertmanager:
            config = {
                "route": {"receiver": "r", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"},
                "receivers": [{"name": "r", "webhook_configs": [{"url": webhook}] if webhook else []}],
            }
            folder = tmp_path_factory.mktemp("alertmanager")
            running = RealAlertmanager(folder, json.dumps(config), "/some/prefix")
            stack.callback(running.stop)
            running.start()
            return running

        yield start
