"""Rules and alerts in the JSON of Prometheus's own API, so that what reads a Prometheus reads this node too.

Key names, value formats and the order of groups are Prometheus's (`web/api/v1`). It knows neither the rules
engine nor HTTP: reports and a query string in, bytes out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from urllib.parse import parse_qs

from agent.model import Alert, GroupReport, Phase, RuleReport
from exporters import envelope

_NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time, by which Prometheus says that something has not happened yet."""

_ACTIVE = (Phase.FIRING, Phase.PENDING)  # the most severe first
_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"", "0", "f", "false"})


class ParameterError(ValueError):
    """A query parameter that cannot be followed, told as Prometheus tells it."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f'invalid parameter "{name}": {text}')


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rules are asked for; a set that is None restricts nothing."""

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


def selection_of(query: str) -> Selection:
    """What a query string asks for. Raises ParameterError.

    A parameter that is not known is ignored, as Prometheus does. `match[]` is known, and refused: an answer
    that ignored it would hold rules that nobody asked for.
    """
    given = parse_qs(query, keep_blank_values=True)
    if "match[]" in given:
        raise ParameterError("match[]", "not supported here; use rule_name[], rule_group[] or file[]")
    kind = given.get("type", [""])[0].lower()
    if kind not in ("", "alert", "record"):
        raise ParameterError("type", f"not supported value {json.dumps(kind, ensure_ascii=False)}")
    excluded = given.get("exclude_alerts", [""])[0].lower()
    if excluded not in _TRUE | _FALSE:
        raise ParameterError("exclude_alerts", f"{json.dumps(excluded, ensure_ascii=False)} is neither true nor false")
    sets = {name: frozenset(values) for name, values in given.items()}
    return Selection(
        alerting=kind != "record",
        recording=kind != "alert",
        names=sets.get("rule_name[]"),
        groups=sets.get("rule_group[]"),
        files=sets.get("file[]"),
        exclude_alerts=excluded in _TRUE,
    )


def alerts(groups: Iterable[GroupReport]) -> bytes:
    """The answer to `/api/v1/alerts`: what is pending or firing."""
    found = [_alert(each) for group in _ordered(groups) for rule in group.rules for each in _active(rule)]
    return envelope.success({"alerts": found})


def rules(groups: Iterable[GroupReport], selection: Selection) -> bytes:
    """The answer to `/api/v1/rules`. A group of which no rule is asked for is left out."""
    asked = (_group(group, selection) for group in _ordered(groups) if selection.has_group(group))
    return envelope.success({"groups": [group for group in asked if group["rules"]]})


def _ordered(groups: Iterable[GroupReport]) -> list[GroupReport]:
    return sorted(groups, key=lambda group: (group.file, group.name))


def _among(name: str, names: frozenset[str] | None) -> bool:
    return names is None or name in names


def _group(group: GroupReport, selection: Selection) -> dict[str, Any]:
    return {
        "name": group.name,
        "file": group.file,
        "rules": [_rule(rule, selection.exclude_alerts) for rule in group.rules if selection.has_rule(rule)],
        "interval": _number(group.interval),
        "limit": group.limit,
        "evaluationTime": _number(group.duration),
        "lastEvaluation": _timestamp(group.evaluated_at),
    }


def _rule(rule: RuleReport, exclude_alerts: bool) -> dict[str, Any]:
    return dict(_alerting(rule, exclude_alerts) if rule.alerting else _recording(rule))


def _alerting(rule: RuleReport, exclude_alerts: bool) -> Iterator[tuple[str, Any]]:
    active = _active(rule)
    phases = {alert.phase for alert in active}
    yield "state", next((phase.value for phase in _ACTIVE if phase in phases), "inactive")
    yield "name", rule.name
    yield "query", rule.query
    yield "duration", _number(rule.hold)
    yield "keepFiringFor", _number(rule.keep)
    yield "labels", dict(rule.labels)
    yield "annotations", dict(rule.annotations)
    yield "alerts", [] if exclude_alerts else [_alert(alert) for alert in active]
    yield from _evaluation(rule)
    yield "type", "alerting"


def _recording(rule: RuleReport) -> Iterator[tuple[str, Any]]:
    yield "name", rule.name
    yield "query", rule.query
    if rule.labels:  # Prometheus leaves them out where there are none, here but not in alerting rules
        yield "labels", dict(rule.labels)
    yield from _evaluation(rule)
    yield "type", "recording"


def _evaluation(rule: RuleReport) -> Iterator[tuple[str, Any]]:
    yield "health", rule.health.value
    if rule.error:
        yield "lastError", rule.error
    yield "evaluationTime", _number(rule.duration)
    yield "lastEvaluation", _timestamp(rule.evaluated_at)


def _active(rule: RuleReport) -> list[Alert]:
    return [alert for alert in rule.alerts if alert.phase in _ACTIVE]


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "state": alert.phase.value,
        "activeAt": _timestamp(alert.active_at),
        "value": _scientific(alert.value),
    }


def _number(value: float) -> float:
    """A whole number without a fraction, as Go writes it: some clients read `limit` and durations as integers."""
    return int(value) if value.is_integer() else value


def _timestamp(wall: float | None) -> str:
    """RFC 3339 in UTC, with the digits of a second that are there."""
    if wall is None:
        return _NEVER
    at = datetime.fromtimestamp(wall, timezone.utc)
    fraction = f".{at.microsecond:06d}".rstrip("0") if at.microsecond > 0 else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _scientific(value: float) -> str:
    """The shortest digits that read back the same, always with an exponent: Go's `FormatFloat(v, 'e', -1, 64)`."""
    if value != value:
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    exponent = int(power or 0) + len(digits) - len(fraction) - 1 if digits else 0
    digits = digits.rstrip("0") or "0"
    point = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{point}e{exponent:+03d}"
