"""What the rule files know: the names of recorded series, and the limits at which alerts begin.

The files are read as data; whether their queries are right is not judged here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from agent.lib import textfile, yamltree

ROOT = Path(__file__).resolve().parents[1]
PACK = ROOT / "alerts" / "rules"
FLEET = ROOT / "packaging" / "prometheus" / "fleet.rules.yml"

BOUNDS = yamltree.Bounds(depth=16, nodes=50_000)

_STRING = re.compile(r'"[^"]*"')
_COMPARISON = re.compile(r"(>=|<=|==|>|<)\s*(?:bool\s+)?(-?\d+(?:\.\d+)?(?:e-?\d+)?)(?![\w.])")
_COLORS = {"info": "blue", "warning": "orange", "critical": "red"}
GOOD = "green"
Steps = tuple[tuple[str, float | None], ...]
"""Colours, each with the value from which it applies; the first has none."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The first number that an alert compares with, and its severity."""

    value: float
    above: bool
    color: str
    level: str


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    paths = [*sorted(PACK.glob("*.yml")), FLEET]
    documents = [yamltree.load(textfile.read_text(path, textfile.RULES), BOUNDS) for path in paths]
    return tuple(rule for document in documents for group in document["groups"] for rule in group["rules"])


@cache
def recorded() -> dict[str, str]:
    """The recorded series of the pack and of the fleet's file, with their queries."""
    return {rule["record"]: rule["expr"] for rule in _rules() if "record" in rule}


def alerts() -> frozenset[str]:
    """The names of all alerts."""
    return frozenset(rule["alert"] for rule in _rules() if "alert" in rule)


def limits(alert: str) -> tuple[Limit, ...]:
    """The limits of an alert, one for each of its levels. Raises KeyError when there is no such alert."""
    found = []
    for rule in _rules():
        if rule.get("alert") == alert:
            match = _COMPARISON.search(_STRING.sub('""', rule["expr"]))
            if match is None:
                raise KeyError(f"{alert}: its query compares with no number")
            severity, level = rule["labels"]["severity"], rule["labels"].get("level", "")
            found.append(Limit(float(match[2]), match[1].startswith(">"), _COLORS[severity], level))
    if not found:
        raise KeyError(f"no alert is named {alert}")
    return tuple(found)


def steps(*names: str) -> Steps:
    """Threshold steps from the limits of alerts that all watch one quantity."""
    found = {(limit.value, limit.above, limit.color) for name in names for limit in limits(name)}
    if len({above for _, above, _ in found}) != 1:
        raise ValueError(f"{', '.join(names)}: limits in both directions make no steps")
    if next(iter(found))[1]:
        worst = {"blue": 0, "orange": 1, "red": 2}
        made: list[tuple[str, float | None]] = [(GOOD, None)]
        for value, _, color in sorted(found, key=lambda each: (each[0], worst[each[2]])):
            if made[-1][1] == value:
                made.pop()  # of two levels with the same limit the worse is shown
            made.append((color, value))
        return tuple(made)
    lower = sorted((value, color) for value, _, color in found)
    colors = [color for _, color in lower] + [GOOD]
    values: list[float | None] = [None, *(value for value, _ in lower)]
    return tuple(zip(colors, values, strict=True))
