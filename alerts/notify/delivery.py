"""Delivers alerts to one HTTP receiver, in a thread of its own, from a bounded queue with the newest state of each
alert.

A receiver that was away needs the present state, not its history; so an outage of any length uses no more memory than
there are alerts. If the server itself is the problem (down, slow, busy, 5xx, a login refused), delivery is retried,
with backoff and indefinitely. If the server rejects the content (400), alerts are sent one by one, and only those
rejected individually are dropped: Alertmanager has stored the others.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf

from msgspec import Struct

from agent.lib.http_answers import AnswerBounds, HttpAnswer, HttpError
from agent.lib.http_client import DENIED, HttpClient, jitter
from agent.lib.http_link import HttpRequest
from agent.lib.http_target import HttpTarget
from agent.lib.logs import LogOnce
from agent.lib.threads import KeptThread, Threads
from agent.model import Instant, Labels, Phase
from alerts.notify.receiver import Counts, Notice, ServerClock

CAPACITY = 10_000
"""As many as Prometheus queues for its Alertmanagers."""


class NotificationQueue:
    """Notices by the labels of their alert, the oldest first. Methods return how many were lost.

    With `expires`, a firing alert is not given out once it is no longer valid: to Alertmanager a past endsAt would be
    its end.
    """

    def __init__(self, capacity: int = CAPACITY, expires: bool = True) -> None:
        self._capacity = capacity
        self._expires = expires
        self._waiting: OrderedDict[Labels, Notice] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, notices: Iterable[Notice]) -> int:
        """Add notices, each replacing an older state of the same alert; returns how many no longer fitted."""
        # So a new incident may replace the undelivered end of the one before. To a receiver they are one alert, since
        # their labels are the same: it keeps firing, and Alertmanager keeps the earlier startsAt.
        dropped = 0
        for notice in notices:
            self._waiting[notice.alert.labels] = notice
            if len(self._waiting) > self._capacity:
                self._waiting.popitem(last=False)
                dropped += 1
        return dropped

    def take_batch(self, limit: int, now: float) -> tuple[list[Notice], int]:
        """Take at most `limit` of the oldest, at a time in wall seconds, and how many were no longer valid."""
        batch: list[Notice] = []
        outdated = 0
        while self._waiting and len(batch) < limit:
            _, notice = self._waiting.popitem(last=False)
            if self._expires and notice.alert.phase is Phase.FIRING and notice.valid_until <= now:
                outdated += 1
            else:
                batch.append(notice)
        return batch, outdated

    def give_back(self, notices: Sequence[Notice], first: bool) -> int:
        """Put back what was taken, at either end, unless there is a newer state; returns how many no longer fitted."""
        dropped = 0
        for notice in reversed(notices) if first else notices:
            labels = notice.alert.labels
            if labels in self._waiting:
                continue
            if len(self._waiting) >= self._capacity:
                dropped += 1
                continue
            self._waiting[labels] = notice
            self._waiting.move_to_end(labels, last=not first)
        return dropped

    def drain(self) -> list[Notice]:
        """Take out all, the oldest first."""
        notices = list(self._waiting.values())
        self._waiting.clear()
        return notices


log = logging.getLogger("coldplate.notify")

ABOUT_CONTENT = frozenset({400, 413, 422})
"""Statuses that mean that this batch has something wrong in it, or is too large; all others are about the server."""
BOUNDS = AnswerBounds(body=64 * 1024)
_JSON = (("Content-Type", "application/json"),)
MAX_ANSWER_CHARACTERS = 200
"""Most characters of a server's answer that are shown."""
LAST_WORD_SECONDS = 0.5
"""Seconds that a thread has to end once its connection has been cut."""
REMEMBERED = 1000
"""Most rejected alerts that are remembered as already logged."""


class Pace(Struct, frozen=True):
    """How much to send at once, and how long to wait after failures: from `first` seconds, doubled up to `longest`."""

    first: float = 1.0
    longest: float = 30.0
    batch: int = 64
    capacity: int = CAPACITY


class _UnreachableError(Exception):
    """There was no answer, or none that is usable. The text says why."""


class _RefusedError(Exception):
    """The content is wrong, not the server."""


