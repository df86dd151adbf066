"""Walks the catalogue and lists what to read on a GPU, before any device is asked.

A want is one value of one row, with its alternatives in order of preference. Nothing here knows how a
call is made or whether the device at hand supports it: `probe` finds that out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.catalogue import ROWS
from agent.catalogue.bindings import Call, Field, Gpm
from agent.model import Gpu, Lane, Metric, NvLink

NvmlBinding = Field | Call | Gpm


class Want(NamedTuple):
    """One value of a row, or all its values if a binding gives them together."""

    metric: Metric
    labels: tuple[str, ...]
    bindings: tuple[NvmlBinding, ...]

    @property
    def per_link(self) -> bool:
        """Whether there is one such value for each NVLink."""
        return self.metric.entity is NvLink


def lane_of(metric: Metric, binding: NvmlBinding) -> Lane:
    """The lane in which this binding is read."""
    if isinstance(binding, Call) and binding.lane is not None:
        return binding.lane
    return metric.lane


def wants(rows: Iterable[Metric] = ROWS) -> tuple[Want, ...]:
    """Every want of the rows that NVML serves, in the rows' order; bindings with equal labels are alternatives."""
    found: list[Want] = []
    for row in rows:
        if row.entity not in (Gpu, NvLink):
            continue
        groups: dict[tuple[str, ...], list[NvmlBinding]] = {}
        for binding in row.origin:
            if isinstance(binding, Field | Call | Gpm):
                groups.setdefault(binding.labels, []).append(binding)
        found.extend(Want(row, labels, tuple(bindings)) for labels, bindings in groups.items())
    return tuple(found)
