"""Rules and alerts in the JSON of Prometheus's own API, and the parameters that select them.

Key names, value formats and the order of groups are those of Prometheus (`web/api/v1`). It knows neither the rule
engine nor HTTP: reports and a selection in, bytes out.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Generator, Iterable, Iterator
from datetime import datetime, timezone
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from msgspec import Struct

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
        given = parse_qs(query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError as error:
        raise ParameterError("rule_name[]", f"more than {MAX_FIELDS} parameters; split the request") from error
    if "match[]" in given:
        raise ParameterError("match[]", "not supported here; use rule_name[], rule_group[] or file[]")
    kind = given.get("type", [""])[0].lower()
    if kind not in ("", "alert", "record"):
        raise ParameterError("type", f"not supported value {json.dumps(kind, ensure_ascii=False)}")
    excluded = given.get("exclude_alerts", [""])[0].lower()
    if excluded not in _TRUE | _FALSE:
        raise ParameterError("exclude_alerts", f"{json.dumps(excluded, ensure_ascii=False)} is neither true nor false")
    sets = {name: frozenset(values) for name, values in given.items()}
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


class _Printed(NamedTuple):
    """One rule's JSON, in three parts, so that its alerts can be left out or used alone."""

    report: RuleReport  # kept alive, or its id could be reused
    head: bytes
    alerts: bytes
    tail: bytes


class RulePrinter:
    """Makes the answers; keeps the JSON of each rule as long as its report is current.

    A report is current until the rule is evaluated again, and most of a long answer is about rules that were not
    evaluated since the last one: many different selections of 500 rules cost little more than one.
    """

    def __init__(self) -> None:
        self._printed: dict[int, _Printed] = {}
        self._groups: list[GroupReport] = []

    def alerts(self, groups: Iterable[GroupReport]) -> Iterator[bytes]:
        """Return the answer to `/api/v1/alerts`, piece by piece: what is pending or firing."""
        return envelope.success(self._alert_data(_ordered(groups)))

    def rules(self, groups: Iterable[GroupReport], selection: RuleSelection) -> Iterator[bytes]:
        """Return the answer to `/api/v1/rules`, piece by piece. A group without a selected rule is left out."""
        return envelope.success(self._rule_data(_ordered(groups), selection))

    def forget(self) -> None:
        """Drop all that is kept: there seem to be no more requests."""
        self._printed, self._groups = {}, []

    def _alert_data(self, groups: list[GroupReport]) -> Iterator[bytes]:
        self._drop_all_but(groups)
        yield b'{"alerts":'
        yield from envelope.array(self._alerts(groups))
        yield b"}"

    def _alerts(self, groups: list[GroupReport]) -> Iterator[bytes]:
        for group in groups:
            for rule in group.rules:
                yield (yield from self._print(rule)).alerts

    def _rule_data(self, groups: list[GroupReport], selection: RuleSelection) -> Iterator[bytes]:
        self._drop_all_but(groups)
        yield b'{"groups":['
        comma = b""
        for group in groups:
            rules = [rule for rule in group.rules if selection.has_rule(rule)] if selection.has_group(group) else []
            if rules:
                yield comma
                yield from self._group(group, rules, selection.exclude_alerts)
                comma = b","
            else:
                yield b""
        yield b"]}"

    def _group(self, group: GroupReport, rules: list[RuleReport], exclude_alerts: bool) -> Iterator[bytes]:
        yield envelope.dump({"name": group.name, "file": group.file})[:-1]
        yield b',"rules":'
        yield from envelope.array(self._rules(rules, exclude_alerts))
        about = {
            "interval": _number(group.interval),
            "limit": group.limit,
            "evaluationTime": _number(group.duration),
            "lastEvaluation": _timestamp(group.evaluated_at),
        }
        yield b"," + envelope.dump(about)[1:]

    def _rules(self, rules: list[RuleReport], exclude_alerts: bool) -> Iterator[bytes]:
        for rule in rules:
            _, head, alerts, tail = yield from self._print(rule)
            yield head + tail if exclude_alerts else head + alerts + tail

    def _print(self, rule: RuleReport) -> Generator[bytes, None, _Printed]:
        """Yield the rule's JSON, kept or made now; a rule with many alerts takes several turns."""
        printed = self._printed.get(id(rule))
        if printed is None:
            printed = (yield from _alerting(rule)) if rule.alerting else _recording(rule)
            self._printed[id(rule)] = printed
        return printed

    def _drop_all_but(self, groups: list[GroupReport]) -> None:
        if len(groups) == len(self._groups) and all(map(operator.is_, groups, self._groups)):
            return
        self._groups = groups
        standing = {id(rule) for group in groups for rule in group.rules}
        self._printed = {key: each for key, each in self._printed.items() if key in standing}


def _ordered(groups: Iterable[GroupReport]) -> list[GroupReport]:
    return sorted(groups, key=lambda group: (group.file, group.name))


def _alerting(rule: RuleReport) -> Generator[bytes, None, _Printed]:
    active = [alert for alert in rule.alerts if alert.phase in _ACTIVE]
    phases = {alert.phase for alert in active}
    about = {
        "state": next((phase.value for phase in _ACTIVE if phase in phases), "inactive"),
        "name": rule.name,
        "query": rule.query,
        "duration": _number(rule.hold),
        "keepFiringFor": _number(rule.keep),
        "labels": dict(rule.labels),
        "annotations": dict(rule.annotations),
    }
    alerts = []
    for batch in envelope.batches(map(_alert, active)):
        alerts.append(batch)
        yield b""
    tail = envelope.dump({**_evaluation(rule), "type": "alerting"})
    return _Printed(rule, envelope.dump(about)[:-1] + b',"alerts":[', b",".join(alerts), b"]," + tail[1:])


def _recording(rule: RuleReport) -> _Printed:
    about: dict[str, Any] = {"name": rule.name, "query": rule.query}
    if rule.labels:  # without labels Prometheus omits the key here, but not in alerting rules
        about["labels"] = dict(rule.labels)
    return _Printed(rule, envelope.dump({**about, **_evaluation(rule), "type": "recording"}), b"", b"")


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
    }


def _number(value: float) -> float:
    """Return a whole number without a fraction, as Go writes it: some clients read durations as integers."""
    return int(value) if value.is_integer() else value


def _timestamp(wall: float | None) -> str:
    """RFC 3339 in UTC, with as many digits of a second as needed."""
    if wall is None:
        return _NEVER
    at = datetime.fromtimestamp(wall, timezone.utc)
    fraction = f".{at.microsecond:06d}".rstrip("0") if at.microsecond > 0 else ""
    return f"{at:%Y-%m-%dT%H:%M:%S}{fraction}Z"
