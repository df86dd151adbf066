"""The latest snapshot and its followers. Created first, and passed to all producers and consumers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from agent.daemon.isolation import Isolation
from agent.model import Snapshot

Follower = Callable[[Snapshot], None]


class Hub:
    """Holds snapshots by reference: `latest` may be read in any thread."""

    def __init__(self) -> None:
        self.latest: Snapshot | None = None
        self.period = math.inf
        """Seconds between two snapshots, as configured."""
        self._followers: list[tuple[str, Follower]] = []
        self._isolation = Isolation()

    def follow(self, what: str, follower: Follower) -> None:
        """Have `follower` called with each snapshot, in the sampling thread; it must return at once.

        `what` says what it does, for the log: a failure affects only that follower.
        """
        self._followers.append((what, follower))

    def publish(self, snapshot: Snapshot) -> None:
        """Publish the next snapshot."""
        self.latest = snapshot
        for what, follower in self._followers:
            self._isolation.run(what, partial(follower, snapshot), None)
