"""The queue of one receiver: in memory while it answers, on the disk as soon as it does not; its pace, and its figures.

What is on the disk is always older than what is in memory. The disk is touched only when something was not sent before
the next request came, so an agent whose receiver answers writes nothing. A disk that fails costs the buffer alone: then
as much as fits waits in memory. Requests are sent at once, more slowly while there is a backlog, and later and later
after failures. The figures are written by a push's threads, and read by the sampling thread without waiting for them.
"""

import logging
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct, field

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.lib.http_client import jitter
from agent.lib.logs import LogOnce
from agent.lib.state_files import DamagedError, clear_unfinished, read_whole, replace_file, seal, unseal
from agent.lib.threads import CLOSING_SECONDS, Threads
from agent.model import Frame, Instant, Labels, Snapshot
from exporters.pages import age_of
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


FORM = "coldplate-push-1"
_FILE_NAME = re.compile(r"([0-9]{10})-([0-9]{1,12}\.[0-9]{6})-([0-9]{1,9})\.request")


class StoredRequest(Struct, frozen=True, gc=False):
    """A request on the disk: its time in wall seconds, its samples, and the bytes and the number of its file."""

    wall: float
    samples: int
    size: int
    number: int


class RequestFolder:
    """The files below `path`: one for each request that was not sent. Every method raises OSError.

    A file's name has its place in the order, and the time and number of the request's samples, so that a start reads no
    contents. It appears whole, has a checksum, and is removed when its request has been sent: a crash leaves nothing
    torn, and what was sent is not sent again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._newest = 0

    def file_of(self, request: StoredRequest) -> Path:
        return self._path / f"{request.number:010d}-{request.wall:.6f}-{request.samples}.request"

    def load(self) -> list[StoredRequest]:
        """Return what an earlier run left, in order. Call it once, before the other methods."""
        self._path.mkdir(parents=True, exist_ok=True)
        clear_unfinished(self._path)
        found = []
        with os.scandir(self._path) as entries:
            for entry in entries:
                if match := _FILE_NAME.fullmatch(entry.name):
                    number, wall, samples = match.groups()
                    size = entry.stat(follow_symlinks=False).st_size
                    found.append(StoredRequest(float(wall), int(samples), size, int(number)))
        found.sort(key=lambda each: each.number)
        self._newest = found[-1].number if found else 0
        return found

    def write(self, request: WriteRequest) -> StoredRequest:
        content = seal(FORM, request.body)
        stored = StoredRequest(request.wall, request.samples, len(content), self._newest + 1)
        replace_file(self.file_of(stored), content)
        self._newest = stored.number
        return stored

    def read(self, request: StoredRequest) -> bytes:
        """Return the body of a request. Raises DamagedError, and OSError."""
        body = unseal(FORM, read_whole(self.file_of(request)))
        if not body:
            raise DamagedError("holds no request")
        return body

    def remove(self, request: StoredRequest) -> None:
        self.file_of(request).unlink(missing_ok=True)


class PushQueue:
    """Requests in order, for two threads. Without `folder` all wait in memory.

    `limit` is the most bytes on the disk, and `age` for how many seconds a request is worth sending.
    """

    def __init__(self, folder: Path | None, limit: float, age: float, figures: PushFigures) -> None:
        self._folder = None if folder is None else RequestFolder(folder)
        self._loaded = False
        self._limit = limit
        self._age = age
        self._figures = figures
        self._lock = threading.Lock()
        self._stored: deque[StoredRequest] = deque()
        self._in_memory: deque[WriteRequest] = deque()
        """All that is on the disk is older."""
        self._in_flight: StoredRequest | WriteRequest | None = None
        """The request that is being sent, as far as is known: it is not dropped meanwhile."""
        self._once = LogOnce(log)

    def open(self, wall: float) -> None:
        """Take over what an earlier run could not send."""
        with self._lock:
            self._load()
            self._drop(wall)
            self._tell()

    def put(self, requests: Iterable[WriteRequest], wall: float) -> None:
        """Add what is to be sent next. If anything waits by now, all of it goes to the disk."""
        with self._lock:
            spills = bool(self._waiting())
            self._in_memory.extend(requests)
            if spills:
                self._spill()
            self._drop(wall)
            self._tell()

    def head(self, wall: float) -> WriteRequest | None:
        """Return the oldest request that is not too old at a wall second, to be sent; None without one.

        Call `done` or `failed` next.
        """
        with self._lock:
            self._in_flight = None
            self._drop(wall)
            found = self._read_first()
            self._tell()
            return found

    def done(self) -> None:
        """Note that the request in flight has been sent or refused, and is not to be sent again."""
        with self._lock:
            if self._in_flight is not None:
                self._forget(self._in_flight)
                self._in_flight = None
            self._tell()

    def failed(self) -> None:
        """Note that the request in flight is to be sent again: what is in memory goes to the disk, if there is one."""
        with self._lock:
            self._in_flight = None
            self._spill()
            self._tell()

    def close(self) -> int:
        """Write down what was not sent; returns the samples that are lost, because there is no disk for them."""
        with self._lock:
            self._spill()
            return sum(each.samples for each in self._in_memory)

    def _load(self) -> bool:
        """Return whether the folder can be used and its files are in the queue."""
        if not self._loaded and self._folder is not None:
            found = self._try_disk(self._folder.load)
            if found is not None:
                self._loaded = True
                self._stored.extend(found)
        return self._loaded

    def _spill(self) -> None:
        if self._folder is None or not self._load():
            return
        while self._in_memory:
            stored = self._try_disk(partial(self._folder.write, self._in_memory[0]))
            if stored is None:
                return
            self._stored.append(stored)
            if self._in_memory.popleft() is self._in_flight:
                self._in_flight = stored

    def _read_first(self) -> WriteRequest | None:
        while self._stored:
            first = self._stored[0]
            body = self._try_disk(partial(self._read, first))
            if body is None:  # the disk fails: meanwhile, what is in memory is sent
                break
            if body:
                self._in_flight = first
                return WriteRequest(first.wall, first.samples, body)
        self._in_flight = self._in_memory[0] if self._in_memory else None
        return self._in_flight

    def _read(self, request: StoredRequest) -> bytes:
        """Return a body from the disk; an empty one if it is damaged: then it is lost. Raises OSError."""
        assert self._folder is not None
        try:
            return self._folder.read(request)
        except (DamagedError, FileNotFoundError) as error:
            why = "is gone" if isinstance(error, FileNotFoundError) else str(error)
        log.warning("push %s: %s: %s; left out", self._figures.name, self._folder.file_of(request), why)
        self._figures.dropped[DAMAGED] += request.samples
        self._forget(request)
        return b""

    def _forget(self, request: StoredRequest | WriteRequest) -> None:
        if isinstance(request, WriteRequest):
            self._in_memory.remove(request)
        elif self._folder is not None:
            self._stored.remove(request)
            self._try_disk(partial(self._folder.remove, request))

    def _try_disk(self, work: Callable[[], _T]) -> _T | None:
        """Do something with the disk; None if it fails."""
        try:
            result = work()
        except OSError as error:
            where = f"{error.filename or 'the buffer'}: {error.strerror or error}"
            text = "push %s: cannot use %s; what is not sent waits in memory"
            self._once.problem("disk", text, self._figures.name, where)
            return None
        self._once.over("disk", "push %s: the buffer on the disk can be used again", self._figures.name)
        return result

    def _drop(self, wall: float) -> None:
        """Drop the oldest requests while they are too old at a wall second, or too many."""
        for each in takewhile(lambda each: each.wall < wall - self._age, self._waiting()):
            if each is not self._in_flight:
                self._lose(each, EXPIRED)
        self._shrink(self._stored, self._limit)
        self._shrink(self._in_memory, MAX_MEMORY_BYTES, least=1)

    def _shrink(self, requests: Iterable[StoredRequest | WriteRequest], limit: float, least: int = 0) -> None:
        """Drop the oldest of these while they have more bytes than that, but leave this number."""
        listed = list(requests)
        size = sum(each.size for each in listed)
        for each in listed[: len(listed) - least]:
            if size > limit and each is not self._in_flight:
                size -= each.size
                self._lose(each, OVERFLOW)

    def _waiting(self) -> list[StoredRequest | WriteRequest]:
        """Return all requests, the oldest first."""
        return [*self._stored, *self._in_memory]

    def _lose(self, request: StoredRequest | WriteRequest, reason: str) -> None:
        self._forget(request)
        self._figures.dropped[reason] += request.samples
        why = "too old" if reason == EXPIRED else "too many"
        self._once.problem("loss", "push %s: dropping the oldest samples, which are %s", self._figures.name, why)

    def _tell(self) -> None:
        waiting = self._waiting()
        self._figures.pending = sum(each.size for each in waiting)
        self._figures.oldest = waiting[0].wall if waiting else None
        if not waiting:
            self._once.over("loss")


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
