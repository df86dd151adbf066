"""Snapshots to push, and a receiver that does what it is told and remembers what it took."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.catalogue import BY_NAME
from agent.lib.threads import Threads
from agent.model import Frame, Gpu, Instant, Layout, Node, Series, Snapshot
from tests.push.decoding import samples

POWER = BY_NAME["coldplate_gpu_power_watts"]
TICKS = BY_NAME["coldplate_ticks_total"]
GPUS = tuple(Gpu(str(number), f"GPU-0000-{number}") for number in range(3))
Answers = Callable[[int], tuple[int, dict[str, str], str]]


def watts(gpus: Sequence[Gpu] = GPUS) -> Layout:
    return Layout(tuple(Series(POWER, gpu) for gpu in gpus))


TICKED = Layout((Series(TICKS, Node()),))


class Nodes:
    """Snapshots one second apart; the layouts stay the same objects."""

    def __init__(self) -> None:
        self.number = 0
        self.power = watts()

    def snapshot(self) -> Snapshot:
        self.number += 1
        at = Instant(100.0 + self.number, 1_700_000_000.0 + self.number)
        values = tuple(100.0 * self.number + place for place in range(len(self.power)))
        return Snapshot(self.number, at, (Frame(self.power, values), Frame(TICKED, (float(self.number),))))


class Receiver(ThreadingHTTPServer):
    """`answers` gives status, headers and text for each request, by its number from 1; `read` reads what is taken."""

    daemon_threads = True

    def __init__(self, answers: Answers, read: Callable[[bytes], Any] = samples) -> None:
        self.answers = answers
        self.read = read
        self.asked: list[dict[str, str]] = []
        self.taken: list[Any] = []
        self.news = threading.Condition()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/api/v1/write"

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        for _ in range(400):
            with self.news:
                if self.news.wait_for(holds, 0.05):
                    return
        raise AssertionError(f"not within 20 s: {what}")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with server.news:
            server.asked.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, text = server.answers(len(server.asked))
            if status < 300:
                server.taken.append(server.read(body))
            server.news.notify_all()
        content = text.encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def receive() -> Iterator[Callable[..., Receiver]]:
    """Starts receivers, which end with the test."""
    running: list[Receiver] = []
    threads = Threads()

    def start(answers: Answers = lambda _: (204, {}, ""), read: Callable[[bytes], Any] = samples) -> Receiver:
        receiver = Receiver(answers, read)
        running.append(receiver)
        threads.begin("receiver", lambda: receiver.serve_forever(0.01))
        return receiver

    yield start
    for each in running:
        each.shutdown()
        each.server_close()
