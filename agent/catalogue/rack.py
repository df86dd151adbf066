"""The rows of the rack that feeds this node."""

from __future__ import annotations

from agent.catalogue.bindings import Derived, Source
from agent.model import Kind, Lane, Metric, Rack, Unit

LIMITS = (
    Metric("coldplate_rack_power_budget_watts", Kind.GAUGE, Unit.WATTS, Rack,
           "Power budget of the rack.",
           Lane.FAST, (Source("configuration: rack.power_budget"),), span=(0, 1e8), simulated=(1e3, 1e6)),
    Metric("coldplate_rack_feed_limit_watts", Kind.GAUGE, Unit.WATTS, Rack,
           "Power limit of one of the rack's feeds.",
           Lane.FAST, (Source("configuration: rack.feeds"),), labels=("feed",), span=(0, 1e8), simulated=(1e3, 1e6)),
    Metric("coldplate_rack_nodes_expected", Kind.GAUGE, Unit.NONE, Rack,
           "Nodes that the rack should have; counted from the peers if not configured.",
           Lane.FAST, (Source("configuration: rack.nodes_expected, rack.peers"),), span=(0, 1000), simulated=(1, 72)),
)  # fmt: skip

POWER = (
    Metric("coldplate_rack_power_watts", Kind.GAUGE, Unit.WATTS, Rack,
           "Power of the rack's reporting nodes, all in the same second; coldplate_rack_nodes_reporting says how many.",
           Lane.FAST, (Derived("power of this node and of rack.peers"),), span=(0, 1e8), simulated=(1e3, 1e6)),
    Metric("coldplate_rack_power_conservative_watts", Kind.GAUGE, Unit.WATTS, Rack,
           "coldplate_rack_power_watts plus a node's nameplate for each expected node that does not report.",
           Lane.FAST, (Derived("coldplate_rack_power_watts and rack.node_nameplate"),),
           span=(0, 1e8), simulated=(1e3, 1e6)),
    Metric("coldplate_rack_power_timestamp_seconds", Kind.GAUGE, Unit.SECONDS, Rack,
           "End of the second that coldplate_rack_power_watts covers, in seconds since the epoch.",
           Lane.FAST, (Derived("wall clock"),), span=(0, 1e11), simulated=(1.7e9, 1.9e9)),
    Metric("coldplate_rack_nodes_reporting", Kind.GAUGE, Unit.NONE, Rack,
           "Nodes whose power is in the rack's sum, including this one.",
           Lane.FAST, (Derived("rack peers that answered"),), span=(0, 1000), simulated=(0, 72)),
    Metric("coldplate_rack_nodes_silent", Kind.GAUGE, Unit.NONE, Rack,
           "Expected nodes that have each been missing from the rack's sum for 30 s; absent until known.",
           Lane.FAST, (Derived("rack peers that answered"),), span=(0, 1000), simulated=(0, 72)),
    Metric("coldplate_rack_source_nodes", Kind.GAUGE, Unit.NONE, Rack,
           "Nodes in the rack's sum by the source of their power; source 'estimate' is computed, not measured.",
           Lane.FAST, (Derived("reports of rack peers"),), labels=("source",), span=(0, 1000), simulated=(0, 72)),
)  # fmt: skip

PEERS = (
    Metric("coldplate_rack_peer_up", Kind.STATE, Unit.NONE, Rack,
           "1 if the peer's last response was accepted, 0 if it was missing or rejected.",
           Lane.FAST, (Derived("polling of rack.peers"),), labels=("peer",), span=(0, 1), simulated=(0, 1)),
    Metric("coldplate_rack_peer_failures_total", Kind.COUNTER, Unit.NONE, Rack,
           "Failed or rejected responses of the peer: connect, timeout, http, garbage, foreign, clock or excess.",
           Lane.FAST, (Derived("polling of rack.peers"),), labels=("peer", "reason")),
    Metric("coldplate_rack_clock_lead_seconds", Kind.GAUGE, Unit.SECONDS, Rack,
           "Seconds that this node's clock is ahead of the median of the rack's other nodes.",
           Lane.FAST, (Derived("answers of rack.peers"),), span=(-1e11, 1e11), simulated=(-1, 1)),
    Metric("coldplate_rack_setting_differs", Kind.STATE, Unit.NONE, Rack,
           "1 if another agent of the rack is configured differently, by the setting that differs.",
           Lane.FAST, (Derived("answers of rack.peers"),), labels=("setting",), span=(0, 1), simulated=(0, 1)),
)  # fmt: skip

BREAKERS = (
    Metric("coldplate_rack_breaker_load_ratio", Kind.GAUGE, Unit.RATIO, Rack,
           "Load of a breaker divided by its rating; split is the source of its share: whole, configured or assumed.",
           Lane.FAST, (Derived("power of the rack and rack.breakers"),), labels=("feed", "split"),
           span=(0, 1e3), simulated=(0, 2)),
    Metric("coldplate_rack_breaker_heat_ratio", Kind.GAUGE, Unit.RATIO, Rack,
           "Thermal state of a breaker by the trip curve of its class: it trips at 1.",
           Lane.FAST, (Derived("power of the rack and rack.breakers"),), labels=("feed",),
           span=(0, 1), simulated=(0, 1)),
    Metric("coldplate_rack_breaker_trip_seconds", Kind.GAUGE, Unit.SECONDS, Rack,
           "Seconds until a breaker trips at its present load, by the curve of its class; absent if it never does.",
           Lane.FAST, (Derived("power of the rack and rack.breakers"),), labels=("feed",),
           span=(0, 1e6), simulated=(0, 1e4)),
    Metric("coldplate_rack_failover_limit_watts", Kind.GAUGE, Unit.WATTS, Rack,
           "Power that the rack's shelves can supply after as many failures as they may have.",
           Lane.FAST, (Source("configuration: rack.shelves"),), span=(0, 1e10), simulated=(1e3, 1e6)),
)  # fmt: skip

DOMAINS = (
    Metric("coldplate_rack_nvlink_gpus", Kind.GAUGE, Unit.NONE, Rack,
           "GPUs of a node of the rack that are in an NVLink domain across nodes, by cluster and clique.",
           Lane.FAST, (Derived("coldplate_gpu_fabric_info of this node and of rack.peers"),),
           labels=("peer", "cluster_uuid", "clique"), span=(0, 1024), simulated=(0, 8)),
    Metric("coldplate_rack_nvlink_unjoined_gpus", Kind.GAUGE, Unit.NONE, Rack,
           "GPUs of a node of the rack that have begun to register with an NVLink fabric, and have not joined it.",
           Lane.FAST, (Derived("coldplate_gpu_fabric_state of this node and of rack.peers"),),
           labels=("peer",), span=(0, 1024), simulated=(0, 8)),
    Metric("coldplate_rack_nvlink_domains_expected", Kind.GAUGE, Unit.NONE, Rack,
           "NVLink domains that the GPUs of the rack should be in, if configured.",
           Lane.FAST, (Source("configuration: rack.nvlink_domains"),), span=(0, 72), simulated=(1, 4)),
)  # fmt: skip

ROWS = LIMITS + POWER + PEERS + BREAKERS + DOMAINS
