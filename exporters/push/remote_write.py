"""Pushes snapshots to one receiver of Prometheus's remote write.

Two threads: one takes a snapshot every interval and puts it into the queue, the other empties the queue. So a receiver
that is slow or away costs no sample, and neither waits for the sampling loop, which knows nothing of them.

https://prometheus.io/docs/specs/prw/remote_write_spec/ allows to repeat what was answered with 5xx or 429. The agent
also repeats requests that were rejected for another reason than their content: an operator must correct the login or
the address, and until then the samples stay in the queue. VictoriaMetrics' agent does the same.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, field

from agent.lib.http_answers import AnswerBounds, HttpError
from agent.lib.http_client import HttpClient
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.lib.logs import LogOnce
from agent.lib.threads import KeptThread, Threads
from agent.model import Instant, Snapshot
from exporters.push.push_queue import REJECTED, PushFigures, PushPace, PushQueue, push_regularly
from exporters.push.write_request import RequestWriter, WriteRequest

BOUNDS = AnswerBounds(body=64 * 1024)
MAX_SHOWN = 200
"""Most characters of a receiver's answer that are shown."""
NOT_ABOUT_CONTENT = frozenset({401, 403, 404, 407, 408, 421, 425, 429})
_HEADERS = (
    ("Content-Encoding", "snappy"),
    ("Content-Type", "application/x-protobuf"),
    ("X-Prometheus-Remote-Write-Version", "0.1.0"),
)


class WriteRefusal(NamedTuple):
    """Why a request was not taken. Unless `is_final`, it is sent again, after at least `pause` seconds."""

    text: str
    is_final: bool = False
    pause: float = 0.0


def post(client: HttpClient, path: str, body: bytes, until: float) -> WriteRefusal | None:
    """Send a body, by a deadline on the monotonic clock; returns None if it was taken. Never raises for a receiver."""
    try:
        answer = client.deliver(HttpRequest("POST", path, _HEADERS, body), until)
    except HttpError as error:
        return WriteRefusal(client.explain(error))
    status = answer.status
    if 200 <= status < 300:
        return None
    content = answer.headers.get("location", "") if status < 400 else answer.body.decode("utf-8", "replace")
    text = f"HTTP status {status}: {client.masked(content)[:MAX_SHOWN].strip()}"
    is_final = 400 <= status < 500 and status not in NOT_ABOUT_CONTENT
    return WriteRefusal(text, is_final, parse_retry_after(answer.headers.get("retry-after", "")))


def parse_retry_after(text: str) -> float:
    """Return seconds of a Retry-After header; 0 for anything but a number of seconds."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0.0


log = logging.getLogger("coldplate.push")


class RemoteWriteSettings(Struct, frozen=True):
    """Target, interval in seconds and labels of a push; without `folder` it buffers in memory only.

    `keep` in bytes; `age` in seconds.
    """

    name: str
    target: HttpTarget
    interval: float
    labels: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    keep: float = 64 * 2.0**20
    age: float = 7200.0


class RemoteWrite:
    """One receiver. `latest` gives the newest snapshot with the series that are shown, and `clock` the time."""

    def __init__(
        self,
        settings: RemoteWriteSettings,
        latest: Callable[[], Snapshot | None],
        clock: Callable[[], Instant],
        threads: Threads,
    ) -> None:
        self.settings, self._latest, self._clock, self._threads = settings, latest, clock, threads
        self.figures = PushFigures(settings.name)
        self._queue = PushQueue(settings.folder, settings.keep, settings.age, self.figures)
        self._writer = RequestWriter(settings.labels)
        self._has_pushed = False
        self._pace = PushPace(settings.interval)
        self._client = HttpClient(settings.target, BOUNDS, lambda: clock().mono)
        self._stopping = threading.Event()
        self._work = threading.Condition()  # guards what follows
        self._fresh = False
        self._until: float | None = None
        """At the end: until when what is left may be sent, in monotonic seconds."""
        self._once = LogOnce(log)
        self._maker: KeptThread | None = None
        self._sender: KeptThread | None = None

    def start(self) -> None:
        self._maker = self._threads.begin("push", self._make)
        self._sender = self._threads.begin("push-sender", self._send)

    def stop(self, seconds: float) -> None:
        """Queue the staleness markers, send for up to `seconds`, and write the rest to the disk."""
        self._stopping.set()
        if self._maker is not None:
            self._maker.join(seconds)
        with self._work:
            self._until = self._clock().mono + seconds
            self._work.notify()
        if self._sender is not None and not self._sender.join(seconds):
            self._client.abort()
            self._sender.join(seconds)
        lost = self._queue.close()
        if lost:
            log.warning("push %s: %d samples not delivered", self.settings.name, lost)

    def _make(self) -> None:
        """Put a snapshot into the queue every interval."""
        self._queue.open(self._clock().wall)
        push_regularly(self._stopping, self._clock, self.settings.interval, self._latest, self._take)
        if self._has_pushed:
            self._put(self._writer.end(self._clock().wall))

    def _take(self, snapshot: Snapshot | None, age: float, now: Instant) -> None:
        """Push a new snapshot; of one that was pushed already, only how old it is."""
        self._has_pushed = True
        self._put([self._writer.only_age(age, now.wall)] if snapshot is None else self._writer.write(snapshot, age))

    def _put(self, requests: list[WriteRequest]) -> None:
        self._queue.put(requests, self._clock().wall)
        with self._work:
            self._fresh = True
            self._work.notify()

    def _send(self) -> None:
        while (request := self._next()) is not None:
            self._attempt(request)
        self._client.close()

    def _next(self) -> WriteRequest | None:
        """Wait for the next request that may be sent now; None when it is time to end."""
        while True:
            with self._work:
                now, until = self._clock(), self._until
                if until is not None and (now.mono >= until or self._pace.failing):
                    return None
                pause = self._pace.not_before - now.mono
                if pause > 0 and until is None:
                    self._work.wait(pause)
                    continue
                self._fresh = False
            request = self._queue.head(now.wall)
            if request is not None:
                return request
            with self._work:
                if self._until is not None and not self._fresh:
                    return None
                self._work.wait_for(lambda: self._fresh or self._until is not None)

    def _attempt(self, request: WriteRequest) -> None:
        now = self._clock().mono
        deadline = now + self.settings.target.timeout
        until = deadline if self._until is None else min(deadline, self._until)
        refusal = post(self._client, self.settings.target.path, request.body, until)
        now = self._clock().mono
        if refusal is not None and not refusal.is_final:
            self._pace.failed(now, refusal.pause)
            self.figures.failures += 1
            self._queue.failed()
            self._once.problem("away", "cannot push; retrying", facts=self._facts(refusal.text))
            return
        self._pace.answered(now)
        self._queue.done()
        facts = {"push": self.settings.name, "url": self.settings.target.shown, "bytes": self.figures.pending}
        self._once.over("away", "push recovered: sending buffered samples", facts=facts)
        if refusal is None:
            self.figures.samples += request.samples
            self.figures.bytes = (self.figures.bytes or 0) + len(request.body)
            self.figures.success = self._clock().wall
            self._once.over("refused")
        else:
            self.figures.dropped[REJECTED] += request.samples
            text = "push rejected: dropping the samples that the receiver refused"
            self._once.problem("refused", text, facts=self._facts(refusal.text))

    def _facts(self, why: str) -> dict[str, object]:
        return {"push": self.settings.name, "url": self.settings.target.shown, "error": why}