class HttpReceiver:
    """What the HTTP receivers have in common: all but address and encoding. The thread starts with the first notice."""

    name = "http"
    path = ""
    """The path that is added to the receiver's address."""
    repeats = True
    expires = True
    """Whether it compares the times that it receives with its own clock: to it an alert may end by itself."""

    def __init__(
        self,
        target: HttpTarget,
        clock: Callable[[], Instant],
        external_url: str = "",
        pace: Pace | None = None,
        *,
        jitter: Callable[[], float] = jitter,
        threads: Threads | None = None,
    ) -> None:
        """`external_url` is the address of coldplate's own pages. Raises ValueError."""
        pace = pace or Pace()
        self.target = target
        self.external_url = external_url
        self.check()
        self.counts = Counts()
        self._clock = clock
        self._client = HttpClient(target, BOUNDS, lambda: clock().mono)
        self._pace = pace
        self._jitter = jitter
        self._failures = 0
        self._size = pace.batch
        """How many notices to send at once."""
        self._alone = 0
        """How many of the next ones to send one by one: they are of a batch that was refused."""
        self._not_before = -inf
        self._wake = threading.Condition()  # guards the queue and what follows
        self._queue = NotificationQueue(pace.capacity, self.expires)
        self._in_hand = 0
        self._end: float | None = None
        self._thread: KeptThread | None = None
        self._threads = threads or Threads()
        self.successor: HttpReceiver | None = None
        """The successor, which takes over what could not be delivered at the end."""
        self._once = LogOnce(log)  # this and the following belong to the thread
        self._server_clock = ServerClock()
        self._refusals: dict[Labels, None] = {}

    def check(self) -> None:
        """Check the addresses. Raises ValueError."""

    def encode(self, notices: Sequence[Notice]) -> bytes:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return self.target.shown

    @property
    def queued(self) -> int:
        with self._wake:
            return len(self._queue) + self._in_hand

    def accept_notices(self, notices: Sequence[Notice], at: float) -> None:
        del at  # a notice says until when it is valid
        self._accept(notices, self._queue.add)

    def accept_undelivered(self, notices: Sequence[Notice]) -> None:
        """Take over what another receiver could not deliver, unless something newer is queued."""
        self._accept(notices, partial(self._queue.give_back, first=True))

    def _accept(self, notices: Sequence[Notice], enqueue: Callable[[Sequence[Notice]], int]) -> None:
        with self._wake:
            if self._end is not None:
                self.counts.add(dropped=len(notices))
                return
            self.counts.add(dropped=enqueue(notices))
            if self._thread is None:
                self._thread = self._threads.begin("notify", self._run)
            self._wake.notify_all()

    def stop(self, grace: float) -> None:
        with self._wake:
            self._end = self._clock().mono + grace
            self._not_before = -inf
            self._wake.notify_all()
            thread = self._thread
        if thread is not None and not thread.join(grace):
            self._client.abort()
            thread.join(LAST_WORD_SECONDS)

    def _run(self) -> None:
        while batch := self._next():
            try:
                self._attempt(batch)
            except _RefusedError as refusal:
                self._refuse(batch, refusal)
            except Exception as error:  # whatever it was, it costs one attempt, not the thread
                self._postpone(batch, error)
        self._client.close()
        with self._wake:
            undelivered = self._queue.drain()
        if undelivered and self.successor is not None:
            self.successor.accept_undelivered(undelivered)
        elif undelivered:
            self.counts.add(dropped=len(undelivered))
            log.warning("alerts not delivered", extra={"facts": {"url": self.url, "number": len(undelivered)}})

    def _next(self) -> list[Notice]:
        """Wait for the next batch; empty when it is time to end."""
        with self._wake:
            while True:
                now = self._clock()
                if self._end is not None and (now.mono >= self._end or not self._queue):
                    return []
                pause = self._not_before - now.mono
                if pause > 0:
                    self._wake.wait(pause if self._end is None else min(pause, self._end - now.mono))
                    continue
                batch, outdated = self._queue.take_batch(1 if self._alone else self._size, now.wall)
                self._alone = max(self._alone - len(batch), 0)
                self.counts.add(dropped=outdated)
                if batch:
                    self._in_hand = len(batch)
                    return batch
                if self._end is None:
                    self._wake.wait()

    def _attempt(self, batch: Sequence[Notice]) -> None:
        answer, sent, received = self._send_batch(batch)
        delivered = 200 <= answer.status < 300
        if self.expires and delivered and self._server_clock.apply_date(answer.headers.get("date", ""), sent, received):
            self._log_clocks()
            answer, _, _ = self._send_batch(batch)  # at once, since the times just sent may have ended alerts
        if answer.status in ABOUT_CONTENT:
            raise _RefusedError(self._explain(answer))
        if not 200 <= answer.status < 300:
            raise _UnreachableError(self._explain(answer))
        self.counts.add(sent=len(batch))
        self._finish_batch(batch, postponed=False)
        self._record_answer()
        for notice in batch if self._refusals else ():
            self._refusals.pop(notice.alert.labels, None)

    def _send_batch(self, batch: Sequence[Notice]) -> tuple[HttpAnswer, Instant, Instant]:
        """Make one exchange; returns the answer, and when it began and ended."""
        request = HttpRequest("POST", self.target.path + self.path or "/", _JSON, self._encoded(batch))
        sent = self._clock()
        until = sent.mono + self.target.timeout
        if self._end is not None:
            until = min(until, self._end)
        try:
            return self._client.deliver(request, until), sent, self._clock()
        except HttpError as error:
            raise _UnreachableError(self._client.explain(error)) from error

    def _encoded(self, batch: Sequence[Notice]) -> bytes:
        """Return the batch with times by the receiver's clock, or by ours if its times cannot be written."""
        try:
            try:
                return self.encode(self._server_clock.shift_times(batch))
            except Exception:
                if not self._server_clock.ahead:
                    raise
                self._server_clock.ahead = 0.0  # until the next answer
                return self.encode(batch)
        except Exception as error:
            raise _RefusedError(f"cannot be written as JSON: {error}") from error

    def _refuse(self, batch: list[Notice], refusal: Exception) -> None:
        """Try each alone, or give up the one that was sent alone."""
        self.counts.add(failed=1)
        alone = len(batch) == 1
        if alone:
            self.counts.add(dropped=1)
            self._log_refusal(batch[0].alert.labels, refusal)
        else:
            self._alone = len(batch)
        self._finish_batch(batch, postponed=not alone, first=True)
        self._record_answer()

    def _postpone(self, batch: list[Notice], error: Exception) -> None:
        """Wait, and send less: a single alert may make the server fail, and the others must get past it."""
        is_outage = isinstance(error, _UnreachableError)
        if not is_outage:
            self._client.close()  # its state is not known
        self.counts.add(failed=1)
        pause = min(self._pace.longest, self._pace.first * 2.0 ** min(self._failures, 30))
        self._failures += 1
        self._size = max(1, self._size // 2)
        with self._wake:
            self._not_before = self._clock().mono + pause * (0.5 + 0.5 * self._jitter())
        self._finish_batch(batch, postponed=True)
        reason = self._client.masked(str(error)) or type(error).__name__
        facts = {"notifier": self.name, "url": self.url, "error": reason}
        self._once.problem("away", "cannot deliver alerts; retrying", error=None if is_outage else error, facts=facts)

    def _finish_batch(self, batch: Sequence[Notice], postponed: bool, first: bool = False) -> None:
        """Finish a batch, putting it back into the queue if it is `postponed`."""
        with self._wake:
            self._in_hand = 0
            if postponed:
                self.counts.add(dropped=self._queue.give_back(batch, first))

    def _record_answer(self) -> None:
        """Record that the server has answered."""
        self._failures = 0
        self._size = min(self._pace.batch, self._size * 2)
        self._once.over("away", "alerts are delivered again", facts={"notifier": self.name, "url": self.url})

    def _log_clocks(self) -> None:
        ahead = self._server_clock.ahead
        facts = {"notifier": self.name, "url": self.url, "ahead": f"{ahead:+.0f}s"}
        if ahead:
            log.warning("receiver clock differs: sending times by its clock", extra={"facts": facts})
        else:
            log.info("receiver clock agrees again", extra={"facts": facts})

    def _log_refusal(self, labels: Labels, refusal: Exception) -> None:
        """Log a rejection, but not at each repetition."""
        if labels in self._refusals:
            return
        if len(self._refusals) >= REMEMBERED:
            self._refusals.clear()
        self._refusals[labels] = None
        pairs = ",".join(f'{name}="{value}"' for name, value in labels)
        facts = {"notifier": self.name, "url": self.url, "labels": f"{{{pairs}}}", "answer": str(refusal)}
        log.warning("alert refused", extra={"facts": facts})

    def _explain(self, answer: HttpAnswer) -> str:
        status = f"HTTP status {answer.status}"
        if 300 <= answer.status < 400:
            place = self._client.masked(answer.headers.get("location", ""))[:MAX_ANSWER_CHARACTERS]
            return f"redirected to {place!r} ({status}), which is not followed: set that url"
        text = self._client.masked(answer.body.decode("utf-8", "replace"))[:MAX_ANSWER_CHARACTERS]
        return f"login refused ({status}): {text}" if answer.status in DENIED else f"{status}: {text}"
