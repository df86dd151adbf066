"""Rules and alerts in the JSON of Prometheus's own API, and the parameters that select them.

Key names, value formats and the order of groups are those of Prometheus (`web/api/v1`). It knows neither the rule
engine nor HTTP: reports and a selection in, bytes out.
"""

import json
from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs

from msgspec import Struct

from agent.health.evaluated_rules import next_evaluation
from agent.lib.wording import with_exponent
from agent.model import Alert, GroupReport, Phase, RuleReport
from exporters import envelope

MAX_FIELDS = 500
"""Most parameters of a query: as many names as its line has room for, but far fewer than it could have ampersands."""

_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"", "0", "f", "false"})


class ParameterError(ValueError):
    """An invalid query parameter, in Prometheus's words."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f'invalid parameter "{name}": {text}')


class RuleSelection(Struct, frozen=True):
    """Which rules are requested; None instead of a set selects all."""

    alerting: bool = True
    recording: bool = True
    names: frozenset[str] | None = None
    groups: frozenset[str] | None = None
    files: frozenset[str] | None = None
    exclude_alerts: bool = False

    def has_group(self, group: GroupReport) -> bool:
        return _among(group.name, self.groups) and _among(group.file, self.files)

    def has_rule(self, rule: RuleReport) -> bool:
        return (self.alerting if rule.alerting else self.recording) and _among(rule.name, self.names)


def selection_of(query: str) -> RuleSelection:
    """Return what a query string asks for. Raises ParameterError.

    An unknown parameter is ignored, as in Prometheus. `match[]` is known but rejected: an answer that ignored it would
    contain rules that were not asked for.
    """
    try:
        parameters = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise ParameterError("rule_name[]", f"more than {MAX_FIELDS} parameters; split the request") from error
    if "match[]" in parameters:
        raise ParameterError("match[]", "not supported here; use rule_name[], rule_group[] or file[]")
    kind = parameters.get("type", [""])[0].lower()
    if kind not in ("", "alert", "record"):
        raise ParameterError("type", f"not supported value {json.dumps(kind, ensure_ascii=False)}")
    excluded = parameters.get("exclude_alerts", [""])[0].lower()
    if excluded not in _TRUE | _FALSE:
        raise ParameterError("exclude_alerts", f"{json.dumps(excluded, ensure_ascii=False)} is neither true nor false")
    sets = {name: frozenset(values) for name, values in parameters.items()}
    return RuleSelection(
        alerting=kind != "record",
        recording=kind != "alert",
        names=sets.get("rule_name[]"),
        groups=sets.get("rule_group[]"),
        files=sets.get("file[]"),
        exclude_alerts=excluded in _TRUE,
    )


def _among(name: str, names: frozenset[str] | None) -> bool:
    return names is None or name in names


_NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time, which in Prometheus means that something has not happened yet."""

_ACTIVE = (Phase.FIRING, Phase.PENDING)  # the most severe first


def _ordered(groups: Iterable[GroupReport]) -> list[GroupReport]:
    return sorted(groups, key=lambda group: (group.file, group.name))


def _active(rule: RuleReport) -> list[Alert]:
    return [alert for alert in rule.alerts if alert.phase in _ACTIVE]


def alerts(groups: Iterable[GroupReport], devices: str = "") -> bytes:
    """Return the answer to `/api/v1/alerts`: what is pending or firing.

    `devices` says of devices that are not the node's what they are. `nextEvaluation` is when the group that waits
    longest is due: a time that is long past shows that the rules are behind.
    """
    ordered = _ordered(groups)
    data: dict[str, Any] = {
        "alerts": [_alert(alert) for group in ordered for rule in group.rules for alert in _active(rule)]
    }
    if devices:
        data["devices"] = devices
    if ordered:
        data["nextEvaluation"] = _timestamp(next_evaluation(ordered))
    return envelope.success(data)


def rules(groups: Iterable[GroupReport], selection: RuleSelection) -> bytes:
    """Return the answer to `/api/v1/rules`. A group without a selected rule is left out."""
    selected_groups = []
    for group in _ordered(groups):
        selected = [rule for rule in group.rules if selection.has_rule(rule)] if selection.has_group(group) else []
        if selected:
            selected_groups.append(_group(group, selected, selection.exclude_alerts))
    return envelope.success({"groups": selected_groups})


def _group(group: GroupReport, selected: list[RuleReport], exclude_alerts: bool) -> dict[str, Any]:
    return {
        "name": group.name,
        "file": group.file,
        "rules": [_alerting(rule, exclude_alerts) if rule.alerting else _recording(rule) for rule in selected],
        "interval": _number(group.interval),
        "limit": group.limit,
        "evaluationTime": _number(group.duration),
        "lastEvaluation": _timestamp(group.evaluated_at),
    }


def _alerting(rule: RuleReport, exclude_alerts: bool) -> dict[str, Any]:
    active = _active(rule)
    phases = {alert.phase for alert in active}
    return {
        "state": next((phase.value for phase in _ACTIVE if phase in phases), "inactive"),
        "name": rule.name,
        "query": rule.query,
        "duration": _number(rule.hold),
        "keepFiringFor": _number(rule.keep),
        "labels": dict(rule.labels),
        "annotations": dict(rule.annotations),
        "alerts": [] if exclude_alerts else [_alert(alert) for alert in active],
        **_evaluation(rule),
        "type": "alerting",
    }


def _recording(rule: RuleReport) -> dict[str, Any]:
    # Without labels Prometheus omits the key here, but not in alerting rules.
    labels = {"labels": dict(rule.labels)} if rule.labels else {}
    return {"name": rule.name, "query": rule.query, **labels, **_evaluation(rule), "type": "recording"}


def _evaluation(rule: RuleReport) -> dict[str, Any]:
    error = {"lastError": rule.error} if rule.error else {}
    return {
        "health": rule.health.value,
        **error,
        "evaluationTime": _number(rule.duration),
        "lastEvaluation": _timestamp(rule.evaluated_at),
    }


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "state": alert.phase.value,
        "activeAt": _timestamp(alert.active_at),
        "value": with_exponent(alert.value),
        **({"inhibitedBy": alert.inhibited_by} if alert.inhibited_by else {}),
        **({"firesAt": _timestamp(alert.fires_at)} if alert.fires_at is not None else {}),
    }


def _number(value: float) -> float:
    """Return a whole number without a fraction, as Go writes it: some clients read durations as integers."""
    return int(value) if value.is_integer() else value


def _timestamp(wall: float | None) -> str:
    """Return a time as in RFC 3339, in UTC, with as many digits of a second as needed."""
    if wall is None:
        return _NEVER
    at = datetime.fromtimestamp(wall, timezone.utc)
    fraction = f".{at.microsecond:06d}".rstrip("0") if at.microsecond > 0 else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"
