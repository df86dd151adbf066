"""Snapshots to push, and a receiver that does what it is told and remembers what it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agent.catalogue import BY_NAME
from agent.model import Frame, Gpu, Instant, Layout, Node, Series, Snapshot
from tests.notify.conftest import Listen, Listener, Post, listen
from tests.push.decoding import samples

__all__ = ["listen"]

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


class Receiver:
    """`answers` gives status, headers and text for each request, by its number from 1; `read` reads what is taken."""

    def __init__(self, listener: Listener, answers: Answers, read: Callable[[bytes], Any]) -> None:
        self.address = listener.url
        self.url = f"{listener.url}/api/v1/write"
        self.taken: list[Any] = []
        self._listener = listener
        self._answers, self._read = answers, read
        listener.answer = self._answer

    @property
    def asked(self) -> list[dict[str, str]]:
        """The headers of each request."""
        return [{name.lower(): value for name, value in post.headers.items()} for post in self._listener.posts]

    def _answer(self, post: Post) -> tuple[int, bytes]:
        status, self._listener.headers, text = self._answers(len(self._listener.posts))
        if status < 300:
            self.taken.append(self._read(post.body))
        return status, text.encode()


@pytest.fixture
def receive(listen: Listen) -> Callable[..., Receiver]:
    """Starts receivers, which end with the test."""

    def start(answers: Answers = lambda _: (204, {}, ""), read: Callable[[bytes], Any] = samples) -> Receiver:
        return Receiver(listen(), answers, read)

    return start
