"""Who reads the channels: one thread for all of them, as long as each is quick.

A thread for each GPU would do little but hand the interpreter's lock around, and the driver serialises
its callers on a lock of its own. So one reader goes through the channels that are due, and as soon as
one of them keeps it longer than `QUICK` another reader takes over the rest. There are never more readers
than channels, and a channel never has more than one read in flight: a GPU that hangs keeps one thread
and stops nobody else.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from operator import is_

from agent.backends.protocol import Channel, DeviceError, GpuProcess, Sample, SourceError
from agent.model import Gap, Instant, Lane, Reading, Reason, Series, Xid
from agent.worker.wire import encode, encode_gaps, encode_processes, encode_series

log = logging.getLogger("coldplate.worker")

QUICK = 0.02
"""Seconds after which the channels that wait for a reader get another one."""
ALL_LANES = (Lane.FAST, Lane.SLOW, Lane.COLD)
Send = Callable[[bytes], None]
Clock = Callable[[], Instant]


class Post:
    """One channel, the lanes that it owes, and what was last said of it."""

    def __init__(self, number: int, channel: Channel, send: Send, clock: Clock) -> None:
        self.channel = channel
        self.owed: set[Lane] = set()
        self.busy = False
        """Waiting for a reader, or being read."""
        self._number = number
        self._send = send
        self._clock = clock
        self._layouts: dict[Lane, list[Series]] = {}
        self._gaps: dict[Lane, Sequence[Gap]] = {}
        self._processes: dict[Lane, tuple[GpuProcess, ...] | None] = {}
        self._failing = ""

    def read(self) -> None:
        """Read the lanes that are owed, and send what they gave. Raises SourceError."""
        due, self.owed = self.owed, set()
        for lane in ALL_LANES:
            if lane in due:
                self._read(lane)

    def _read(self, lane: Lane) -> None:
        began = self._clock()
        try:
            self._tell(lane, began, self.channel.read(lane, began))
            self._failing = ""
        except SourceError:
            raise
        except DeviceError as error:
            self._error(lane, began, error.reason, error.detail)
        except Exception as error:
            # Whatever a binding did not foresee costs this device's sample, and is told once in full.
            detail = f"{type(error).__name__}: {error}"
            if detail != self._failing:
                log.exception("reading %s of %s failed", lane.value, self.channel.key)
            self._failing = detail
            self._error(lane, began, Reason.MALFORMED, detail)

    def _tell(self, lane: Lane, began: Instant, sample: Sample) -> None:
        self._send_changes(lane, sample.readings, sample.gaps)
        if sample.processes != self._processes.get(lane):
            self._send(encode("processes", self._number, lane.value, encode_processes(sample.processes)))
            self._processes[lane] = sample.processes
        took = self._clock().mono - began.mono
        values = [reading[1] for reading in sample.readings]
        self._send(encode("sample", self._number, lane.value, began.mono, round(took, 6), sample.calls, values))
        if sample.events:
            self._send(encode_events(sample.events))

    def _send_changes(self, lane: Lane, readings: Sequence[Reading], gaps: Sequence[Gap]) -> None:
        layout = [reading[0] for reading in readings]
        known = self._layouts.get(lane)
        if known is None or len(known) != len(layout) or not all(map(is_, known, layout)):
            self._send(encode("layout", self._number, lane.value, encode_series(layout)))
            self._layouts[lane] = layout
        last = self._gaps.get(lane, ())
        if last is not gaps and list(last) != list(gaps):
            self._send(encode("gaps", self._number, lane.value, encode_gaps(gaps)))
            self._gaps[lane] = gaps

    def _error(self, lane: Lane, began: Instant, reason: Reason, detail: str) -> None:
        self._send(encode("error", self._number, lane.value, began.mono, reason.value, detail))


class Crew:
    """The readers. `order` and `reinforce` belong to the main thread."""

    def __init__(self, posts: Sequence[Post], broken: Callable[[SourceError], None]) -> None:
        self._posts = posts
        self._broken = broken
        self._due: deque[Post] = deque()
        self._work = threading.Semaphore(0)
        self._readers = 0

    def order(self, lanes: set[Lane]) -> None:
        """Read these lanes of every channel; one that is busy reads them with the next order that finds it free."""
        for post in self._posts:
            post.owed |= lanes
            if not post.busy:
                post.busy = True
                self._due.append(post)
        self._call()

    @property
    def waiting(self) -> bool:
        """Whether some channel waits for a reader."""
        return bool(self._due)

    def reinforce(self) -> None:
        """The readers did not get through in time: call another one."""
        if self._due:
            self._call()

    @property
    def busy(self) -> list[str]:
        """Keys of the channels that wait or are being read."""
        return [post.channel.key for post in self._posts if post.busy]

    def _call(self) -> None:
        if self._readers < len(self._posts) and (self._readers == 0 or self._stuck()):
            self._readers += 1
            threading.Thread(target=self._run, name=f"reader-{self._readers}", daemon=True).start()
        self._work.release()

    def _stuck(self) -> bool:
        """Whether every reader may be held by a channel: as many are being read as there are readers."""
        reading = sum(post.busy for post in self._posts) - len(self._due)
        return reading >= self._readers

    def _run(self) -> None:
        while True:
            self._work.acquire()
            while self._due:
                try:
                    post = self._due.popleft()
                except IndexError:
                    break  # another reader was quicker
                try:
                    post.read()
                except SourceError as error:
                    self._broken(error)
                finally:
                    post.busy = False


def encode_events(events: Sequence[Xid]) -> bytes:
    """XID events as one message."""
    return encode("xid", [[each.device, each.code, each.wall, each.reporter, each.text] for each in events])
