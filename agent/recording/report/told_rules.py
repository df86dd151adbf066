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
            if ("alertstate", "firing") in labels and state.spans:
                first, last = state.spans[0][0], state.spans[-1][1]
                found.append(_told(labels, node.name, first, last, state.on, state.flips))
    return sorted(found, key=_in_time)


def told_alerts(spans: Iterable[tuple[str, Labels, float, float]]) -> list[ToldAlert]:
    """Of firing alerts, each with its node, its labels and the wall seconds of its beginning and its end."""
    found: dict[tuple[str, Labels], list[tuple[float, float]]] = {}
    for node, labels, first, last in spans:
        found.setdefault((node, labels), []).append((first, last))
    made = (
        _told(labels, node, times[0][0], times[-1][1], sum(end - begin for begin, end in times), len(times))
        for (node, labels), times in found.items()
    )
    return sorted(made, key=_in_time)


def _told(labels: Labels, node: str, first: float, last: float, seconds: float, times: int) -> ToldAlert:
    known = dict(labels)
    rest = tuple(pair for pair in labels if pair[0] not in _OWN)
    return ToldAlert(known.get("alertname", ""), known.get("severity", ""), node, rest, first, last, seconds, times)


def _in_time(told: ToldAlert) -> tuple[float, str, str]:
    return told.first, told.alert, told.node
