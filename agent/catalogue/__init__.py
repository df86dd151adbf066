"""The metric catalogue: one row for each metric, and everything else reads it."""

from __future__ import annotations

from agent.catalogue import agent, equipment, gpu, infiniband, jobs, links, node, optics, rack
from agent.catalogue.bindings import Derived
from agent.lib.record import replace
from agent.model import Kind, Metric

STATISTICS = ("min", "mean", "max")


def rolling_name(name: str, statistic: str) -> str:
    """Return the name with `statistic` before its unit: coldplate_gpu_power_watts, coldplate_gpu_power_max_watts."""
    stem, _, unit = name.rpartition("_")
    return f"{stem}_{statistic}_{unit}"


def _rolling(row: Metric) -> tuple[Metric, ...]:
    what = {"min": "Lowest", "mean": "Mean", "max": "Highest"}
    return tuple(
        replace(
            row,
            name=rolling_name(row.name, statistic),
            help=f"{what[statistic]} over the rolling minute: {row.help[0].lower()}{row.help[1:]}",
            origin=(Derived(f"{statistic} of {row.name} over sampling.window"),),
            rolling=False,
            shown=row.statistics_shown,
        )
        for statistic in STATISTICS
    )


def peak_name(name: str) -> str:
    """Return the name of a counter's peak: coldplate_x_bytes_total, coldplate_x_peak_bytes_per_second."""
    stem, unit, _ = name.rsplit("_", 2)
    return f"{stem}_peak_{unit}_per_second"


def _peak(row: Metric) -> Metric:
    return replace(
        row,
        name=peak_name(row.name),
        kind=Kind.GAUGE,
        help=f"Highest rate from one sample to the next within the rolling minute: {row.help[0].lower()}{row.help[1:]}",
        origin=(Derived(f"growth of {row.name} over sampling.window"),),
        span=(0, 1e13),
        peak=False,
        shown=row.statistics_shown,
    )


_BASE: tuple[Metric, ...] = (
    gpu.ROWS
    + jobs.ROWS
    + links.ROWS
    + links.QUALITY
    + infiniband.ROWS
    + optics.ROWS
    + optics.TRANSCEIVERS
    + node.ROWS
    + equipment.ROWS
    + rack.ROWS
    + rack.EQUIPMENT
    + agent.ROWS
)
ROLLING: dict[str, tuple[Metric, ...]] = {row.name: _rolling(row) for row in _BASE if row.rolling}
"""For each rolling row, its minimum, mean and maximum rows, in the order of STATISTICS."""

PEAKS: dict[str, Metric] = {row.name: _peak(row) for row in _BASE if row.peak}
"""For each counter that has one, the row of its highest rate."""


def statistics_of(name: str) -> tuple[Metric, ...]:
    """Return the rows of a row's statistics, which follow it everywhere."""
    return (*ROLLING.get(name, ()), *((PEAKS[name],) if name in PEAKS else ()))


ROWS: tuple[Metric, ...] = tuple(each for row in _BASE for each in (row, *statistics_of(row.name)))
BY_NAME: dict[str, Metric] = {row.name: row for row in ROWS}

if len(BY_NAME) != len(ROWS):
    raise AssertionError("two rows of the catalogue have the same name")


def metric(name: str) -> Metric:
    """Return the metric of that name. Raises KeyError for an unknown name."""
    return BY_NAME[name]
