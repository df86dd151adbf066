"""Makes the readings of a rack: its own, what is configured of it, and the limits that other agents report."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.model import Frame, Instant, Rack
from agent.rack.agreement import BUDGET, FEEDS
from agent.rack.breakers import State
from agent.rack.nvlink_domain import DomainShare
from agent.rack.peer_messages import Report
from agent.rack.peers import Peer
from agent.rack.power import Sum
from agent.rack.rack_options import RackOptions


class RackSeries:
    """The readings of one rack."""

    def __init__(self, name: str) -> None:
        self._rack = Rack(name)

    def reading(self, name: str, value: float, **labels: str) -> OwnReading:
        """Return a reading of the rack; `name` is that of the metric behind `coldplate_rack_`."""
        return OwnReading(f"coldplate_rack_{name}", value, tuple(labels.items()), self._rack)

    def of_peers(self, peers: Iterable[Peer]) -> Iterator[OwnReading]:
        """Yield the outcome of asking each peer; one that was not asked yet has no readings."""
        for peer in peers:
            if peer.tried:
                yield self.reading("peer_up", int(peer.up), peer=peer.name)
            for fault, count in peer.failures.items():
                yield self.reading("peer_failures_total", count, peer=peer.name, reason=fault.value)

    def of_sum(self, total: Sum | None, expected: int, nameplate: float | None) -> Iterator[OwnReading]:
        """Yield the rack's power: as reported, and with the nameplate of a node for each that is silent."""
        reporting = 0 if total is None else len(total.nodes)
        silent = max(expected - reporting, 0)
        yield self.reading("nodes_reporting", reporting)
        if total is not None:
            yield self.reading("power_watts", total.watts)
            yield self.reading("power_timestamp_seconds", total.second)
        if silent == 0 or nameplate is not None:
            watts = (0.0 if total is None else total.watts) + silent * (nameplate or 0.0)
            yield self.reading("power_conservative_watts", watts)

    def of_sources(self, sources: Mapping[str, int]) -> Iterator[OwnReading]:
        """Yield the sources of the power in the sum, and how many nodes have each."""
        return (self.reading("nodes_by_power_source", count, source=name) for name, count in sorted(sources.items()))

    def of_silence(self, nodes: int | None) -> list[OwnReading]:
        """Return how many nodes have been missing for long, once that can be known."""
        return [] if nodes is None else [self.reading("nodes_missing", nodes)]

    def of_breakers(self, states: Iterable[State]) -> Iterator[OwnReading]:
        """Yield how loaded and how warm each breaker is, and when it opens, if it does at this load."""
        for state in states:
            feed = state.breaker.name
            yield self.reading("breaker_load_ratio", state.load, feed=feed, split=state.breaker.split)
            yield self.reading("breaker_heat_ratio", state.heat, feed=feed)
            if state.opens_in is not None:
                yield self.reading("breaker_trip_seconds", state.opens_in, feed=feed)

    def of_limits(self, reports: Iterable[Report]) -> Iterator[OwnReading]:
        """Yield the limits that agents report, under the labels that a scrape gives the series of each agent."""
        for report in reports:
            labels = {"instance": report.instance, "job": report.job}
            for name, watts in (report.limits or {}).items():
                if name == BUDGET:
                    yield self.reading("power_budget_watts", watts, **labels)
                elif name.startswith(FEEDS):
                    yield self.reading("feed_limit_watts", watts, feed=name.removeprefix(FEEDS), **labels)

    def of_domains(self, reports: Iterable[tuple[str, Iterable[DomainShare]]]) -> Iterator[OwnReading]:
        """Yield how many GPUs are in which NVLink domain, and in none, by the name that each node gives itself."""
        joined: Counter[tuple[str, str, str]] = Counter()
        unjoined: Counter[str] = Counter()
        for node, shares in reports:
            for share in shares:
                unjoined[node] += 0 if share.cluster_uuid else share.gpus
                if share.cluster_uuid:
                    joined[node, share.cluster_uuid, share.clique] += share.gpus
        for (node, cluster, clique), gpus in joined.items():
            yield self.reading("nvlink_gpus", gpus, peer=node, cluster_uuid=cluster, clique=clique)
        for node, gpus in unjoined.items():
            yield self.reading("nvlink_unregistered_gpus", gpus, peer=node)


class ConfiguredRack:
    """The configured facts of the rack, which do not change until the configuration is read again."""

    def __init__(self, options: RackOptions) -> None:
        self.readings = tuple(_configured(options)) if options.name else ()
        self._frame = OwnSeries().frame(self.readings)

    def frame(self, _now: Instant) -> Frame:
        return self._frame


def _configured(options: RackOptions) -> Iterator[OwnReading]:
    series = RackSeries(options.name)
    for name, value in (
        ("power_budget_watts", options.budget),
        ("nodes_expected", options.nodes_expected),
        ("nvlink_domains_expected", options.nvlink_domains),
    ):
        if value is not None:
            yield series.reading(name, value)
    for feed, limit in options.feeds:
        yield series.reading("feed_limit_watts", limit, feed=feed)
