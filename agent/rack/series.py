"""The rack's series: makes the readings, each series once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.catalogue import BY_NAME
from agent.model import Frame, Framer, Instant, Labels, Rack, Reading, Series
from agent.rack.agreement import BUDGET, FEEDS
from agent.rack.breakers import State
from agent.rack.nvlink_domain import RackDomains
from agent.rack.peer_messages import PeerFault, Report
from agent.rack.peers import Peer
from agent.rack.power import Sum
from agent.rack.rack_options import RackOptions


class RackSeries:
    """The readings of one rack."""

    def __init__(self, name: str) -> None:
        self._rack = Rack(name)
        self._series: dict[tuple[str, Labels], Series] = {}
        self._before = self._series

    def renew(self) -> None:
        """Begin a new frame: series that were not in the one before are forgotten, such as those of peers that left."""
        self._before, self._series = self._series, {}

    def of_excess(self, name: str, count: int) -> list[Reading]:
        """Return seconds in which this node, by its own name, drew more than was counted, if there were any."""
        labels = (("peer", name), ("reason", PeerFault.EXCESS.value))
        return [self._reading("peer_failures_total", count, labels)] if count else []

    def of_peers(self, peers: Iterable[Peer]) -> list[Reading]:
        """Return the outcome of asking each peer; one that was not asked yet has no readings."""
        made = []
        for peer in peers:
            if peer.tried:
                made.append(self._reading("peer_up", int(peer.up), (("peer", peer.name),)))
            for fault, count in peer.failures.items():
                labels = (("peer", peer.name), ("reason", fault.value))
                made.append(self._reading("peer_failures_total", count, labels))
        return made

    def of_sum(self, total: Sum | None, expected: int, nameplate: float | None) -> list[Reading]:
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

    def of_count(self, expected: int) -> Reading:
        """Return how many nodes there should be."""
        return self._reading("nodes_expected", expected)

    def of_sources(self, sources: Mapping[str, int]) -> list[Reading]:
        """Return the sources of the power in the sum, and how many nodes have each."""
        return [self._reading("source_nodes", count, (("source", name),)) for name, count in sorted(sources.items())]

    def of_silence(self, nodes: int | None) -> list[Reading]:
        """Return how many nodes have been missing for long, once that can be known."""
        return [] if nodes is None else [self._reading("nodes_silent", nodes)]

    def of_clock(self, lead: float | None) -> list[Reading]:
        """Return how far our clock is from the others'."""
        return [] if lead is None else [self._reading("clock_lead_seconds", round(lead, 3) + 0.0)]

    def of_settings(self, differing: Mapping[str, bool]) -> list[Reading]:
        """Return whether the agents are configured alike."""
        return [
            self._reading("setting_differs", int(differs), (("setting", name),)) for name, differs in differing.items()
        ]

    def of_breakers(self, states: Iterable[State]) -> list[Reading]:
        """Return how loaded and how warm each breaker is, and when it opens, if it does at this load."""
        made = []
        for state in states:
            labels = (("feed", state.breaker.name),)
            made.append(self._reading("breaker_load_ratio", state.load, (*labels, ("split", state.breaker.split))))
            made.append(self._reading("breaker_heat_ratio", state.heat, labels))
            if state.opens_in is not None:
                made.append(self._reading("breaker_trip_seconds", state.opens_in, labels))
        return made

    def of_failover(self, watts: float | None) -> list[Reading]:
        """Return what the rack may draw when as many power shelves have failed as it tolerates."""
        return [] if watts is None else [self._reading("failover_limit_watts", watts)]

    def of_domains(self, domains: RackDomains) -> list[Reading]:
        """Return how many GPUs of each node are in which NVLink domain, and in none."""
        made = []
        for (node, cluster, clique), gpus in domains.joined.items():
            labels = (("peer", node), ("cluster_uuid", cluster), ("clique", clique))
            made.append(self._reading("nvlink_gpus", gpus, labels))
        for node, gpus in domains.unjoined.items():
            made.append(self._reading("nvlink_unjoined_gpus", gpus, (("peer", node),)))
        return made

    def _reading(self, name: str, value: float, labels: Labels = ()) -> Reading:
        key = (name, labels)
        series = self._series.get(key) or self._before.get(key)
        if series is None:
            series = Series(BY_NAME[f"coldplate_rack_{name}"], self._rack, labels)
        self._series[key] = series
        return Reading(series, value)


class ConfiguredRack:
    """The configured facts of the rack, which do not change until the configuration is read again."""

    def __init__(self, options: RackOptions) -> None:
        self.readings = tuple(_configured(options)) if options.name else ()
        self._frame = Framer().frame(self.readings)

    def frame(self, now: Instant) -> Frame:
        """Return the same frame at any moment."""
        del now
        return self._frame


def _configured(options: RackOptions) -> Iterator[Reading]:
    rack = Rack(options.name)
    if options.budget is not None:
        yield Reading(Series(BY_NAME["coldplate_rack_power_budget_watts"], rack), options.budget)
    if options.nodes_expected is not None:
        yield Reading(Series(BY_NAME["coldplate_rack_nodes_expected"], rack), options.nodes_expected)
    if options.nvlink_domains is not None:
        yield Reading(Series(BY_NAME["coldplate_rack_nvlink_domains_expected"], rack), options.nvlink_domains)
    for feed, limit in options.feeds:
        yield Reading(Series(BY_NAME["coldplate_rack_feed_limit_watts"], rack, (("feed", feed),)), limit)


class Limits:
    """The limits that other agents report, each series once."""

    def __init__(self, name: str) -> None:
        self._rack = Rack(name)
        self._series: dict[tuple[str, str, str], Series] = {}

    def readings(self, reports: Iterable[Report]) -> list[Reading]:
        """Return the limits, under the labels that a scrape gives the series of the agent that reports them."""
        made, known = [], self._series
        self._series = {}  # those that no agent reports any more are forgotten
        for report in reports:
            for name, watts in (report.limits or {}).items():
                if name == BUDGET or name.startswith(FEEDS):
                    key = (report.instance, report.job, name)
                    series = self._series[key] = known.get(key) or self._make(*key)
                    made.append(Reading(series, watts))
        return made

    def _make(self, instance: str, job: str, name: str) -> Series:
        of = (("instance", instance), ("job", job))
        if name == BUDGET:
            return Series(BY_NAME["coldplate_rack_power_budget_watts"], self._rack, of)
        return Series(BY_NAME["coldplate_rack_feed_limit_watts"], self._rack, (("feed", name[len(FEEDS) :]), *of))
