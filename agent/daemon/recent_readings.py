"""Remembers the last minutes of a few metrics, for a viewer that was not there to see them."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence

from agent.catalogue import BY_NAME
from agent.lib.picking import picker
from agent.lib.round_memo import RoundMemo
from agent.model import Layout, PastMoment, Snapshot

ROWS = frozenset({BY_NAME["coldplate_gpu_utilization_ratio"], BY_NAME["coldplate_gpu_power_watts"]})
MOMENTS = 600
"""Samples that are kept, at most one a second: ten minutes, in 0.2 MiB for 8 GPUs."""
LEAST_SECONDS = 0.95
"""A little less than a second: a sample that comes a bit early is not left out."""


class RecentReadings:
    """Follows the hub. `moments` may be asked for in any thread."""

    def __init__(self) -> None:
        self._kept: deque[PastMoment] = deque(maxlen=MOMENTS)
        self._picks = RoundMemo(_pick_of)
        self._last = float("-inf")

    def observe(self, snapshot: Snapshot) -> None:
        """Keep what is wanted of a snapshot, unless one of the same second is kept."""
        if not 0 <= snapshot.at.mono - self._last < LEAST_SECONDS:
            self._last = snapshot.at.mono
            picks = self._picks.of([frame.layout for frame in snapshot.frames])
            parts = [pick(frame.values) for pick, frame in zip(picks, snapshot.frames, strict=True) if pick is not None]
            self._kept.append(PastMoment(snapshot.at.wall, tuple(parts)))

    def moments(self) -> tuple[PastMoment, ...]:
        """Those that are kept, the oldest first."""
        return tuple(self._kept)


def _pick_of(layout: Layout) -> Callable[[Sequence[float]], tuple[Layout, Sequence[float]]] | None:
    places = [place for place, series in enumerate(layout.series) if series.metric in ROWS]
    if not places:
        return None
    kept, pick = Layout(tuple(layout.series[place] for place in places)), picker(places)
    return lambda values: (kept, array("d", pick(values)))
