"""Lists what the rules read: which series, and for how long their samples are needed.

Derived from the selectors of the compiled queries, once when rules are loaded. A recording rule's result counts
only if another rule reads it. A rule whose range does not fit into memory is refused: nothing is kept for it.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

from alerts.promql import Selector
from alerts.promql.labels import (
    METRIC_NAME,
    Labels,
    LimitError,
    Matcher,
    label_value,
    make_labels,
    match_all,
    only_metric_name,
)
from alerts.rulefile import AlertingRule, Rule, RuleGroup
from alerts.template.query_reads import reads_of

_REMEMBERED_NAMES = 1024


class _Need(NamedTuple):
    """One selector of one rule, and the seconds for which samples of what it selects are needed."""

    selector: Selector
    history: float
    rule: Rule


class Needs:
    """The selectors of rule groups, by the metric name that they select.

    Rules of the `shipped` files are never refused for those of others.
    """

    def __init__(self, groups: Iterable[RuleGroup], shipped: Container[str] = ()) -> None:
        self.refused: dict[Rule, str] = {}
        """Rules for which nothing is kept, and why."""
        self._by_name: dict[str | None, list[_Need]] = {}
        self._candidates_by_name: dict[str, list[_Need]] = {}
        self._shipped: set[Rule] = set()
        for group in groups:
            for rule in group.rules:
                if group.file in shipped:
                    self._shipped.add(rule)
                for selector in selectors_of(rule):
                    need = _Need(selector, range_of(selector, group), rule)
                    self._by_name.setdefault(only_metric_name(selector.matchers), []).append(need)

    def history_of(self, labels: Labels) -> float | None:
        """Return for how many seconds all samples of a series are needed; 0: the newest; None: no rule reads it."""
        return max((need.history for need in self._reading(labels)), default=None)

    def costliest(self, series: Iterable[Labels], price: Callable[[float], int]) -> tuple[Rule, float] | None:
        """Return the rule that takes most memory beside the shipped ones, and its longest range in seconds.

        `price` gives the bytes of a series by the seconds for which it is kept. None if shipped rules need all of it.
        """
        costs: Counter[Rule] = Counter()
        ranges: dict[Rule, float] = {}
        for labels in series:
            reading = list(self._reading(labels))
            shared = max((price(need.history) for need in reading if need.rule in self._shipped), default=0)
            for rule in {need.rule for need in reading} - self._shipped:
                history = max(need.history for need in reading if need.rule is rule)
                costs[rule] += max(price(history) - shared, 0)
                ranges[rule] = max(history, ranges.get(rule, 0.0))
        if not any(costs.values()):
            return None
        rule = max(costs, key=lambda r: (costs[r], r.line))
        return rule, ranges[rule]

    def refuse(self, rule: Rule, reason: str) -> None:
        """Keep nothing for a rule from now on."""
        self.refused[rule] = reason

    def _reading(self, labels: Labels) -> Iterator[_Need]:
        """Yield the needs of rules that read a series."""
        for need in self._candidates(label_value(labels, METRIC_NAME)):
            if need.rule not in self.refused and _matches(need.selector.matchers, labels):
                yield need

    def _candidates(self, name: str) -> list[_Need]:
        """Return the selectors that may select a series of this name. There are many series, but few names."""
        candidates = self._candidates_by_name.get(name)
        if candidates is None:
            only_name = make_labels({}, name)
            open_ones = [
                need
                for need in self._by_name.get(None, ())
                if _matches(tuple(m for m in need.selector.matchers if m.name == METRIC_NAME), only_name)
            ]
            if len(self._candidates_by_name) >= _REMEMBERED_NAMES:
                self._candidates_by_name.clear()
            candidates = self._candidates_by_name[name] = [*self._by_name.get(name, ()), *open_ones]
        return candidates


def _matches(matchers: tuple[Matcher, ...], labels: Labels) -> bool:
    """Return whether a rule may read a series.

    If finding out would take too long, it may, and the rule itself will fail.
    """
    try:
        return match_all(matchers, labels)
    except LimitError:
        return True


def range_of(selector: Selector, group: RuleGroup) -> float:
    """Return the seconds for which samples are kept for a selector of a group's rule; 0 for only the newest."""
    return max(selector.history + group.query_offset, 0.0)


def selectors_of(rule: Rule) -> Iterator[Selector]:
    """Yield the selectors of a rule's own query, and those of its templates' queries."""
    yield from rule.query.selectors
    if isinstance(rule, AlertingRule):
        for _, template in (*rule.labels, *rule.annotations):
            for query in template.queries:
                yield from reads_of(query).selectors
