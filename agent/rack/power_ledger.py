"""The power of each node of the rack in each second, and the newest second that can be summed.

The sum covers one second for all nodes, never the latest value of each: agents that have heard the same nodes compute
the same number for the same second, in whatever order they heard them. While a node is silent the sum waits for it,
for at most `LAG_SECONDS` seconds, and then continues without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import floor, fsum

LAG_SECONDS = 3
"""Seconds by which a node may be behind before the sum continues without it."""
KEPT_SECONDS = 16
"""Seconds that are remembered for a node."""


@dataclass(frozen=True, slots=True)
class Sum:
    """The power of the rack in the second that ended at `second`, and the nodes in the sum."""

    second: int
    watts: float
    nodes: frozenset[str]


class PowerLedger:
    """Nodes have any lasting unique name. Belongs to one thread at a time."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, float]] = {}
        self._told = 0

    def put(self, node: str, seconds: Iterable[tuple[int, float]]) -> None:
        """Enter a node's power; a second that is known does not change, unless the node's clock was set back."""
        told = dict(seconds)
        known = self._nodes.setdefault(node, {})
        if told and known and max(known) > max(told) + LAG_SECONDS:
            known.clear()
        for second, watts in told.items():
            known.setdefault(second, watts)
        for second in sorted(known)[:-KEPT_SECONDS]:
            del known[second]

    def forget(self, node: str) -> None:
        """Forget a node that is gone: the sum need not wait for it."""
        self._nodes.pop(node, None)

    def latest(self, now: float) -> dict[str, float]:
        """The last power of each node, unless that is too old to say anything about the present."""
        return {node: self._nodes[node][second] for node, second in self._newest(now).items()}

    def add_up(self, now: float) -> Sum | None:
        """The newest second for which all nodes that are not too far behind have a value; None if no node has any.

        Seconds are given in order, unless the clock is set back.
        """
        newest = self._newest(now)
        if not newest:
            return None
        common = min(newest.values())
        second = self._told if common < self._told <= now + LAG_SECONDS else common
        watts = self._at(second)
        if not watts:  # the nodes that had reported it are gone
            second, watts = common, self._at(common)
        self._told = second
        return Sum(second, fsum(watts.values()), frozenset(watts))

    def _at(self, second: int) -> dict[str, float]:
        return {node: known[second] for node, known in self._nodes.items() if second in known}

    def _newest(self, now: float) -> dict[str, int]:
        """The newest second of each node that is not too far behind; the others are forgotten.

        So are seconds in the future: the clock was set back, and their values are from before.
        """
        oldest, latest = floor(now) - LAG_SECONDS, floor(now) + LAG_SECONDS
        for known in self._nodes.values():
            for second in [second for second in known if second > latest]:
                del known[second]
        newest = {node: max(known) for node, known in self._nodes.items() if known}
        for node in [node for node in self._nodes if newest.get(node, oldest - 1) < oldest]:
            del self._nodes[node]
            newest.pop(node, None)
        return newest
