"""What the rules read: which series, and for how long their samples are needed.

Derived from the selectors of the compiled queries, once when rules are loaded. A recording rule's result counts
only if another rule reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.lib.precedence import give_way
from alerts.promql import Selector
from alerts.promql.labels import METRIC_NAME, Labels, label_value, make_labels
from alerts.promql.matchers import Matcher, match_all, wanted_name
from alerts.promql.query_errors import LimitError
from alerts.reads import reads_of
from alerts.rulefile import AlertingRule, Rule, RuleGroup

_REMEMBERED_NAMES = 1024


class Needs:
    """The selectors of rule groups, by the metric name that they select."""

    def __init__(self, groups: Iterable[RuleGroup]) -> None:
        self._by_name: dict[str | None, list[tuple[Selector, float]]] = {}
        self._wanting: dict[str, list[tuple[Selector, float]]] = {}
        for group in groups:
            for rule in group.rules:
                give_way()
                for selector in selectors_of(rule):
                    history = max(selector.history + group.query_offset, 0.0)
                    self._by_name.setdefault(wanted_name(selector.matchers), []).append((selector, history))

    def history_of(self, labels: Labels) -> float | None:
        """Seconds for which all samples of a series are needed, 0 for only the newest one; None if no rule reads it."""
        name = label_value(labels, METRIC_NAME)
        wanting = [history for selector, history in self._candidates(name) if _matches(selector.matchers, labels)]
        return max(wanting, default=None)

    def _candidates(self, name: str) -> list[tuple[Selector, float]]:
        """The selectors that may select a series of this name. There are many series, but few names."""
        found = self._wanting.get(name)
        if found is None:
            only_name = make_labels({}, name)
            open_ones = [
                (selector, history)
                for selector, history in self._by_name.get(None, ())
                if _matches(tuple(each for each in selector.matchers if each.name == METRIC_NAME), only_name)
            ]
            if len(self._wanting) >= _REMEMBERED_NAMES:
                self._wanting.clear()
            found = self._wanting[name] = [*self._by_name.get(name, ()), *open_ones]
        return found


def _matches(matchers: tuple[Matcher, ...], labels: Labels) -> bool:
    """Whether a rule may read a series. If finding out would take too long, it may, and the rule itself will fail."""
    try:
        return match_all(matchers, labels)
    except LimitError:
        return True


def selectors_of(rule: Rule) -> Iterator[Selector]:
    """The selectors of a rule's own query, and those of its templates' queries."""
    yield from rule.query.selectors
    if isinstance(rule, AlertingRule):
        for _, template in (*rule.labels, *rule.annotations):
            for question in template.queries:
                yield from reads_of(question).selectors
