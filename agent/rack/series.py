"""Makes the readings of a rack: its own, what is configured of it, and the limits that other agents report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.model import Frame, Instant, Labels, Rack
from agent.rack.agreement import BUDGET, FEEDS
from agent.rack.breakers import State
from agent.rack.nvlink_domain import RackDomains
from agent.rack.peer_messages import PeerFault, Report
from agent.rack.peers import Peer
from agent.rack.power import Sum
from agent.rack.rack_options import RackOptions

BUDGET_WATTS, FEED_WATTS = "coldplate_rack_power_budget_watts", "coldplate_rack_feed_limit_watts"


class RackSeries:
    """The readings of one rack."""

    def __init__(self, name: str) -> None:
        self._rack = Rack(name)

    def of_excess(self, name: str, count: int) -> list[OwnReading]:
        """Return seconds in which this node, by its own name, drew more than was counted, if there were any."""
        labels = (("peer", name), ("reason", PeerFault.EXCESS.value))
        return [self._reading("peer_failures_total", count, labels)] if count else []

    def of_peers(self, peers: Iterable[Peer]) -> list[OwnReading]:
        """Return the outcome of asking each peer; one that was not asked yet has no readings."""
        made = []
        for peer in peers:
            if peer.tried:
                made.append(self._reading("peer_up", int(peer.up), (("peer", peer.name),)))
            for fault, count in peer.failures.items():
                labels = (("peer", peer.name), ("reason", fault.value))
                made.append(self._reading("peer_failures_total", count, labels))
        return made

    def of_sum(self, total: Sum | None, expected: int, nameplate: float | None) -> list[OwnReading]:
        """Return the rack's power: as reported, and with the nameplate of a node for each that is silent."""
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

    def of_count(self, expected: int) -> OwnReading:
        """Return how many nodes there should be."""
        return self._reading("nodes_expected", expected)

    def of_sources(self, sources: Mapping[str, int]) -> list[OwnReading]:
        """Return the sources of the power in the sum, and how many nodes have each."""
        return [self._reading("source_nodes", count, (("source", name),)) for name, count in sorted(sources.items())]

    def of_silence(self, nodes: int | None) -> list[OwnReading]:
        """Return how many nodes have been missing for long, once that can be known."""
        return [] if nodes is None else [self._reading("nodes_silent", nodes)]

    def of_clock(self, lead: float | None) -> list[OwnReading]:
        """Return how far our clock is from the others'."""
        return [] if lead is None else [self._reading("clock_lead_seconds", round(lead, 3) + 0.0)]

    def of_settings(self, differing: Mapping[str, bool]) -> list[OwnReading]:
        """Return whether the agents are configured alike."""
        return [
            self._reading("setting_differs", int(differs), (("setting", name),)) for name, differs in differing.items()
        ]

    def of_breakers(self, states: Iterable[State]) -> list[OwnReading]:
        """Return how loaded and how warm each breaker is, and when it opens, if it does at this load."""
        made = []
        for state in states:
            labels = (("feed", state.breaker.name),)
            made.append(self._reading("breaker_load_ratio", state.load, (*labels, ("split", state.breaker.split))))
            made.append(self._reading("breaker_heat_ratio", state.heat, labels))
            if state.opens_in is not None:
                made.append(self._reading("breaker_trip_seconds", state.opens_in, labels))
        return made

    def of_failover(self, watts: float | None) -> list[OwnReading]:
        """Return what the rack may draw when as many power shelves have failed as it tolerates."""
        return [] if watts is None else [self._reading("failover_limit_watts", watts)]

    def of_domains(self, domains: RackDomains) -> list[OwnReading]:
        """Return how many GPUs of each node are in which NVLink domain, and in none."""
        made = []
        for (node, cluster, clique), gpus in domains.joined.items():
            labels = (("peer", node), ("cluster_uuid", cluster), ("clique", clique))
            made.append(self._reading("nvlink_gpus", gpus, labels))
        for node, gpus in domains.unjoined.items():
            made.append(self._reading("nvlink_unjoined_gpus", gpus, (("peer", node),)))
        return made

    def _reading(self, name: str, value: float, labels: Labels = ()) -> OwnReading:
        return OwnReading(f"coldplate_rack_{name}", value, labels, self._rack)


class ConfiguredRack:
    """The configured facts of the rack, which do not change until the configuration is read again."""

    def __init__(self, options: RackOptions) -> None:
        self.readings = tuple(_configured(options)) if options.name else ()
        self._frame = OwnSeries().frame(self.readings)

    def frame(self, now: Instant) -> Frame:
        """Return the same frame at any moment."""
        del now
        return self._frame


def _configured(options: RackOptions) -> Iterator[OwnReading]:
    rack = Rack(options.name)
    if options.budget is not None:
        yield OwnReading(BUDGET_WATTS, options.budget, (), rack)
    if options.nodes_expected is not None:
        yield OwnReading("coldplate_rack_nodes_expected", options.nodes_expected, (), rack)
    if options.nvlink_domains is not None:
        yield OwnReading("coldplate_rack_nvlink_domains_expected", options.nvlink_domains, (), rack)
    for feed, limit in options.feeds:
        yield OwnReading(FEED_WATTS, limit, (("feed", feed),), rack)


def limits_of(reports: Iterable[Report], rack: Rack) -> Iterator[OwnReading]:
    """Yield the limits that agents report, under the labels that a scrape gives the series of each agent."""
    for report in reports:
        of = (("instance", report.instance), ("job", report.job))
        for name, watts in (report.limits or {}).items():
            if name == BUDGET:
                yield OwnReading(BUDGET_WATTS, watts, of, rack)
            elif name.startswith(FEEDS):
                yield OwnReading(FEED_WATTS, watts, (("feed", name[len(FEEDS) :]), *of), rack)
