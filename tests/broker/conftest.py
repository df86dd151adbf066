"""A broker on a real socket in a thread, and a management controller for it to ask."""

import contextlib
import itertools
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.broker.answering import Broker, serve
from tests.jobs.rig import Proc

IDLE = 0.02
"""Seconds without a question after which a broker of these tests ends, to be started again unless the test is over."""


class Bmc:
    """A management controller's device that answers with bytes, or fails."""

    def __init__(self, answer: bytes | OSError = b"\x00\xdc") -> None:
        self.answer = answer
        self.opened = self.closed = 0

    def open(self, path: str) -> Any:
        self.opened += 1
        return self

    def power_reading(self) -> bytes:
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.closed += 1


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    listener.listen(8)
    return listener


@contextlib.contextmanager
def in_thread(listener: socket.socket, work: Callable[[socket.socket], None]) -> Iterator[None]:
    """Run a server, again and again when it ends, until the block does."""
    over = threading.Event()

    def target() -> None:
        while not over.is_set():
            with contextlib.suppress(TimeoutError):
                work(listener)

    thread = threading.Thread(target=target)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


@pytest.fixture
def broker_at(tmp_path: Path, proc: Proc) -> Iterator[Callable[..., Path]]:
    """Starts brokers that answer these users; the path of the socket."""
    with contextlib.ExitStack() as stack:
        numbers = itertools.count()

        def start(bmc: Bmc | None = None, peers: frozenset[int] = frozenset({os.getuid()})) -> Path:
            path = tmp_path / f"broker-{next(numbers)}.sock"
            ticks = itertools.count()
            device = (lambda: "/dev/ipmi0") if bmc else (lambda: None)
            broker = Broker(lambda: float(next(ticks)), str(proc.root), device, (bmc or Bmc()).open)
            stack.enter_context(in_thread(listening(path), lambda listener: serve(listener, broker, peers, IDLE)))
            return path

        yield start
