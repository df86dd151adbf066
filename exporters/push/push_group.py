"""All pushes of one agent together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from agent.lib.threads import CLOSING_SECONDS, Threads
from agent.model import Frame, Instant
from exporters.push.push_queue import PushFigures, PushSeries


class Push(Protocol):
    """One receiver and what is needed to push to it."""

    @property
    def figures(self) -> PushFigures: ...

    def start(self) -> None: ...

    def stop(self, seconds: float) -> None: ...


class PushGroup:
    """Starts and ends them, the ends at the same time, and makes their frame."""

    def __init__(self, pushes: Sequence[Push], threads: Threads) -> None:
        self.pushes, self._threads = tuple(pushes), threads
        self._series = PushSeries([each.figures for each in pushes])

    def start(self) -> None:
        for each in self.pushes:
            each.start()

    def stop(self, seconds: float = CLOSING_SECONDS) -> None:
        """End all of them, each in so many seconds at most for each of its threads."""
        ends = [self._threads.begin("push-end", partial(each.stop, seconds)) for each in self.pushes]
        for each in ends:
            each.join(3 * seconds)

    def frame(self, now: Instant) -> Frame:
        """What they tell of themselves. For any thread."""
        return self._series.frame(now)
