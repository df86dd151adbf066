"""The metric catalogue: one row for each metric, and everything else reads it."""

from collections.abc import Iterator
from dataclasses import replace

from agent.catalogue import agent, equipment, gpu, infiniband, jobs, links, node, optics, rack
from agent.catalogue.bindings import Derived
from agent.model import Kind, Metric

STATISTICS = ("min", "mean", "max")


def _rolling(row: Metric) -> tuple[Metric, ...]:
    """Return the statistics of coldplate_gpu_power_watts, such as coldplate_gpu_power_max_watts."""
    stem, _, unit = row.name.rpartition("_")
    adjectives = {"min": "Lowest", "mean": "Mean", "max": "Highest"}
    return tuple(
        replace(
            row,
            name=f"{stem}_{statistic}_{unit}",
            help=f"{adjectives[statistic]} over the rolling minute: {row.help[0].lower()}{row.help[1:]}",
            origin=(Derived(f"{statistic} of {row.name} over sampling.window"),),
            rolling=False,
            shown=row.statistics_shown,
        )
        for statistic in STATISTICS
    )


def _peak(row: Metric) -> Metric:
    """Return the peak of a counter: of coldplate_x_bytes_total, coldplate_x_peak_bytes_per_second."""
    stem, unit, _ = row.name.rsplit("_", 2)
    return replace(
        row,
        name=f"{stem}_peak_{unit}_per_second",
        kind=Kind.GAUGE,
        help=f"Highest rate from one sample to the next within the rolling minute: {row.help[0].lower()}{row.help[1:]}",
        origin=(Derived(f"growth of {row.name} over sampling.window"),),
        span=(0, 1e13),
        peak=False,
        shown=row.statistics_shown,
    )


SECTIONS: tuple[tuple[str, str, tuple[Metric, ...]], ...] = (
    ("gpu-presence", "GPU: presence", gpu.PRESENCE),
    ("gpu-ledger", "GPU: where its time goes", gpu.LEDGER),
    ("gpu-work", "GPU: work", gpu.WORK),
    ("gpu-memory", "GPU: memory", gpu.MEMORY),
    ("gpu-power", "GPU: power, heat, clocks", gpu.POWER),
    ("gpu-throttling", "GPU: throttling", gpu.THROTTLING),
    ("gpu-faults", "GPU: faults", gpu.FAULTS),
    ("gpu-mig", "GPU: MIG", gpu.MIG),
    ("jobs-holders", "Jobs: holders", jobs.HOLDERS),
    ("jobs-facts", "Jobs: facts", jobs.FACTS),
    ("jobs-sums", "Jobs: sums over GPUs", jobs.SUMS),
    ("nvlink", "NVLink", links.NVLINK),
    ("nvlink-quality", "NVLink: physical layer", links.QUALITY),
    ("nvlink-fabric", "NVLink: fabric", links.FABRIC),
    ("pcie", "PCIe", links.PCIE),
    ("infiniband-ports", "InfiniBand: ports", infiniband.PORTS),
    ("infiniband-traffic", "InfiniBand: traffic", infiniband.TRAFFIC),
    ("infiniband-trouble", "InfiniBand: trouble", infiniband.TROUBLE),
    ("infiniband-legacy", "InfiniBand: legacy", infiniband.LEGACY),
    ("infiniband-transport", "InfiniBand: transport", infiniband.TRANSPORT),
    ("infiniband-roce", "InfiniBand: RoCE", infiniband.ROCE),
    ("ethernet", "Ethernet: physical layer", optics.ETHERNET),
    ("transceivers", "Ethernet: transceivers", optics.TRANSCEIVERS),
    ("hca", "Network adapters: temperatures", optics.ADAPTERS),
    ("node-processor", "Node: processor", node.PROCESSOR),
    ("node-memory", "Node: memory", node.MEMORY),
    ("node-memory-errors", "Node: memory errors", node.MEMORY_ERRORS),
    ("node-faults", "Node: faults", node.FAULTS),
    ("node-storage", "Node: storage", node.STORAGE),
    ("node-network", "Node: network", node.NETWORK),
    ("node-identity", "Node: identity", node.IDENTITY),
    ("node-power", "Node: power", node.POWER),
    ("node-meters", "Node: power of its parts", node.METERS),
    ("node-rapl", "Node: RAPL", node.RAPL),
    ("node-nvswitch", "Node: NVSwitch", node.NVSWITCH),
    ("node-gpu-driver", "Node: GPU driver", node.GPU_DRIVER_ERRORS),
    ("node-gpus", "Node: sums over GPUs", node.GPU_SUMS),
    ("equipment-leaks", "Equipment: leaks", equipment.LEAKS),
    ("equipment-coolant", "Equipment: coolant", equipment.COOLANT),
    ("equipment-air", "Equipment: fans and air", equipment.AIR),
    ("rack-limits", "Rack: limits", rack.LIMITS),
    ("rack-power", "Rack: power", rack.POWER),
    ("rack-peers", "Rack: peers", rack.PEERS),
    ("rack-breakers", "Rack: breakers", rack.BREAKERS),
    ("rack-domains", "Rack: NVLink domains", rack.DOMAINS),
    ("rack-parts", "Rack: parts of its equipment", rack.PARTS),
    ("rack-loops", "Rack: coolant loops", rack.LOOPS),
    ("rack-air", "Rack: air at its equipment", rack.AMBIENT),
    ("rack-distribution", "Rack: power shelves and PDUs", rack.DISTRIBUTION),
    ("agent-backends", "Agent: backends", agent.BACKENDS),
    ("agent-sampler", "Agent: sampler", agent.SAMPLER),
    ("agent-vitals", "Agent: vitals", agent.VITALS),
    ("agent-overhead", "Agent: overhead", agent.OVERHEAD),
    ("agent-expectations", "Agent: expectations", agent.EXPECTATIONS),
    ("agent-rules", "Agent: rules", agent.RULES),
    ("agent-notifications", "Agent: notifications", agent.NOTIFICATIONS),
    ("agent-flight", "Agent: flight recorder", agent.FLIGHT),
    ("recorded", "Recorded processes", agent.RECORDED),
)
"""Every row, in groups that belong together: the word of a group in the configuration, its title, and its rows."""

_BASE = tuple(row for _, _, rows in SECTIONS for row in rows)
ROLLING: dict[str, tuple[Metric, ...]] = {row.name: _rolling(row) for row in _BASE if row.rolling}
"""For each rolling row, its minimum, mean and maximum rows, in the order of STATISTICS."""

PEAKS: dict[str, Metric] = {row.name: _peak(row) for row in _BASE if row.peak}
"""For each counter that has one, the row of its highest rate."""


def with_statistics(rows: tuple[Metric, ...]) -> Iterator[Metric]:
    """Yield rows, each followed by its statistics, as everywhere."""
    for row in rows:
        yield from (row, *ROLLING.get(row.name, ()))
        if row.name in PEAKS:
            yield PEAKS[row.name]


ROWS: tuple[Metric, ...] = tuple(with_statistics(_BASE))
BY_NAME: dict[str, Metric] = {row.name: row for row in ROWS}

if len(BY_NAME) != len(ROWS):
    raise AssertionError("two rows of the catalogue have the same name")
