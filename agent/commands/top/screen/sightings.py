"""What came from each node last, put in by whoever reads it in threads, and taken out by the one that draws."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from agent.model import Alert, PastMoment, Snapshot


class Sighting(NamedTuple):
    """The last of one node: a snapshot, or the problem why there is none.

    `alerts` is None where no rules are evaluated. `age` is that of the snapshot in seconds when it came, `mono` when
    that was. `past` are the minutes before somebody began to look, the oldest first.
    """

    name: str
    origin: str
    snapshot: Snapshot | None = None
    alerts: Sequence[Alert] | None = None
    problem: str = ""
    age: float = 0.0
    mono: float = 0.0
    past: Sequence[PastMoment] = ()


class SightingBoard:
    """The latest sighting of each node, in the order in which they were named; `changed` is called in any thread."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, Sighting] = {}
        self._expected: dict[str, None] = {}
        self._changed = changed
        self._arrived = threading.Condition(self._lock)
        self._counts: dict[str, int] = {}

    def expect(self, name: str) -> None:
        """A node of this name will be told of."""
        with self._lock:
            self._expected[name] = None

    def put(self, sighting: Sighting) -> None:
        with self._arrived:
            self._expected[sighting.name] = None
            before = self._latest.get(sighting.name)
            self._latest[sighting.name] = sighting
            if before is None or _moment(before) != _moment(sighting) or sighting.snapshot is None:
                self._counts[sighting.name] = self._counts.get(sighting.name, 0) + 1
            self._arrived.notify_all()
        self._changed()

    def all(self) -> list[Sighting]:
        """One for each node that was told of."""
        return self.look()[0]

    def look(self) -> tuple[list[Sighting], dict[str, int]]:
        """The same, with how many samples or problems of each node there were so far."""
        with self._lock:
            return [self._latest[name] for name in self._expected if name in self._latest], dict(self._counts)

    def wait(self, counts: Mapping[str, int], seconds: float) -> None:
        """Until there is another sample, or problem, of every expected node than those counted, or for so long."""
        with self._arrived:
            self._arrived.wait_for(
                lambda: all(self._counts.get(name, 0) > counts.get(name, 0) for name in self._expected), seconds
            )


def _moment(sighting: Sighting) -> float | None:
    return None if sighting.snapshot is None else sighting.snapshot.at.mono
