"""What rules could judge in a recording: which of them look back further than it reaches, or read what it lacks."""

from collections.abc import Container

from msgspec import Struct

from alerts.engine import Ruleset
from alerts.rule_inputs import SUMS, RuleReader, alerting_rules


class RuleCoverage(Struct, frozen=True):
    """Alerting rules, each an entry: all of them by name, and those that may miss a fault by name and severity.

    `short` look back or wait for longer than the recording lasts; `unread` read only metrics that it does not have.
    """

    rules: tuple[str, ...]
    short: tuple[tuple[str, str], ...]
    unread: tuple[tuple[str, str], ...]


def coverage_of(rules: Ruleset, metrics: Container[str], seconds: float) -> RuleCoverage:
    """Return what rules could judge in a recording with these metrics that lasts for so long."""
    reader = RuleReader(rules)
    names: list[str] = []
    short: list[tuple[str, str]] = []
    unread: list[tuple[str, str]] = []
    for rule in alerting_rules(rules):
        inputs = reader.inputs_of(rule)
        unjudged = rule.name, next((text.source for name, text in rule.labels if name == "severity"), "")
        names.append(rule.name)
        if inputs.metrics and not any(_is_recorded(name, metrics) for name in inputs.metrics):
            unread.append(unjudged)
        elif inputs.history + rule.terms.hold > seconds:
            short.append(unjudged)
    return RuleCoverage(tuple(names), tuple(short), tuple(unread))


def _is_recorded(name: str, metrics: Container[str]) -> bool:
    """Return whether a recording has a metric, or shows by its sum that it counts nothing yet."""
    return name in metrics or SUMS.get(name, "") in metrics
