"""Observations on a run: the alerts of the rules that fired in it, with their texts, devices and times.

The rules judge, and a report shows what they found. It says beside it what they could not judge: no alert is no proof
of health.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from agent.lib.wording import counted, one_line
from agent.model import SEVERITIES, Severity
from agent.recording.report import report_series as chosen
from agent.recording.report.run_facts import RecordedRun

MAX_ALERT_NAMES = 20
"""Names of alerts in a sentence on rules that could not judge; the JSON has all."""

_SEVERITIES = {severity: place for place, severity in enumerate(Severity)}
_OF_DEVICE = ("gpu", "uuid", "device", "port")
_SHOWN_ELSEWHERE = frozenset({"alertname", "alertstate", "severity", "instance", "job", *_OF_DEVICE})


class AlertOfRun(Struct, frozen=True):
    """An alert of a run, on a node, with its texts; `first` is the wall second in which it began."""

    alert: str
    node: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    first: float

    @property
    def severity(self) -> Severity:
        """How bad it is, by its label, as of a live alert."""
        return SEVERITIES.get(self.labels.get("severity", ""), Severity.WARNING)

    @property
    def device(self) -> str:
        """The GPU or port that its labels name; empty if it is of the node or of something else."""
        if "gpu" in self.labels:
            return f"GPU {one_line(self.labels['gpu'], 32)}"
        if "device" in self.labels and "port" in self.labels:
            return one_line(f"{self.labels['device']} port {self.labels['port']}", 64)
        return ""

    @property
    def summary(self) -> str:
        """Its summary, or else its name."""
        return one_line(self.annotations.get("summary", ""), 500) or one_line(self.alert, 80)

    @property
    def own_labels(self) -> str:
        """The labels that say more than name, severity, node and device."""
        pairs = ((name, value) for name, value in self.labels.items() if name not in _SHOWN_ELSEWHERE)
        return ", ".join(f"{one_line(name, 64)}={one_line(value, 64)}" for name, value in pairs)


class Observation(AlertOfRun, frozen=True):
    """An alert that fired: from the wall second `first` until `last`, `times` times, for `seconds` in all.

    `fires_at_end`: it still fired when the recording ended. `inhibited_by` is the name of the alert of which it was an
    effect each time that it began to fire; empty if it once had no cause.
    """

    last: float
    seconds: float
    times: int = 1
    fires_at_end: bool = False
    inhibited_by: str = ""


class PendingAlert(AlertOfRun, frozen=True):
    """An alert that was pending when the recording ended: for `seconds`, of the `hold` seconds of its rule's `for`."""

    seconds: float
    hold: float

    @property
    def missing(self) -> float:
        """Seconds for which its condition would have had to hold on."""
        return max(self.hold - self.seconds, 0.0)


class UnjudgedRule(NamedTuple):
    """An alerting rule that may have missed a fault: its alert and `severity`, which is empty if the rule sets none."""

    alert: str
    severity: str = ""


def severities_by_alert(rules: Iterable[UnjudgedRule]) -> dict[str, list[str]]:
    """Return each alert once, in the order of names, with the severities of these rules."""
    severities: dict[str, set[str]] = {}
    for rule in rules:
        severities.setdefault(rule.alert, set()).add(rule.severity)
    return {alert: sorted(severities[alert] - {""}) for alert in sorted(severities)}


class Judgement(Struct, frozen=True):
    """What rules found in a run, and what they could not judge.

    `rules` are the alerting rules by name. Of these `short` need a longer history than the recording has, and `unread`
    read only metrics that it lacks. `failures` are texts on rules that failed. `pending` are alerts that might
    have fired had the recording gone on. `snapshots` is the number of those that the rules read, of all nodes.
    """

    observations: Sequence[Observation] = ()
    rules: Sequence[str] = ()
    short: Sequence[UnjudgedRule] = ()
    unread: Sequence[UnjudgedRule] = ()
    failures: Sequence[str] = ()
    pending: Sequence[PendingAlert] = ()
    snapshots: int = 0


def in_order(observations: Iterable[Observation]) -> list[Observation]:
    """Return observations with causes before effects, then the worst first, then in the order of time."""
    return sorted(
        observations,
        key=lambda alert: (bool(alert.inhibited_by), _SEVERITIES[alert.severity], alert.first, alert.alert, alert.node,
                          sorted(alert.labels.items())),
    )  # fmt: skip


def pending_in_order(pending: Iterable[PendingAlert]) -> list[PendingAlert]:
    """Return pending alerts with the worst first, then those that lacked the least."""
    return sorted(
        pending,
        key=lambda alert: (_SEVERITIES[alert.severity], alert.missing, alert.alert, alert.node,
                           sorted(alert.labels.items())),
    )  # fmt: skip


def coverage_texts(judgement: Judgement, problems: Sequence[str] = ()) -> Iterator[str]:
    """Yield sentences on what was judged, and on what could not be; `problems` are those of the recordings."""
    if not judgement.rules:
        yield "No alert rule was evaluated: nothing was judged."
        return
    readable = f" in the {counted(judgement.snapshots, 'snapshot')} that could be read" if problems else ""
    none = "" if judgement.observations else f"No alert fired{readable}{_pending_text(len(judgement.pending))}. "
    were = "was" if len(judgement.rules) == 1 else "were"
    yield f"{none}{counted(len(judgement.rules), 'alert rule')} {were} evaluated over what was recorded."
    yield from unjudged_texts(judgement)
    yield from judgement.failures


def unjudged_texts(judgement: Judgement) -> Iterator[str]:
    """Yield a sentence for each reason for which rules could not judge, with the names of their alerts."""
    if judgement.short:
        need = "1 of them needs" if len(judgement.short) == 1 else f"{len(judgement.short)} of them need"
        alerts = _alert_names(judgement.short)
        yield f"{need} a longer history than this recording, and may have missed a fault: {alerts}."
    if judgement.unread:
        yield (
            f"{len(judgement.unread)} of them found none of their metrics (the node has no such device, or it was not "
            f"recorded): {_alert_names(judgement.unread)}."
        )


def _alert_names(rules: Sequence[UnjudgedRule]) -> str:
    """Return the alerts of rules by name, each once: the first of them, and how many more there are."""
    names = [one_line(alert, 80) for alert in severities_by_alert(rules)]
    more = names[MAX_ALERT_NAMES:]
    return ", ".join(names[:MAX_ALERT_NAMES]) + (f" and {len(more)} more" if more else "")


def _pending_text(count: int) -> str:
    if not count:
        return ""
    return f"; {count} {'was' if count == 1 else 'were'} pending when the recording ended"


def recorded_observations(run: RecordedRun) -> list[Observation]:
    """Return the alerts that the nodes' own agents fired while they were recorded, without texts."""
    return in_order(
        Observation(labels.get("alertname", ""), node.name, labels, {}, state.spans[0][0], state.spans[-1][1],
                    state.on, state.flips)
        for node in run.nodes
        for labels, state in node.facts_of().states(chosen.ALERT)
        if labels.get("alertstate") == "firing" and state.spans
    )  # fmt: skip


def without_repeated(recorded: Iterable[Observation], played: Iterable[Observation]) -> list[Observation]:
    """Return what only the recording has: no alert of that name fired on that device of the node."""
    repeated = {(alert.node, alert.alert, alert.device) for alert in played}
    return [alert for alert in recorded if (alert.node, alert.alert, alert.device) not in repeated]
