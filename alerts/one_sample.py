"""Rules for one sample of a node: without the time that they wait; and which of them need more than one."""

from collections.abc import Sequence

from msgspec.structs import replace

from alerts.engine import Ruleset
from alerts.promql.labels import only_metric_name
from alerts.rulefile import AlertingRule, RecordingRule, Rule, RuleGroup


def for_one_sample(rules: Ruleset) -> Ruleset:
    """Return the rules without `for`, all of them due in every round: an alert fires by one sample."""
    files = (replace(file, groups=tuple(map(_at_once, file.groups))) for file in rules.files)
    return replace(rules, files=tuple(files))


def _at_once(group: RuleGroup) -> RuleGroup:
    return replace(group, rules=tuple(map(_without_hold, group.rules)), interval=None)


def _without_hold(rule: Rule) -> Rule:
    return replace(rule, terms=replace(rule.terms, hold=0.0)) if isinstance(rule, AlertingRule) else rule


def looking_back(rules: Ruleset) -> list[AlertingRule]:
    """Return the alerting rules that read more than the newest sample, of metrics or by the series of other rules."""
    all_rules = [rule for group in rules.groups for rule in group.rules]
    histories: set[str] = set()
    while True:
        names = {rule.name for rule in all_rules if isinstance(rule, RecordingRule) and _looks_back(rule, histories)}
        if names <= histories:
            return [rule for rule in all_rules if isinstance(rule, AlertingRule) and _looks_back(rule, histories)]
        histories |= names


def alerting(rules: Ruleset) -> Sequence[AlertingRule]:
    """Return the rules that make alerts."""
    return [rule for group in rules.groups for rule in group.rules if isinstance(rule, AlertingRule)]


def _looks_back(rule: Rule, histories: set[str]) -> bool:
    """Return whether the query reads a range, or one of the series that come of a range."""
    selectors = rule.query.selectors
    return any(each.history > 0 or only_metric_name(each.matchers) in histories for each in selectors)
