"""The shortest ranges over which rules read each lane: a lane must be read several times within them."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from agent.catalogue import BY_NAME
from agent.model import Lane
from agent.sampler.settings import Ranges
from alerts.promql import Selector
from alerts.promql.labels import METRIC_NAME, LimitError, make_labels, match_all, wanted_name
from alerts.rulefile import RuleGroup
from alerts.windows.needs import selectors_of


def ranges_of(groups: Iterable[RuleGroup]) -> Ranges:
    """What the rules of these groups read of our metrics; instant selectors see each series as long as it is shown."""
    shortest: dict[Lane, float] = {}
    for group in groups:
        for rule in group.rules:
            for selector in selectors_of(rule):
                if selector.history > 0:
                    for lane in _lanes(selector):
                        shortest[lane] = min(shortest.get(lane, inf), selector.history)
    return Ranges(*(shortest.get(lane, inf) for lane in (Lane.FAST, Lane.SLOW, Lane.COLD)))


def _lanes(selector: Selector) -> set[Lane]:
    """The lanes of all metrics that a selector may select."""
    name = wanted_name(selector.matchers)
    if name is not None:
        return {BY_NAME[name].lane} if name in BY_NAME else set()
    naming = tuple(each for each in selector.matchers if each.name == METRIC_NAME)
    try:
        return {row.lane for name, row in BY_NAME.items() if match_all(naming, make_labels({}, name))}
    except LimitError:
        return set(Lane)
