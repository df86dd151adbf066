"""Writes the rule files of a server of many nodes, from loaded and perhaps changed rules.

A node judges its own GPUs each second, from series that a server sees every 15 seconds. A shard of a fleet need not do
that again for thousands of nodes: it evaluates what compares agents with each other. Loading a written file yields the
same rules. Labels of a group are written with each rule, so that older Prometheus servers can read them.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from msgspec.structs import replace

from alerts import durations, packs
from alerts.rulefile import AlertingRule, Rule, RuleFile, RuleGroup

_Node = Mapping[str, object]
_ODD_BREAKS = frozenset("\x85\u2028\u2029")
"""Other characters that YAML treats as the end of a line; only quotes preserve them."""


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and never uses anchors."""

    def ignore_aliases(self, data: object) -> bool:
        del data  # never an alias, whatever it is
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if _ODD_BREAKS & set(text) or text.endswith("\n\n") or text == "\n":
        style = '"'  # a block that ends with empty lines would include those that follow it
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def write(file: RuleFile) -> str:
    """Return the text of a rule file, in Prometheus's format."""
    if not file.groups:
        return "groups: []\n"
    return "groups:\n" + "\n".join(_group(group) for group in file.groups)


def _group(group: RuleGroup) -> str:
    head: dict[str, object] = {"name": group.name}
    if group.interval is not None:
        head["interval"] = durations.show(group.interval)
    if group.limit:
        head["limit"] = group.limit
    if group.query_offset:
        head["query_offset"] = durations.show(group.query_offset)
    if not group.rules:
        return _item({**head, "rules": []})
    rules = "\n".join(_item(_rule(rule)) for rule in group.rules)
    return f"{_item(head)}  rules:\n{re.sub('^(?=.)', '  ', rules, flags=re.MULTILINE)}"


def _rule(rule: Rule) -> _Node:
    if not isinstance(rule, AlertingRule):
        recording: dict[str, object] = {"record": rule.name, "expr": rule.expression}
        return {**recording, "labels": dict(rule.labels)} if rule.labels else recording
    fields: dict[str, object] = {"alert": rule.name, "expr": rule.expression}
    if rule.terms.hold:
        fields["for"] = durations.show(rule.terms.hold)
    if rule.terms.keep_firing:
        fields["keep_firing_for"] = durations.show(rule.terms.keep_firing)
    for key, templates in (("labels", rule.labels), ("annotations", rule.annotations)):
        if templates:
            fields[key] = {name: template.source for name, template in templates}
    return fields


def _item(fields: _Node) -> str:
    """Return one item of a list, with its keys in the given order and no line broken."""
    return yaml.dump([dict(fields)], Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)


COMPARING = frozenset({"breakers", "rack", "rack-faults", "rack-state"})
"""Files of the pack about what several agents see together."""


def of_a_shard(files: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """Return the files without those of the pack about one node. A site's own files are all kept."""
    alone = {path.resolve() for path in packs.shipped_files() if path.stem not in COMPARING}
    return tuple(file for file in files if Path(file.path).resolve() not in alone)


def at_most_every(seconds: float, files: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """Return the files with longer intervals for groups that have a shorter one; one without keeps the server's own."""

    def slowed(group: RuleGroup) -> RuleGroup:
        return group if group.interval is None else replace(group, interval=max(group.interval, seconds))

    return tuple(file.with_groups(slowed) for file in files)
