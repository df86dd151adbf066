"""The rows of the node: processors, memory, disks, network, pressure, and its power."""

from __future__ import annotations

from agent.catalogue.bindings import Source
from agent.model import Kind, Lane, Metric, Node, Unit

NODE_POWER = Metric(
    "coldplate_node_power_watts", Kind.GAUGE, Unit.WATTS, Node,
    "Power of the whole node, by source; source 'estimate' is computed from GPU power, not measured.",
    Lane.FAST, (Source("redfish, ipmi, hwmon, rapl or estimate"),), labels=("source",),
    span=(0, 1e6), simulated=(500, 20_000), rolling=True,
)  # fmt: skip

ROWS: tuple[Metric, ...] = (NODE_POWER,)
