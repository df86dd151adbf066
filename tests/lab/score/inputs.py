"""What the score depends on and is meant to follow, as one digest: rules, scenarios, expectations, plays.

It leaves out what cannot change when an alert fires: annotations, comments, descriptions. It leaves out the code as
well: of sampler, engine and model, since that changes all the time and hardly ever a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

import msgspec

from alerts.rulefile import AlertingRule, RecordingRule, RuleFile
from tests.lab.score.expectations import EXPECTED
from tests.lab.score.plays import parts


def digest(pack: Iterable[RuleFile]) -> str:
    """Of everything, in hexadecimal."""
    plays = [
        (part.name, part.number, part.seconds, replace(part.scenario(), description="", expect=())) for part in parts()
    ]
    rules = [_rule(group.name, group.interval, rule) for file in pack for group in file.groups for rule in group.rules]
    return sha256(msgspec.json.encode((rules, plays, EXPECTED), order="deterministic")).hexdigest()


def _rule(group: str, interval: float | None, rule: AlertingRule | RecordingRule) -> tuple[object, ...]:
    query = " ".join(rule.expression.split())
    if isinstance(rule, RecordingRule):
        return group, interval, rule.name, query, rule.labels
    return group, interval, rule.name, query, rule.terms.hold, rule.terms.keep
