"""Groups of rows that belong together: sections of the reference, and what `metrics.disable` can switch off."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agent.catalogue import (
    PEAKS,
    ROLLING,
    agent,
    equipment,
    gpu,
    infiniband,
    jobs,
    links,
    node,
    nvlink_quality,
    optics,
    rack,
    rack_parts,
    statistics_of,
    transceivers,
)
from agent.model import Metric

ROLLING_WORD = "rolling"
"""Every minimum, mean, maximum and peak of a rolling window, in whichever group it is."""
DRIVERS_WORD = "infiniband-drivers"
"""Counters under names of the driver's own, whose rows are made when they are first seen."""


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """`word` is its name in the configuration, `title` its heading. Each row is followed by its statistics."""

    word: str
    title: str
    rows: tuple[Metric, ...]


def _group(word: str, title: str, rows: Iterable[Metric]) -> Group:
    return Group(word, title, tuple(each for row in rows for each in (row, *statistics_of(row.name))))


def _rest(rows: Iterable[Metric], *named: Iterable[Metric]) -> list[Metric]:
    taken = {row for part in named for row in part}
    return [row for row in rows if row not in taken]


_PORTS = (infiniband.TRAFFIC, infiniband.TROUBLE, infiniband.LEGACY, infiniband.TRANSPORT, infiniband.ROCE)
_NODE = (
    node.PROCESSOR,
    node.MEMORY,
    node.STORAGE,
    node.NETWORK,
    node.IDENTITY,
    node.METERS,
    node.RAPL,
    node.NVSWITCH,
    node.GPU_SUMS,
)

GROUPS: tuple[Group, ...] = (
    _group("gpu-presence", "GPU: presence", gpu.PRESENCE),
    _group("gpu-ledger", "GPU: where its time goes", gpu.LEDGER),
    _group("gpu-work", "GPU: work", gpu.WORK),
    _group("gpu-memory", "GPU: memory", gpu.MEMORY),
    _group("gpu-power", "GPU: power, heat, clocks", gpu.POWER),
    _group("gpu-throttling", "GPU: throttling", gpu.THROTTLING),
    _group("gpu-faults", "GPU: faults", gpu.FAULTS),
    _group("gpu-mig", "GPU: MIG", gpu.MIG),
    _group("jobs-holders", "Jobs: holders", jobs.HOLDERS),
    _group("jobs-facts", "Jobs: facts", jobs.FACTS),
    _group("jobs-sums", "Jobs: sums over GPUs", jobs.SUMS),
    _group("nvlink", "NVLink", links.NVLINK),
    _group("nvlink-quality", "NVLink: physical layer", nvlink_quality.ROWS),
    _group("nvlink-fabric", "NVLink: fabric", links.FABRIC),
    _group("pcie", "PCIe", links.PCIE),
    _group("infiniband-ports", "InfiniBand: ports", _rest(infiniband.ROWS, *_PORTS)),
    _group("infiniband-traffic", "InfiniBand: traffic", infiniband.TRAFFIC),
    _group("infiniband-trouble", "InfiniBand: trouble", infiniband.TROUBLE),
    _group("infiniband-legacy", "InfiniBand: legacy", infiniband.LEGACY),
    _group("infiniband-transport", "InfiniBand: transport", infiniband.TRANSPORT),
    _group("infiniband-roce", "InfiniBand: RoCE", infiniband.ROCE),
    _group("ethernet", "Ethernet: physical layer", optics.ETHERNET),
    _group("transceivers", "Ethernet: transceivers", transceivers.ROWS),
    _group("hca", "Network adapters: temperatures", optics.ADAPTERS),
    _group("node-processor", "Node: processor", node.PROCESSOR),
    _group("node-memory", "Node: memory", node.MEMORY),
    _group("node-storage", "Node: storage", node.STORAGE),
    _group("node-network", "Node: network", node.NETWORK),
    _group("node-identity", "Node: identity", node.IDENTITY),
    _group("node-power", "Node: power", _rest(node.ROWS, *_NODE)),
    _group("node-meters", "Node: power of its parts", node.METERS),
    _group("node-rapl", "Node: RAPL", node.RAPL),
    _group("node-nvswitch", "Node: NVSwitch", node.NVSWITCH),
    _group("node-gpus", "Node: sums over GPUs", node.GPU_SUMS),
    _group("equipment-leaks", "Equipment: leaks", equipment.LEAKS),
    _group("equipment-coolant", "Equipment: coolant", equipment.COOLANT),
    _group("equipment-air", "Equipment: fans and air", equipment.AIR),
    _group("rack-limits", "Rack: limits", rack.LIMITS),
    _group("rack-power", "Rack: power", rack.POWER),
    _group("rack-peers", "Rack: peers", rack.PEERS),
    _group("rack-breakers", "Rack: breakers", rack.BREAKERS),
    _group("rack-domains", "Rack: NVLink domains", rack.DOMAINS),
    _group("rack-parts", "Rack: parts of its equipment", rack_parts.PARTS),
    _group("rack-loops", "Rack: coolant loops", rack_parts.LOOPS),
    _group("rack-air", "Rack: air at its equipment", rack_parts.AMBIENT),
    _group("rack-distribution", "Rack: power shelves and PDUs", rack_parts.DISTRIBUTION),
    _group("agent-backends", "Agent: backends", agent.BACKENDS),
    _group("agent-sampler", "Agent: sampler", agent.SAMPLER),
    _group("agent-vitals", "Agent: vitals", agent.VITALS),
    _group("agent-overhead", "Agent: overhead", agent.OVERHEAD),
    _group("agent-expectations", "Agent: expectations", agent.EXPECTATIONS),
    _group("agent-rules", "Agent: rules", agent.RULES),
    _group("agent-notifications", "Agent: notifications", agent.NOTIFICATIONS),
    _group("agent-flight", "Agent: flight recorder", agent.FLIGHT),
    _group("agent-pushes", "Agent: pushes", agent.PUSHES),
    _group("recorded", "Recorded processes", agent.RECORDED),
)
"""Every row of the catalogue once, in the order of the reference."""

WORDS = (*(each.word for each in GROUPS), DRIVERS_WORD, ROLLING_WORD)

_WORD_OF = {row: each.word for each in GROUPS for row in each.rows}
_STATISTICS = frozenset(row for rows in (*ROLLING.values(), PEAKS.values()) for row in rows)


def words_of(row: Metric) -> tuple[str, ...]:
    """The words that switch the row off."""
    word = _WORD_OF.get(row, DRIVERS_WORD)
    return (word, ROLLING_WORD) if row in _STATISTICS else (word,)
