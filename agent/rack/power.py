"""The power of this node and of each peer in each second, and the newest second that can be summed.

Second k is what ended at k: the mean of the samples in [k - 1, k). It is fixed when it is first requested after it
ended, and never changes; a sample that arrives later belongs to the next one. In a second without a sample the last one
counts, as long as it is not stale.

While a node is silent the sum waits for it, for at most `LAG_SECONDS` seconds, and then continues without it.
"""

from collections.abc import Iterable
from math import floor, fsum

from msgspec import Struct

METERED_SECONDS = 8
"""Seconds that are remembered and reported."""
SET_BACK_SECONDS = 2
"""Seconds by which the clock must have been set back before what was reported no longer counts."""


class NodeMeter:
    """Belongs to one thread at a time. All times are wall seconds; samples come in order."""

    def __init__(self, stale_after: float = 3.0) -> None:
        self.stale_after = stale_after
        """Seconds for which a sample holds if none follows."""
        self.source: str | None = None
        """The meter or estimate of the node's power; None without one."""
        self._seconds: dict[int, float | None] = {}
        self._last: int | None = None
        self._samples: list[float] = []
        self._held: tuple[float, float] | None = None

    def record(self, at: float, watts: float | None, source: str = "") -> None:
        """Record a sample; None is a gap, after which the last sample no longer counts."""
        self._fix_seconds(at)
        if watts is None:
            self._samples, self._held, self.source = [], None, None
            return
        if source != self.source:
            self._samples, self.source = [], source
        self._samples.append(watts)
        self._held = (at, watts)

    def power_in_last_seconds(self, now: float) -> tuple[int, tuple[float | None, ...]]:
        """Return the last second that has ended, and the power in the last seconds up to it; None if unknown."""
        last = self._fix_seconds(now)
        return last, tuple(self._seconds.get(second) for second in range(last - METERED_SECONDS + 1, last + 1))

    def _fix_seconds(self, now: float) -> int:
        """Fix the seconds that have ended; returns the last fixed one."""
        newest = floor(now)
        last = self._last
        if last is None or not last - SET_BACK_SECONDS <= newest <= last + METERED_SECONDS + self.stale_after:
            self._begin(newest)
            return newest
        for second in range(last + 1, newest + 1):
            self._seconds[second] = self._value(second)
            self._seconds.pop(second - METERED_SECONDS, None)
            self._samples = []
        self._last = max(last, newest)
        return self._last

    def _begin(self, second: int) -> None:
        """Start again: the clock was set, or nothing was requested for long, so what was reported no longer counts."""
        self._seconds = {}
        self._samples = []
        self._held = None
        self._last = second

    def _value(self, second: int) -> float | None:
        if self._samples:
            return sum(self._samples) / len(self._samples)
        if self._held is not None and second - self._held[0] <= self.stale_after:
            return self._held[1]
        return None


LAG_SECONDS = 3
"""Seconds by which a node may be behind before the sum continues without it."""
KEPT_SECONDS = 16
"""Seconds that are remembered for a node."""


class Sum(Struct, frozen=True):
    """The power of the rack in the second that ended at `second`, and the nodes in the sum."""

    second: int
    watts: float
    nodes: frozenset[str]


class PowerLedger:
    """Nodes have any lasting unique name. Belongs to one thread at a time."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, float]] = {}
        self._shown = 0

    def store_seconds(self, node: str, seconds: Iterable[tuple[int, float]]) -> None:
        """Enter a node's power; a second that is known does not change, unless the node's clock was set back."""
        report = dict(seconds)
        of_node = self._nodes.setdefault(node, {})
        if report and of_node and max(of_node) > max(report) + LAG_SECONDS:
            of_node.clear()
        for second, watts in report.items():
            of_node.setdefault(second, watts)
        for second in sorted(of_node)[:-KEPT_SECONDS]:
            del of_node[second]

    def forget(self, node: str) -> None:
        """Forget a node that is gone: the sum need not wait for it."""
        self._nodes.pop(node, None)

    def latest(self, now: float) -> dict[str, float]:
        """Return the last power of each node, unless that is too old to say anything about the present."""
        return {node: self._nodes[node][second] for node, second in self._newest(now).items()}

    def add_up(self, now: float) -> Sum | None:
        """Return the newest second for which all nodes that are not too far behind have a value; None if no node has
        any.

        Seconds are given in order, unless the clock is set back.
        """
        newest = self._newest(now)
        if not newest:
            return None
        common = min(newest.values())
        second = self._shown if common < self._shown <= now + LAG_SECONDS else common
        watts = self._at(second)
        if not watts:  # the nodes that had reported it are gone
            second, watts = common, self._at(common)
        self._shown = second
        return Sum(second, fsum(watts.values()), frozenset(watts))

    def _at(self, second: int) -> dict[str, float]:
        return {node: of_node[second] for node, of_node in self._nodes.items() if second in of_node}

    def _newest(self, now: float) -> dict[str, int]:
        """Return the newest second of each node that is not too far behind; the others are forgotten.

        So are seconds in the future: the clock was set back, and their values are from before.
        """
        oldest, latest = floor(now) - LAG_SECONDS, floor(now) + LAG_SECONDS
        for of_node in self._nodes.values():
            for second in [second for second in of_node if second > latest]:
                del of_node[second]
        newest = {node: max(of_node) for node, of_node in self._nodes.items() if of_node}
        for node in [node for node in self._nodes if newest.get(node, oldest - 1) < oldest]:
            del self._nodes[node]
            newest.pop(node, None)
        return newest
