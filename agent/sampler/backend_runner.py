"""Runs one backend in its own thread, so that a slow file or a slow BMC delays nothing else."""

import logging
from collections import defaultdict, deque
from collections.abc import Callable
from math import inf
from queue import SimpleQueue

from msgspec import Struct

from agent.backends.protocol import AbsentError, BackendProtocol, BackendSample, DeviceError
from agent.catalogue import BY_NAME
from agent.lib.threads import Threads
from agent.model import EMPTY_FRAME, Backend, Frame, Framer, Instant, Lane, Outcome, Reading, Reason, Series

log = logging.getLogger("coldplate.backend")

CALM_SECONDS = 60.0
"""Seconds without a failure after which the log says that a backend is well again."""


class Read(Struct, frozen=True):
    """The outcome of one read of one lane. `mono` is when it began, `duration` how long it took, in seconds.

    `frame` has the readings of the sample; `reason` is why a failed read gave nothing.
    """

    backend: str
    lane: Lane
    mono: float
    duration: float
    outcome: Outcome
    frame: Frame = EMPTY_FRAME
    sample: BackendSample = BackendSample()
    detail: str = ""
    reason: Reason = Reason.MALFORMED


class Flight(Struct, frozen=True):
    """A read in flight; `since` in monotonic seconds."""

    lane: Lane
    since: float


class Runner:
    """Has at most one read in flight. Lanes that fall due while it is busy are read once, when it is free."""

    def __init__(
        self, backend: BackendProtocol, clock: Callable[[], Instant], done: Callable[[], None], threads: Threads
    ) -> None:
        self.backend = backend
        self._clock = clock
        self._done = done
        self._orders: SimpleQueue[tuple[Lane, ...] | None] = SimpleQueue()
        self._owed: set[Lane] = set()
        self._asked: dict[Lane, float] = {}
        self._absent = False
        self._finished: deque[Read] = deque()
        self._framers: defaultdict[Lane, Framer] = defaultdict(Framer)
        self._left_out = Series(BY_NAME["coldplate_backend_series_dropped"], Backend(backend.name))
        self._logged: set[type[Exception]] = set()
        self._failed_at = -inf
        self.flight: Flight | None = None
        """The read in flight: set when it is ordered, and changed and cleared only by the thread."""
        self._thread = threads.begin(f"backend-{backend.name}", self._run)

    def ask(self, lanes: tuple[Lane, ...], now: float) -> bool:
        """Read those lanes that the backend has and that may have news; True if a read was begun.

        Hardware that was absent is looked for again once in a cold lane, not ten times a second.
        """
        if not self._absent or Lane.COLD in lanes:
            self._owed.update(lane for lane in lanes if lane in self.backend.lanes and self._has_news(lane, now))
        if self._owed and not self.busy:
            due = tuple(lane for lane in Lane if lane in self._owed)
            self.flight = Flight(due[0], now)
            self._owed.clear()
            self._asked.update(dict.fromkeys(due, now))
            self._orders.put(due)
            return True
        return False

    @property
    def busy(self) -> bool:
        return self.flight is not None

    def _has_news(self, lane: Lane, now: float) -> bool:
        # With a tolerance of a twentieth: ticks come a little early or late.
        return now - self._asked.get(lane, -inf) >= 0.95 * self.backend.shortest

    def collect_reads(self) -> list[Read]:
        """Return the reads that have ended since the last call."""
        ended = []
        while self._finished:
            ended.append(self._finished.popleft())
        return ended

    def stop(self, timeout: float) -> None:
        """End the thread; a read that takes longer than `timeout` seconds is left behind."""
        self._orders.put(None)
        self._thread.join(timeout)

    def _run(self) -> None:
        if self._orders.empty() and self.busy:  # the thread failed, and the order was lost with it
            self._end_flight()
        while (lanes := self._orders.get()) is not None:
            for lane in lanes:
                self._finished.append(self._read(lane))
            self._end_flight()
        self.backend.close()

    def _end_flight(self) -> None:
        self.flight = None
        self._done()

    def _read(self, lane: Lane) -> Read:
        began = self._clock()
        self.flight = Flight(lane, began.mono)
        outcome, detail, reason, sample = Outcome.OK, "", Reason.MALFORMED, BackendSample()
        try:
            sample = self.backend.read(lane, began)
            self._well(began.mono)
        except AbsentError as error:
            outcome, detail = Outcome.ABSENT, str(error)
        except DeviceError as error:
            outcome, detail, reason = Outcome.FAILED, error.detail, error.reason
            self._failed(error, began.mono)
        except Exception as error:
            # An unexpected error affects only the backend's own sample, and is logged once in full.
            outcome, detail = Outcome.FAILED, f"{type(error).__name__}: {error}"
            self._failed(error, began.mono)
        self._absent = outcome is Outcome.ABSENT
        took = self._clock().mono - began.mono
        readings = sample.readings
        if sample.left_out:
            readings = (*readings, Reading(self._left_out, sample.left_out))
        frame = self._framers[lane].frame(readings)
        return Read(self.backend.name, lane, began.mono, took, outcome, frame, sample, detail, reason)

    def _failed(self, error: Exception, mono: float) -> None:
        """Log the first failure of its kind; a failure that lasts for days may be worded differently each time."""
        self._failed_at = mono
        if type(error) not in self._logged:
            self._logged.add(type(error))
            foreseen = isinstance(error, DeviceError)
            log.error("backend %s failed: %s", self.backend.name, error, exc_info=None if foreseen else error)

    def _well(self, mono: float) -> None:
        """Log once that the failure is over, after a while, since one lane may fail while another is well."""
        if self._logged and mono - self._failed_at >= CALM_SECONDS:
            self._logged.clear()
            log.info("backend %s works again", self.backend.name)
