"""What `rules check` advises on valid rule files: names that coldplate does not have, and ones that a page lacks."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from agent.catalogue import BY_NAME
from agent.model import Metric, Shown
from alerts.rulefile import RecordingRule, Rule, RuleFile
from alerts.yamlnodes import Problem
from exporters.document import labels_of

PREFIX = "coldplate_"
OF_DRIVERS = "coldplate_infiniband_"
"""Drivers have counters of their own names."""
ANY_LABEL = frozenset({"coldplate_alert", "coldplate_metric_missing"})
"""Metrics whose series have labels of what they tell of."""
OF_TARGETS = frozenset({"rack", "node", "cluster", "instance", "job"})
"""Labels that scraping may give to every series."""
_LABELS = {label for row in BY_NAME.values() for label in labels_of(row)} - OF_TARGETS
_STEMS = [name.removeprefix(PREFIX) for name in BY_NAME]


def advise(file: RuleFile) -> Iterator[Problem]:
    """A problem for each thing to look at, in the order of the rules; none makes the file invalid."""
    recorded = {rule.name for group in file.groups for rule in group.rules if isinstance(rule, RecordingRule)}
    for group in file.groups:
        for rule in group.rules:
            for text in dict.fromkeys(_of_rule(rule, recorded)):
                yield Problem(file.path, rule.line, f"group {group.name}, rule {rule.name}", text)


def _of_rule(rule: Rule, recorded: Iterable[str]) -> Iterator[str]:
    for selector in rule.query.selectors:
        name = next((each.value for each in selector.matchers if each.name == "__name__" and each.operator == "="), "")
        if not name.startswith(PREFIX) or name in recorded:
            continue
        row = BY_NAME.get(name)
        if row is not None:
            yield from _of_row(row, [matcher.name for matcher in selector.matchers])
        elif not name.startswith(OF_DRIVERS):
            near = difflib.get_close_matches(name.removeprefix(PREFIX), _STEMS, 1, 0.6)
            hint = f"did you mean {PREFIX}{near[0]}?" if near else "docs/metrics.md has the names"
            yield f"no metric of coldplate is called {name}; {hint}"


def _of_row(row: Metric, labels: Iterable[str]) -> Iterator[str]:
    if row.shown is Shown.DETAIL:
        yield (
            f"{row.name} is not on a page by default, so a Prometheus server does not see it; "
            f"add it: metrics: {{include: [default, {row.name}]}}"
        )
    has = labels_of(row)
    for label in labels:
        if label in has or label in OF_TARGETS or row.name in ANY_LABEL or label == "__name__":
            continue
        near = difflib.get_close_matches(label, has, 1, 0.7)
        if near or label in _LABELS:
            hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(has) or 'none'}"
            yield f"{row.name} has no label {label}{hint}"
