"""What the rule files know: the names of recorded series, and the limits at which alerts begin.

The files are read as data; whether their queries are right is not judged here."""

import re
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.lib import textfile, yamltree

ROOT = Path(__file__).resolve().parents[1]
PACK = ROOT / "alerts" / "rules"
RUNBOOKS = ROOT / "alerts" / "runbooks"
FLEET = ROOT / "alerts" / "server" / "fleet.rules.yml"

BOUNDS = yamltree.Bounds(depth=16, nodes=50_000)

_STRING = re.compile(r'"[^"]*"')
_COMPARISON = re.compile(r"(>=|<=|==|>|<)\s*(?:bool\s+)?(-?\d+(?:\.\d+)?(?:e-?\d+)?)(?![\w.])")
_SENTENCE = re.compile(r".+?(?:[.:](?= |$))")
_COLORS = {"info": "blue", "warning": "orange", "critical": "red"}
GOOD = "green"
Steps = tuple[tuple[str, float | None], ...]
"""Colours, each with the value from which it applies; the first has none."""


class AlertThreshold(Struct, frozen=True):
    """A number that an alert compares with, and the colour of its severity."""

    value: float
    above: bool
    color: str


@cache
def _rules() -> tuple[dict[str, Any], ...]:
    paths = [*sorted(PACK.glob("*.yml")), FLEET]
    documents = [yamltree.load(textfile.read_text(path, textfile.RULES), BOUNDS) for path in paths]
    return tuple(rule for document in documents for group in document["groups"] for rule in group["rules"])


@cache
def recorded_series() -> dict[str, str]:
    """Return the recorded series of the pack and of the fleet's file, with their queries."""
    return {rule["record"]: rule["expr"] for rule in _rules() if "record" in rule}


def alerts() -> frozenset[str]:
    """Return the names of all alerts."""
    return frozenset(rule["alert"] for rule in _rules() if "alert" in rule)


def alert_meanings() -> dict[str, str]:
    """Return what each alert means, which is the first sentence of its runbook."""
    found = {}
    for name in sorted(alerts()):
        text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
        paragraph = " ".join(text.partition("matters\n")[2].strip().partition("\n\n")[0].split())
        sentence = _SENTENCE.match(paragraph)
        if sentence is None:
            raise ValueError(f"the runbook of {name} does not begin with what it means")
        found[name] = sentence[0].rstrip(".:").replace("`", "")
    return found


def limits(name: str) -> tuple[AlertThreshold, ...]:
    """Return the first limit of each rule of an alert, or all limits of each if the alert has several severities.

    `ALERT.VALUE` names the rules that give a label this value. Raises KeyError when there is no such alert, or it
    compares with no number.
    """
    alert, _, value = name.partition(".")
    rules = [rule for rule in _rules() if rule.get("alert") == alert]
    has_levels = len({rule["labels"]["severity"] for rule in rules}) > 1
    rules = [rule for rule in rules if value in ("", *rule["labels"].values())]
    if not rules:
        raise KeyError(f"no alert is named {name}")
    found = []
    for rule in rules:
        color = _COLORS[rule["labels"]["severity"]]
        compared = _limits_of(rule["expr"])
        found += [AlertThreshold(*each, color) for each in (compared if has_levels else compared[:1])]
    if not found:
        raise KeyError(f"{name}: its query compares with no number")
    return tuple(found)


def _limits_of(query: str) -> list[tuple[float, bool]]:
    """Return what a query compares with, in the direction of its first comparison, and whether it is above that."""
    condition = _STRING.sub('""', query.partition("unless")[0])
    compared = [(float(limit), sign.startswith(">")) for sign, limit in _COMPARISON.findall(condition)]
    return [each for each in compared if each[1] == compared[0][1]]


def steps(*names: str) -> Steps:
    """Return threshold steps from the limits of alerts on one quantity."""
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
