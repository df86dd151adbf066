"""Runs one backend in a thread of its own, so that a slow file or a slow BMC delays nobody else."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from queue import SimpleQueue

from agent.backends.protocol import AbsentError, Backend, Sample
from agent.model import Instant, Lane, Outcome

log = logging.getLogger("coldplate.backend")


@dataclass(frozen=True, slots=True)
class Read:
    """How one read of one lane ended. `mono` is when it began, `duration` what it took, in seconds."""

    backend: str
    lane: Lane
    mono: float
    duration: float
    outcome: Outcome
    sample: Sample
    detail: str = ""


class Runner:
    """At most one read in flight. Lanes that fall due while it is busy are read once, when it is free."""

    def __init__(self, backend: Backend, clock: Callable[[], Instant], done: Callable[[], None]) -> None:
        self.backend = backend
        self._clock = clock
        self._done = done
        self._orders: SimpleQueue[tuple[Lane, ...] | None] = SimpleQueue()
        self._owed: set[Lane] = set()
        self._asked: dict[Lane, float] = {}
        self._absent = False
        self._finished: deque[Read] = deque()
        self._failing = ""
        self.busy = False
        self._thread = threading.Thread(target=self._run, name=f"backend-{backend.name}", daemon=True)
        self._thread.start()

    def ask(self, lanes: tuple[Lane, ...], now: float) -> bool:
        """Read those of the lanes that the backend has and that may have news; True if that began a read.

        Hardware that was absent is looked for again once in a cold lane, not ten times a second.
        """
        if not self._absent or Lane.COLD in lanes:
            self._owed.update(lane for lane in lanes if lane in self.backend.lanes and self._has_news(lane, now))
        if self._owed and not self.busy:
            self.busy = True
            due = tuple(lane for lane in Lane if lane in self._owed)
            self._owed.clear()
            self._asked.update(dict.fromkeys(due, now))
            self._orders.put(due)
            return True
        return False

    def _has_news(self, lane: Lane, now: float) -> bool:
        # A twentieth of tolerance: ticks come a little early or late.
        return now - self._asked.get(lane, -inf) >= 0.95 * self.backend.shortest

    def take(self) -> list[Read]:
        """The reads that have ended since the last call."""
        ended = []
        while self._finished:
            ended.append(self._finished.popleft())
        return ended

    def stop(self, patience: float) -> None:
        """End the thread; a read that hangs longer than `patience` seconds is left to itself."""
        self._orders.put(None)
        self._thread.join(patience)

    def _run(self) -> None:
        while (lanes := self._orders.get()) is not None:
            for lane in lanes:
                self._finished.append(self._read(lane))
            self.busy = False
            self._done()
        self.backend.close()

    def _read(self, lane: Lane) -> Read:
        began = self._clock()
        outcome, detail, sample = Outcome.OK, "", Sample()
        try:
            sample = self.backend.read(lane, began)
        except AbsentError as error:
            outcome, detail = Outcome.ABSENT, str(error)
        except Exception as error:
            # Whatever a backend did not foresee costs that backend's sample, and is told once in full.
            outcome, detail = Outcome.FAILED, f"{type(error).__name__}: {error}"
            if detail != self._failing:
                log.exception("backend %s failed", self.backend.name)
        self._absent = outcome is Outcome.ABSENT
        self._failing = detail if outcome is Outcome.FAILED else ""
        return Read(self.backend.name, lane, began.mono, self._clock().mono - began.mono, outcome, sample, detail)
