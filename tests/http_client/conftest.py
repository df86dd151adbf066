"""Servers that do to each connection what a test wants, and a client for them."""

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from agent.lib.http_answers import AnswerBounds, HttpAnswer
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget

Treat = Callable[[socket.socket, int], None]
"""What is done to a connection for each question that came over it; the number is that of the question, from 1."""
Wrap = Callable[[socket.socket], socket.socket]

BOUNDS = AnswerBounds(body=64 * 1024)
ASK = HttpRequest("GET", "/x", (("Accept", "application/json"),))


class Server:
    """Listens on the loopback; `connections` and `questions` are what came."""

    def __init__(self, treat: Treat, wrap: Wrap | None = None, host: str = "127.0.0.1", port: int = 0) -> None:
        self._treat = treat
        self._wrap = wrap
        self._listener = socket.create_server((host, port))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self.questions: list[bytes] = []
        self.url = f"http://{host}:{self.port}"
        self._threads[0].start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for each in self._open:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(each, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                held, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(held)
            self._threads.append(threading.Thread(target=self._talk, args=(held,)))
            self._threads[-1].start()

    def _talk(self, held: socket.socket) -> None:
        with held, contextlib.suppress(OSError):
            if self._wrap is None:
                self._answer(held)
                return
            with self._wrap(held) as wrapped:
                self._open.append(wrapped)
                self._answer(wrapped)

    def _answer(self, held: socket.socket) -> None:
        rest = b""
        while data := held.recv(65536):
            rest += data
            while b"\r\n\r\n" in rest:
                question, _, behind = rest.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)\r\ncontent-length: (\d+)", question)
                size = int(length[1]) if length else 0
                if len(behind) < size:
                    break
                rest = behind[size:]
                self.take(held, question, behind[:size])

    def take(self, held: socket.socket, question: bytes, body: bytes) -> None:
        """Treat a request, once it is whole."""
        self.questions.append(question)
        self._treat(held, len(self.questions))


class Asker(HttpClient):
    def ask(self, within: float = 5.0, request: HttpRequest = ASK) -> HttpAnswer:
        return self.exchange(request, time.monotonic() + within)


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    with ExitStack() as stack:

        def start(treat: Treat, **options: Any) -> Server:
            server = Server(treat, **options)
            stack.callback(server.stop)
            return server

        yield start


@pytest.fixture
def asker() -> Iterator[Callable[..., Asker]]:
    with ExitStack() as stack:

        def make(
            port: int, silence: float = float("inf"), host: str = "127.0.0.1", scheme: str = "http", **options: Any
        ) -> Asker:
            target = HttpTarget(f"{scheme}://{host}:{port}", **options)
            return stack.enter_context(contextlib.closing(Asker(target, BOUNDS, time.monotonic, silence)))

        yield make
