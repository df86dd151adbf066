"""Rules for one sample of a node: without the time that they wait; and which of them need more than one."""

from msgspec.structs import replace

from alerts import packs
from alerts.engine import Ruleset
from alerts.rule_inputs import RuleReader, alerting_rules
from alerts.rulefile import AlertingRule, Rule, RuleGroup


def for_one_sample(rules: Ruleset) -> Ruleset:
    """Return the rules without `for`, all of them due in every round: an alert fires by one sample.

    The pack's rules about the agent are left out: no agent takes this sample, and what it may not read, as an
    ordinary user for one, says nothing about the node.
    """
    files = [file for file in rules.files if not packs.is_about_agent(file.path)]
    return replace(rules, files=tuple(replace(file, groups=tuple(map(_at_once, file.groups))) for file in files))


def _at_once(group: RuleGroup) -> RuleGroup:
    return replace(group, rules=tuple(map(_without_hold, group.rules)), interval=None)


def _without_hold(rule: Rule) -> Rule:
    return replace(rule, terms=replace(rule.terms, hold=0.0)) if isinstance(rule, AlertingRule) else rule


def looking_back(rules: Ruleset) -> list[AlertingRule]:
    """Return the alerting rules that read more than the newest sample, of metrics or by the series of other rules."""
    reader = RuleReader(rules)
    return [rule for rule in alerting_rules(rules) if reader.inputs_of(rule).history > 0]
