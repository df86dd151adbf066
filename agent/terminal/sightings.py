"""What came from each node last, put in by whoever reads it in threads, and taken out by the one that draws."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from agent.model import Alert, Snapshot


class Sighting(NamedTuple):
    """The last of one node: a snapshot, or the problem why there is none.

    `alerts` is None where no rules are evaluated. `age` is that of the snapshot in seconds when it came, `mono` when
    that was.
    """

    name: str
    origin: str
    snapshot: Snapshot | None = None
    alerts: Sequence[Alert] | None = None
    problem: str = ""
    age: float = 0.0
    mono: float = 0.0


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
            self._latest[sighting.name] = sighting
            self._counts[sighting.name] = self._counts.get(sighting.name, 0) + 1
            self._arrived.notify_all()
        self._changed()

    def all(self) -> list[Sighting]:
        """One for each node that was told of."""
        with self._lock:
            return [self._latest[name] for name in self._expected if name in self._latest]

    def wait(self, times: int, seconds: float) -> None:
        """Until every expected node was told of so often, or for so many seconds."""
        with self._arrived:
            self._arrived.wait_for(lambda: all(self._counts.get(name, 0) >= times for name in self._expected), seconds)
