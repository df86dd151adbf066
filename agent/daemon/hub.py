"""The latest snapshot and its followers, and the last minutes of a few metrics.

Followers and reporting parts run in the sampling thread: by `Isolation` a failure affects only the one that failed.
"""

import logging
import math
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TypeVar

from agent.lib.layout_columns import RoundMemo, picker
from agent.lib.logs import LogOnce
from agent.model import Frame, Layout, PastMoment, Reading, Snapshot, readings_of

log = logging.getLogger("coldplate")

T = TypeVar("T")


class Isolation:
    """Remembers what was logged of each part."""

    def __init__(self) -> None:
        self._once = LogOnce(log)

    def run(self, purpose: str, work: Callable[[], T], otherwise: T) -> T:
        """Return the result of the work, or `otherwise` if it fails; `what` describes it in the log."""
        try:
            return work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            self._once.problem(purpose, "%s failed", purpose, cause=text, level=logging.ERROR, error=error)
            return otherwise


Follower = Callable[[Snapshot], None]


class Hub:
    """Holds snapshots by reference: `latest` may be read in any thread."""

    def __init__(self) -> None:
        self.latest: Snapshot | None = None
        self.period = math.inf
        """Seconds between two snapshots, as configured."""
        self._followers: list[tuple[str, Follower]] = []
        self._isolation = Isolation()

    def follow(self, purpose: str, follower: Follower) -> None:
        """Have `follower` called with each snapshot, in the sampling thread; it must return at once.

        `what` says what it does, for the log: a failure affects only that follower.
        """
        self._followers.append((purpose, follower))

    def reader_of(self, names: Collection[str]) -> Callable[[], list[Reading]]:
        """Return a function that gives the readings of some rows in the latest snapshot, for calls in one thread."""
        picks = RoundMemo(partial(_pick_of, frozenset(names)))

        def read() -> list[Reading]:
            frames = () if self.latest is None else self.latest.frames
            parts = _picked(picks, frames)
            return [reading for layout, values in parts for reading in readings_of(layout.series, values)]

        return read

    def publish(self, snapshot: Snapshot) -> None:
        self.latest = snapshot
        for purpose, follower in self._followers:
            self._isolation.run(purpose, partial(follower, snapshot), None)


ROWS = frozenset({"coldplate_gpu_utilization_ratio", "coldplate_gpu_power_watts"})
MOMENTS = 900
"""Samples that are kept, at most one a second: fifteen minutes, in 0.3 MiB for 8 GPUs."""
LEAST_SECONDS = 0.95
"""A little less than a second: a sample that comes a bit early is not left out."""


class RecentReadings:
    """Follows the hub, and keeps some metrics of the last samples. `moments` may be asked for in any thread."""

    def __init__(
        self, rows: Collection[str] = ROWS, moments: int = MOMENTS, spacing_seconds: float = LEAST_SECONDS
    ) -> None:
        self._kept: deque[PastMoment] = deque(maxlen=moments)
        self._picks = RoundMemo(partial(_pick_of, rows))
        self._spacing = spacing_seconds
        self._last = float("-inf")

    def observe(self, snapshot: Snapshot) -> None:
        """Keep the selected readings of a snapshot, unless it follows the one before too closely."""
        if not 0 <= snapshot.at.mono - self._last < self._spacing:
            self._last = snapshot.at.mono
            parts = [(layout, array("d", values)) for layout, values in _picked(self._picks, snapshot.frames)]
            self._kept.append(PastMoment(snapshot.at.wall, tuple(parts)))

    def moments(self) -> tuple[PastMoment, ...]:
        """Return those that are kept, the oldest first."""
        return tuple(self._kept)


_Pick = tuple[Layout, Callable[[Sequence[float]], tuple[float, ...]]]
"""The series of some rows in a layout, and a function that picks their values from a frame's."""


def _pick_of(names: Collection[str], layout: Layout) -> _Pick | None:
    places = [place for place, series in enumerate(layout.series) if series.metric.name in names]
    return (Layout(tuple(layout.series[place] for place in places)), picker(places)) if places else None


def _picked(
    picks: RoundMemo[Layout, _Pick | None], frames: Sequence[Frame]
) -> Iterator[tuple[Layout, tuple[float, ...]]]:
    """Yield the picked series of each frame that has some, and their values."""
    for columns, frame in zip(picks.of([frame.layout for frame in frames]), frames, strict=True):
        if columns is not None:
            layout, pick = columns
            yield layout, pick(frame.values)
