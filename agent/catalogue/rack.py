"""The rows of the rack that feeds this node."""

from __future__ import annotations

from agent.catalogue.bindings import Derived, Source
from agent.model import Kind, Lane, Metric, Rack, Unit

ROWS = (
    Metric("coldplate_rack_power_budget_watts", Kind.GAUGE, Unit.WATTS, Rack,
           "Power that the rack may draw.",
           Lane.FAST, (Source("configuration: rack.power_budget"),), span=(0, 1e8), simulated=(1e3, 1e6)),
    Metric("coldplate_rack_nodes_expected", Kind.GAUGE, Unit.NONE, Rack,
           "Nodes that the rack should have.",
           Lane.FAST, (Source("configuration: rack.nodes_expected"),), span=(0, 1000), simulated=(1, 72)),
    Metric("coldplate_rack_power_watts", Kind.GAUGE, Unit.WATTS, Rack,
           "Power that the reporting nodes of the rack draw; needs rack peers, not in this version.",
           Lane.FAST, (Derived("node power of the rack's peers"),), span=(0, 1e8), simulated=(1e3, 1e6)),
    Metric("coldplate_rack_nodes_reporting", Kind.GAUGE, Unit.NONE, Rack,
           "Nodes whose power is in the rack's sum; needs rack peers, not in this version.",
           Lane.FAST, (Derived("rack peers that answered"),), span=(0, 1000), simulated=(0, 72)),
)  # fmt: skip
