"""Receivers of every temper on the loopback, and the real Alertmanager."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.lib.http_target import HttpTarget
from agent.model import Alert, Instant, Phase
from alerts.notify.delivery import Pace
from alerts.notify.receiver import Counts, Notice
from tests.http_client.conftest import serve
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

    def put(self, notices: Sequence[Notice], at: float) -> None:
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


Answer = tuple[int, bytes]


class Listener:
    def __init__(self) -> None:
        self.posts: list[Post] = []
        self.connections = 0
        self.answer: Callable[[Post], Answer] = lambda post: (200, b"")
        self.headers: dict[str, str] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.url = ""
        self.port = 0

    @property
    def accepted(self) -> list[Post]:
        return [post for post in self.posts if self.answer(post)[0] == 200]

    def received(self) -> list[str]:
        return [name for post in self.posts for name in post.names]


def _handler(listener: Listener) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 10

        def setup(self) -> None:
            super().setup()
            listener.connections += 1

        def do_POST(self) -> None:
            post = Post(self.path, dict(self.headers.items()), self.rfile.read(int(self.headers["Content-Length"])))
            listener.posts.append(post)
            listener.gate.wait(5)
            status, text = listener.answer(post)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            for name, value in listener.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *arguments: object) -> None:
            pass

        def handle(self) -> None:
            with contextlib.suppress(ConnectionError):
                super().handle()

    return Handler


Listen = Callable[..., Listener]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, listener: Listener) -> None:
        self.open: list[socket.socket] = []
        super().__init__(("127.0.0.1", port), _handler(listener))

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self.open.append(connection)
        return connection, address


@pytest.fixture
def listen() -> Iterator[Listen]:
    """Starts listeners, `listen(port)`, which end with the test."""
    with ExitStack() as stack:

        def start(port: int = 0) -> Listener:
            listener = Listener()
            server = _Server(port, listener)
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()

            def stop() -> None:
                listener.gate.set()
                server.shutdown()
                thread.join()
                for connection in server.open:
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                server.server_close()

            stack.callback(stop)
            listener.port = server.server_address[1]
            listener.url = f"http://127.0.0.1:{listener.port}"
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
        kind: Any, url: str, timeout: float = 2.0, pace: Pace = SWIFT, options: Any = None, off: float = 0.0,
        **target: Any,
    ) -> Any:  # fmt: skip
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
