"""The rack's series: makes the readings, each series once."""

from __future__ import annotations

from collections.abc import Iterable

from agent.catalogue import BY_NAME
from agent.model import Labels, Rack, Reading, Series
from agent.rack.ledger import Sum
from agent.rack.peers import Peer


class RackSeries:
    """The readings of one rack."""

    def __init__(self, name: str) -> None:
        self._rack = Rack(name)
        self._series: dict[tuple[str, Labels], Series] = {}

    def of_peers(self, peers: Iterable[Peer]) -> list[Reading]:
        """How asking each of them goes; one that was not asked yet has none."""
        made = []
        for peer in peers:
            if peer.tried:
                made.append(self._reading("peer_up", int(peer.up), (("peer", peer.name),)))
            for fault, count in peer.failures.items():
                labels = (("peer", peer.name), ("reason", fault.value))
                made.append(self._reading("peer_failures_total", count, labels))
        return made

    def of_sum(self, total: Sum | None, expected: int, nameplate: float | None) -> list[Reading]:
        """What the rack draws: as told, and with the nameplate of a node for each that is silent."""
        reporting = 0 if total is None else len(total.nodes)
        silent = max(expected - reporting, 0)
        made = [self._reading("nodes_reporting", reporting)]
        if total is not None:
            made.append(self._reading("power_watts", total.watts))
            made.append(self._reading("power_timestamp_seconds", total.second))
        if silent == 0 or nameplate is not None:
            watts = (0.0 if total is None else total.watts) + silent * (nameplate or 0.0)
            made.append(self._reading("power_conservative_watts", watts))
        return made

    def of_count(self, expected: int) -> Reading:
        """How many nodes there should be, by the number of peers."""
        return self._reading("nodes_expected", expected)

    def _reading(self, name: str, value: float, labels: Labels = ()) -> Reading:
        key = (name, labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(BY_NAME[f"coldplate_rack_{name}"], self._rack, labels)
        return Reading(series, value)
