"""Snapshots to push, and a receiver that does what it is told and remembers what it took."""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pytest

from agent.catalogue import BY_NAME
from agent.model import Frame, Gpu, Instant, Layout, Node, Series, Snapshot
from tests.notify.conftest import Listen, Listener, Post, listen

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
        return [{name.lower(): value for name, value in post.headers.items()} for post in self._listener.posts]

    def _answer(self, post: Post) -> tuple[int, bytes]:
        status, self._listener.headers, text = self._answers(len(self._listener.posts))
        if status < 300:
            self.taken.append(self._read(post.body))
        return status, text.encode()


@pytest.fixture
def receive(listen: Listen) -> Callable[..., Receiver]:

    def start(answers: Answers = lambda _: (204, {}, ""), read: Callable[[bytes], Any] = samples) -> Receiver:
        return Receiver(listen(), answers, read)

    return start


# Snappy and Protocol Buffers read as their documents say it, and not as our code writes them.
class Sent(NamedTuple):
    """One sample as the receiver gets it; `stamp` in milliseconds."""

    labels: tuple[tuple[str, str], ...]
    bits: int
    stamp: int

    @property
    def name(self) -> str:
        return dict(self.labels)["__name__"]

    @property
    def value(self) -> float:
        return float(struct.unpack("<d", self.bits.to_bytes(8, "little"))[0])

    @property
    def ends(self) -> bool:
        return self.bits == 0x7FF0000000000002


def plain(body: bytes) -> bytes:
    """What a block of snappy's raw format holds."""
    length, at = _varint(body, 0)
    made = bytearray()
    while at < len(body):
        tag = body[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            size = tag >> 2
            if size >= 60:
                width = size - 59
                size = int.from_bytes(body[at : at + width], "little")
                at += width
            made += body[at : at + size + 1]
            assert at + size + 1 <= len(body)
            at += size + 1
            continue
        assert kind in (2, 3), "the short copies are not used"
        width = 2 if kind == 2 else 4
        distance = int.from_bytes(body[at : at + width], "little")
        at += width
        assert 0 < distance <= len(made)
        for _ in range((tag >> 2) + 1):
            made.append(made[-distance])
    assert len(made) == length
    return bytes(made)


def samples(body: bytes) -> list[Sent]:
    """The samples of a request's body; labels must be sorted, unique and not empty."""
    found = []
    for number, series in _fields(plain(body)):
        assert number == 1
        labels = []
        for inner, content in _fields(series):
            if inner == 1:
                pair = dict(_fields(content))
                labels.append((pair[1].decode(), pair[2].decode()))
            else:
                assert inner == 2
                sample = dict(_fields(content))
                found.append(Sent(tuple(labels), sample[1], sample[2]))
        names = [name for name, _ in labels]
        assert names == sorted(set(names))
        assert all(value for _, value in labels)
    return found


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
        elif kind == 1:
            yield key >> 3, int.from_bytes(message[at : at + 8], "little")
            at += 8
        else:
            assert kind == 2
            length, at = _varint(message, at)
            assert at + length <= len(message)
            yield key >> 3, message[at : at + length]
            at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
