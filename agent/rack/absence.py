"""Nodes that have been missing from the sum for longer than an agent takes to restart.

During a rolling restart of a rack's agents some node is always missing, but never the same one for
long. So each node's absence is timed separately.
"""

from __future__ import annotations

from collections.abc import Collection

GRACE_SECONDS = 30.0
"""Seconds that a node may be missing: a restarted agent is back within them."""


class Absences:
    """Since when each node has been missing, by a name that survives restarts. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._nameless: list[float] = []
        self._began: float | None = None

    def note(self, missing: Collection[str], nameless: int, now: float) -> None:
        """Record who is missing now: these, and `nameless` others of which only their number is known."""
        if self._began is None:
            self._began = now
        self._since = {name: self._since.get(name, now) for name in missing}
        self._nameless = self._nameless[: max(nameless, 0)]
        self._nameless += [now] * (nameless - len(self._nameless))

    def silent(self, now: float) -> int | None:
        """How many have been missing for long; None until this agent has watched for long enough to know."""
        if self._began is None or now - self._began < GRACE_SECONDS:
            return None
        return sum(1 for since in (*self._since.values(), *self._nameless) if now - since >= GRACE_SECONDS)
