"""The rules that a query string of `/api/v1/rules` selects, with the parameters of Prometheus's own API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from urllib.parse import parse_qs

from agent.model import GroupReport, RuleReport

MAX_FIELDS = 500
"""Most parameters of a query: as many names as its line has room for, but far fewer than it could have ampersands."""

_TRUE = frozenset({"1", "t", "true"})
_FALSE = frozenset({"", "0", "f", "false"})


class ParameterError(ValueError):
    """An invalid query parameter, in Prometheus's words."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f'invalid parameter "{name}": {text}')


@dataclass(frozen=True, slots=True)
class RuleSelection:
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


def selection_of(query: str) -> RuleSelection:
    """What a query string asks for. Raises ParameterError.

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
