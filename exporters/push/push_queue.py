"""The queue of one receiver: in memory while it answers, on the disk as soon as it does not; its pace, and its figures.

What is on the disk is always older than what is in memory. The disk is touched only when something was not sent before
the next request came, so an agent whose receiver answers writes nothing. A disk that fails costs the buffer alone: then
as much as fits waits in memory. Requests are sent at once, more slowly while there is a backlog, and later and later
after failures. The figures are written by a push's threads, and read by the sampling thread without waiting for them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from msgspec import Struct, field

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.logs import LogOnce
from agent.lib.threads import CLOSING_SECONDS, Threads
from agent.model import Frame, Instant, Labels, Snapshot
from exporters.pages import age_of
from exporters.push.disk_buffer import DiskBuffer
from exporters.push.write_request import WriteRequest

REJECTED, EXPIRED, OVERFLOW, DAMAGED = REASONS = ("rejected", "expired", "overflow", "damaged")
"""Why samples never reached the receiver."""


class PushFigures(Struct):
    """One push. `oldest` is the time of the oldest sample that is not sent, in wall seconds; None if all are.

    `bytes` and `pending` stay None for a push that does not know them.
    """

    name: str
    samples: int = 0
    bytes: int | None = 0
    failures: int = 0
    dropped: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    pending: int | None = 0
    oldest: float | None = None
    success: float | None = None
    """Time of the last accepted request, in seconds since the epoch."""


def _readings(push: PushFigures, now: Instant) -> Iterator[OwnReading]:
    labels = (("push", push.name),)
    oldest, success = push.oldest, push.success
    yield _one("samples_total", push.samples, labels)
    yield _one("failures_total", push.failures, labels)
    yield _one("pending_age_seconds", 0.0 if oldest is None else max(now.wall - oldest, 0.0), labels)
    if push.bytes is not None and push.pending is not None:
        yield _one("bytes_total", push.bytes, labels)
        yield _one("pending_bytes", push.pending, labels)
    for reason in REASONS:
        yield _one("samples_dropped_total", push.dropped[reason], (*labels, ("reason", reason)))
    if success is not None:
        yield _one("last_success_timestamp_seconds", success, labels)


def _one(name: str, value: float, labels: Labels) -> OwnReading:
    return OwnReading(f"coldplate_push_{name}", value, labels)


FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 30.0
"""Seconds until a failed request is sent again, doubled each time."""
MAX_RETRY_AFTER_SECONDS = 300.0
"""Seconds for which a receiver may ask us to wait, by Retry-After."""
CATCH_UP = 10
"""How many requests of a backlog are sent while one more is made: thousands of nodes catch up at the same time."""


def jitter() -> float:
    """Return a random number from 0 to 1, without the memory cost of the module `random`."""
    return os.urandom(1)[0] / 255


class PushPace:
    """`interval` is the number of seconds between two pushes. Times are monotonic seconds."""

    def __init__(self, interval: float, jitter: Callable[[], float] = jitter) -> None:
        self._interval = interval
        self._jitter = jitter
        self._failures = 0
        self.not_before = float("-inf")

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    def answered(self, now: float) -> None:
        """Note that the receiver took a request, or refused it for what is in it."""
        self._failures = 0
        self.not_before = now + self._interval / CATCH_UP

    def failed(self, now: float, retry_after: float = 0.0) -> None:
        """Note that the receiver could not take a request. `retry_after` is how many seconds it asked us to wait."""
        pause = min(FIRST_PAUSE_SECONDS * 2.0 ** min(self._failures, 30), MAX_PAUSE_SECONDS)
        self._failures += 1
        pause *= 0.5 + 0.5 * self._jitter()
        self.not_before = now + max(pause, min(retry_after, MAX_RETRY_AFTER_SECONDS))


def push_regularly(
    stopping: threading.Event,
    clock: Callable[[], Instant],
    interval: float,
    latest: Callable[[], Snapshot | None],
    push: Callable[[Snapshot | None, float, Instant], None],
) -> None:
    """Call `push` every `interval` seconds until the end, on a grid of the monotonic clock, from the first snapshot on.

    It gets the latest snapshot, None if that was pushed already, its age in seconds, and the time.
    """
    due = clock().mono
    pushed: int | None = None
    while not stopping.wait(max(due - clock().mono, 0.0)):
        now, snapshot = clock(), latest()
        if snapshot is None:
            due = now.mono + min(interval, 1.0)
            continue
        push(None if snapshot.sequence == pushed else snapshot, age_of(snapshot, now.mono), now)
        pushed = snapshot.sequence
        missed = (clock().mono - due) // interval
        due += (missed + 1) * interval


log = logging.getLogger("coldplate.push")

_T = TypeVar("_T")

MAX_MEMORY_BYTES = 4 * 2**20
"""Bytes that wait in memory where there is no disk to write them to: some 80 requests of a node with 8 GPUs."""


class PushQueue:
    """Requests in order, for two threads. `open_disk` may raise OSError; None where there is no place for files.

    `age` is for how many seconds a request is worth sending.
    """

    def __init__(self, open_disk: Callable[[], DiskBuffer] | None, age: float, figures: PushFigures) -> None:
        self._open_disk = open_disk
        self._disk: DiskBuffer | None = None
        self._age = age
        self._figures = figures
        self._memory: deque[WriteRequest] = deque()
        self._lock = threading.Lock()
        self._once = LogOnce(log)
        self._in_flight: WriteRequest | None = None
        """What is being sent, as far as is known. It is the oldest request, and the first to be dropped."""
        self._undecided: tuple[str, int] | None = None
        """Why it was dropped meanwhile, and its samples: they are lost only if it was not sent."""

    def open(self, wall: float) -> None:
        """Take over what an earlier run could not send."""
        with self._lock:
            self._try_disk(lambda _: None)
            self._expire(wall)
            self._tell()

    def put(self, requests: Iterable[WriteRequest], wall: float) -> None:
        """Add what is to be sent next. What is still in memory by now goes to the disk before it."""
        with self._lock:
            waiting = bool(self._memory) or self._on_disk > 0
            self._memory.extend(requests)
            if waiting:
                self._spill()
            self._expire(wall)
            self._bound()
            self._tell()

    def spill(self) -> None:
        """Write what is in memory to the disk, if there is one."""
        with self._lock:
            self._spill()
            self._tell()

    def head(self, wall: float) -> WriteRequest | None:
        """Return the oldest request that is not sent, and not too old at a wall second; None without one."""
        with self._lock:
            self._land()
            self._expire(wall)
            found = self._try_disk(DiskBuffer.head) if self._disk is not None else None
            self._tell()
            self._in_flight = found or (self._memory[0] if self._memory else None)
            return self._in_flight

    def done(self, request: WriteRequest) -> None:
        """Note that a request has been sent or refused, and is not to be sent again."""
        with self._lock:
            self._in_flight = self._undecided = None
            if self._memory and self._memory[0] is request:
                self._memory.popleft()
            elif self._disk is not None and self._try_disk(DiskBuffer.head) == request:
                self._try_disk(DiskBuffer.advance)
            self._tell()

    def close(self) -> int:
        """Write down what was not sent; returns the samples that are lost, because there is no disk for them."""
        with self._lock:
            self._land()
            self._spill()
            if self._disk is not None:
                self._disk.close()
            return sum(each.samples for each in self._memory)

    @property
    def _on_disk(self) -> int:
        """Bytes on the disk."""
        return 0 if self._disk is None else self._disk.bytes

    def _spill(self) -> None:
        if self._open_disk is None:
            return
        while self._memory:
            request = self._memory[0]
            dropped = self._try_disk(partial(DiskBuffer.append, request=request))
            if dropped is None:
                return
            self._memory.popleft()
            self._lose(OVERFLOW, dropped)

    def _try_disk(self, work: Callable[[DiskBuffer], _T | None]) -> _T | None:
        """Do something with the disk; None if it fails."""
        if self._open_disk is None:
            return None
        try:
            if self._disk is None:
                self._disk = self._open_disk()
            result = work(self._disk)
        except OSError as error:
            where = f"{error.filename or 'the buffer'}: {error.strerror or error}"
            text = "push %s: cannot use %s; what is not sent waits in memory"
            self._once.problem("disk", text, self._figures.name, where)
            return None
        self._once.over("disk", "push %s: the buffer on the disk can be used again", self._figures.name)
        for text, samples in self._disk.damage:
            self._figures.dropped[DAMAGED] += samples
            log.warning("push %s: %s; left out, with what is behind it", self._figures.name, text)
        self._disk.damage.clear()
        return result

    def _expire(self, wall: float) -> None:
        if self._on_disk:
            self._lose(EXPIRED, self._try_disk(lambda disk: disk.drop_older(wall - self._age)) or 0)
        while self._memory and self._memory[0].wall < wall - self._age:
            self._lose(EXPIRED, self._memory.popleft().samples)

    def _bound(self) -> None:
        while len(self._memory) > 1 and sum(len(each.body) for each in self._memory) > MAX_MEMORY_BYTES:
            self._lose(OVERFLOW, self._memory.popleft().samples)

    def _land(self) -> None:
        """Count what was being sent as lost if it was dropped meanwhile: it was not sent."""
        undecided, self._in_flight, self._undecided = self._undecided, None, None
        if undecided is not None:
            self._lose(*undecided)

    def _lose(self, reason: str, samples: int) -> None:
        oldest = self._in_flight
        if samples and oldest is not None and not (self._memory and self._memory[0] is oldest):
            samples -= oldest.samples
            self._in_flight, self._undecided = None, (reason, oldest.samples)
        if not samples:
            return
        self._figures.dropped[reason] += samples
        why = "too old" if reason == EXPIRED else "too many"
        self._once.problem("loss", "push %s: dropping the oldest samples, which are %s", self._figures.name, why)

    def _tell(self) -> None:
        on_disk = self._on_disk
        self._figures.pending = on_disk + sum(len(each.body) for each in self._memory)
        if not self._figures.pending:
            self._once.over("loss")
        oldest = self._disk.oldest if self._disk is not None and on_disk else None
        self._figures.oldest = self._memory[0].wall if oldest is None and self._memory else oldest


class Push(Protocol):
    """One receiver and what is needed to push to it."""

    @property
    def figures(self) -> PushFigures: ...

    def start(self) -> None: ...

    def stop(self, seconds: float) -> None: ...


class PushGroup:
    """Starts and stops all pushes, and makes the frame of their metrics."""

    def __init__(self, pushes: Sequence[Push], threads: Threads) -> None:
        self.pushes, self._threads = tuple(pushes), threads
        self._own = OwnSeries()

    def start(self) -> None:
        for each in self.pushes:
            each.start()

    def stop(self, seconds: float = CLOSING_SECONDS) -> None:
        """Stop all pushes at the same time. Each of their threads has at most `seconds`."""
        ends = [self._threads.begin("push-end", partial(each.stop, seconds)) for each in self.pushes]
        for each in ends:
            each.join(3 * seconds)

    def frame(self, now: Instant) -> Frame:
        """Return the metrics of the pushes. For any thread."""
        return self._own.frame(reading for each in self.pushes for reading in _readings(each.figures, now))
