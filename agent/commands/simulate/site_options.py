"""The options that describe a site in few words, as what a site file would say."""

from __future__ import annotations

import argparse
import re

from agent.backends.synthetic.scenario_schema import FAULTS
from agent.lib.wording import UserError, shown

SITE = ("nodes", "nodes_per_rack", "topology", "scenario", "nodes_per_job", "rack_budget", "cluster", "fault")
"""The options that say what a site file says itself."""
_FAULT = re.compile(
    r"([a-z-]{1,40})@([A-Za-z][A-Za-z0-9._-]{0,62}(?:\[[0-9]{1,6}-[0-9]{1,6}\])?)(?:/([^,]{1,80}))?((?:,.*)?)"
)
_WHOLE = re.compile(r"[0-9]{1,15}")
_WEIGHTED = re.compile(r"(.+)=([0-9]+(?:\.[0-9]+)?)")


def document(arguments: argparse.Namespace) -> dict[str, object]:
    """What a file would say that describes the same site. Raises UserError."""
    nodes, width = arguments.nodes or 8, arguments.nodes_per_rack or 4
    full, rest = divmod(nodes, width)
    rack = {} if arguments.rack_budget is None else {"power_budget": arguments.rack_budget}
    site: dict[str, object] = {
        "nodes_per_job": arguments.nodes_per_job or 1,
        "racks": [
            {"count": count, "nodes": size, **rack} for count, size in ((full, width), (1, rest)) if count * size
        ],
        "faults": [_fault(each) for each in arguments.fault or ()],
    }
    said = {name: getattr(arguments, name) for name in ("cluster", "seed", "topology")}
    site.update({name: value for name, value in said.items() if value is not None})
    if arguments.scenario:
        site["scenario"] = [_weighted(each) for each in arguments.scenario]
    return site


def _weighted(text: str) -> dict[str, object]:
    match = _WEIGHTED.fullmatch(text)
    return {"scenario": text} if match is None else {"scenario": match[1], "weight": float(match[2])}


def _fault(text: str) -> dict[str, object]:
    """A fault such as straggler@node17/3,at=2m: its kind, its node or rack, its GPU or port, and its keys."""
    match = _FAULT.fullmatch(text)
    if match is None:
        raise UserError(
            f"--fault: {shown(text)} is no KIND@PLACE[/PART][,KEY=VALUE...]; such as straggler@node17/3,at=2m"
        )
    kind, place, part, rest = match.groups()
    fault: dict[str, object] = {"kind": kind, "node" if place.startswith("node") else "rack": place}
    targets = FAULTS[kind].targets if kind in FAULTS else ()
    if part is not None:
        fault["gpu" if part[0].isdigit() or part == "all" else "port"] = int(part) if _WHOLE.fullmatch(part) else part
    elif targets[:1] == ("gpu",) and ",gpu=" not in rest:
        fault["gpu"] = 0
    for item in rest.split(",")[1:]:
        key, equals, value = item.partition("=")
        if not equals or not key:
            raise UserError(f"--fault: {shown(item)} of {shown(text)} is no KEY=VALUE; such as at=2m")
        fault[key] = _scalar(value)
    return fault


def _scalar(text: str) -> object:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if _WHOLE.fullmatch(text) else text
