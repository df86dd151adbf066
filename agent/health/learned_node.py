"""Expectations made of a node as it is, for the nodes that are to be like it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from math import floor
from typing import Any

from agent.health import gpu_findings, link_findings
from agent.health.device_states import LIMIT, PORT_UP, RATE, WIDTH
from agent.health.expectations import NodeExpectations
from agent.health.seen_node import LINK_UP, SeenNode
from agent.model import Gpu, NvLink

HEADER = """\
# What this node should be, as it was when `coldplate check --learn` wrote this file. Read it before you rely on it:
# what was broken then is expected from now on. Keys: docs/terminal.md. Remove what is not to be checked.
"""


def learned(view: SeenNode, description: str, margin: float) -> NodeExpectations:
    """Return the facts of the node. `margin` is the least distance to the slowdown in degrees, which no node teaches.

    Of what differs between its GPUs, the least is taken.
    """
    links = Counter(each.entity.gpu for each in view.all(LINK_UP)
                    if isinstance(each.entity, NvLink) and each.value)  # fmt: skip
    speeds = [value / links[gpu] for gpu, value in view.of_gpus(link_findings.SPEED).items() if links[gpu]]
    active = {each.entity for each in view.all(PORT_UP) if each.value}
    rates = [each.value for each in view.all(RATE) if each.entity in active]
    joined = view.of_gpus(link_findings.FABRIC_STATE, state="completed")
    near, distances = link_findings.nearest_adapters(view)
    slots = view.slots()
    memory = _least(view.of_gpus(gpu_findings.MEMORY))
    return NodeExpectations(
        description=description,
        models=tuple(dict.fromkeys(view.models().values())),
        gpus=len(view.gpus),
        gpu_memory_gib=None if memory is None else floor(memory / 2**30 * 10) / 10,
        gpu_power_limit_watts=_least(view.of_gpus(LIMIT)),
        gpu_temperature_margin_celsius=margin,
        ecc=_switch(view.of_gpus(gpu_findings.ECC)),
        persistence=_switch(view.of_gpus(gpu_findings.PERSISTENCE)),
        pcie_generation=_whole(_least(view.of_gpus(link_findings.GENERATION_MAX))),
        pcie_width=_whole(_least(view.of_gpus(WIDTH))),
        nvlinks=min((links[gpu] for gpu in view.answering), default=0) or None,
        nvlink_gigabytes_per_second=round(min(speeds) / link_findings.GIGABYTE, 3) if speeds else None,
        fabric=True if joined and all(joined.values()) else None,
        ports=len(active) or None,
        port_gigabits_per_second=round(min(rates) / link_findings.GIGABIT, 1) if rates else None,
        hca_distances=tuple(dict.fromkeys(distances.values())) or None,
        nearest_hcas={slots[gpu]: tuple(sorted(devices)) for gpu, devices in near.items() if slots.get(gpu)} or None,
    )


def written(node: NodeExpectations) -> str:
    """Return the expectations as a file that `--expect` reads."""
    lines = []
    for key in node.__struct_fields__:
        value = getattr(node, key)
        if isinstance(value, dict):
            lines.append(f"{key}:")
            lines += [f"  {_scalar(name)}: {_list(each)}" for name, each in value.items()]
        elif isinstance(value, tuple):
            lines += [f"{key}: {_list(value)}"] if value else []
        elif value is not None:
            lines.append(f"{key}: {_scalar(value)}")
    return HEADER + "\n".join(lines) + "\n"


def _list(values: Iterable[str]) -> str:
    return f"[{', '.join(map(_scalar, values))}]"


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def _least(values: Mapping[Gpu, float]) -> float | None:
    return min(values.values(), default=None)


def _switch(values: Mapping[Gpu, float]) -> bool | None:
    return all(values.values()) if values else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
