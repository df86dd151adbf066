"""What rules said of the run: as the node's own agent had it at the time, or as another reading of the recording gives.

Whoever evaluates rules over a recording makes `ToldAlert`s of the result, and the pages show them as they show those
that were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from agent.model import Labels, Node
from agent.recording.report import chosen_series as chosen
from agent.recording.report.run_facts import Run

_OWN = frozenset({"alertname", "alertstate", "severity"})


class ToldAlert(NamedTuple):
    """An alert that fired: from the wall second `first` until `last`, `times` times, for `seconds` in all.

    `labels` are its own, without its name, state and severity.
    """

    alert: str
    severity: str
    node: str
    labels: Labels
    first: float
    last: float
    seconds: float
    times: int


class RulesWording(NamedTuple):
    """What stands above the alerts, and in their place where there are none."""

    heading: str
    none: str


WHILE_RECORDED = RulesWording(
    "What the rules said while it was recorded",
    "No alert fired, or the recording is not of an agent that evaluates rules.",
)
PLAYED_NOW = RulesWording("What the rules say of the recording", "No alert would have fired.")


def recorded_alerts(run: Run) -> list[ToldAlert]:
    """The alerts that the nodes' own agents fired while they were recorded, in the order of time."""
    found = []
    for node in run.nodes:
        for labels, state in node.states(chosen.ALERT, Node()):
            told = dict(labels)
            if told.get("alertstate") != "firing" or not state.spans:
                continue
            rest = tuple(pair for pair in labels if pair[0] not in _OWN)
            name, severity = told.get("alertname", ""), told.get("severity", "")
            first, last = state.spans[0][0], state.spans[-1][1]
            found.append(ToldAlert(name, severity, node.name, rest, first, last, state.on, state.flips))
    return sorted(found, key=lambda one: (one.first, one.alert, one.node))


def told_alerts(spans: Iterable[tuple[str, Labels, float, float]]) -> list[ToldAlert]:
    """Of firing alerts, each with its node, its labels and the wall seconds of its beginning and its end."""
    found: dict[tuple[str, Labels], list[tuple[float, float]]] = {}
    for node, labels, first, last in spans:
        found.setdefault((node, labels), []).append((first, last))
    made = []
    for (node, labels), times in found.items():
        told = dict(labels)
        rest = tuple(pair for pair in labels if pair[0] not in _OWN)
        first, last, seconds = times[0][0], times[-1][1], sum(end - begin for begin, end in times)
        made.append(
            ToldAlert(told.get("alertname", ""), told.get("severity", ""), node, rest, first, last, seconds, len(times))
        )
    return sorted(made, key=lambda one: (one.first, one.alert, one.node))
