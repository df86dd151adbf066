"""Which series a query in a template reads.

A template's query is known before it is rendered as far as its text is (see `alerts.template.foreseen`). A label
value that only the alert knows stands for any value. If a metric name is unknown the query may read any series, and the
newest sample of each is kept; that is reported when the file is loaded, as is an unknown range.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from alerts.promql import Matcher, PromqlError, Selector, compile_query
from alerts.promql.labels import METRIC_NAME
from alerts.template.foreseen import NUMBER, WORD, is_unforeseen, shown

_LOOKBACK_SECONDS = 300.0
_LONGEST_HISTORY_SECONDS = 10 * 365 * 86_400.0
"""Seconds: anything longer comes from a placeholder."""


class Reads(NamedTuple):
    """What a template's query reads, and what of that cannot be known; empty if all is known."""

    selectors: tuple[Selector, ...]
    problem: str


def reads_of(question: str) -> Reads:
    """What a query reads, which may contain placeholders. Any text has an answer, even if it is not a query."""
    try:
        query = compile_query(question)
    except PromqlError as error:
        if not is_unforeseen(question):
            return Reads((), f"query: {error}")
        return Reads((_EVERYTHING,), _told(question, "what it reads is known only when the alert fires"))
    found = query.selectors
    selectors = tuple(map(_opened, found))
    problem = f"query: will fail at every evaluation: {query.doom[0]}" if query.doom else ""
    if any(_is_open(each) and each not in found for each in selectors):
        problem = _told(question, "the metric name is known only when the alert fires")
    elif any(each.history > _LONGEST_HISTORY_SECONDS for each in selectors):
        problem = _told(question, "the range is known only when the alert fires")
    return Reads(tuple(map(_bounded, selectors)), problem)


_EVERYTHING = Selector((), _LOOKBACK_SECONDS, 0.0)


def _told(question: str, what: str) -> str:
    remedy = "write it out, or read the series in a rule; until then the newest sample of each is kept"
    return f"query {shown(question)!r}: {what}, so every series counts as read: {remedy}"


def _bounded(selector: Selector) -> Selector:
    return selector if selector.history <= _LONGEST_HISTORY_SECONDS else selector._replace(history=0.0)


def _is_open(selector: Selector) -> bool:
    return not any(each.name == METRIC_NAME and each.operator == "=" for each in selector.matchers)


def _opened(selector: Selector) -> Selector:
    """A selector that accepts any value in place of a placeholder."""
    matchers = [each for each in map(_any_value, selector.matchers) if each is not None]
    return selector._replace(matchers=tuple(matchers))


def _any_value(matcher: Matcher) -> Matcher | None:
    if not (is_unforeseen(matcher.value) or is_unforeseen(matcher.name)):
        return matcher
    if matcher.name != METRIC_NAME or matcher.operator != "=":
        return None
    pieces = re.split(f"{WORD}|{NUMBER}", matcher.value)
    return Matcher(METRIC_NAME, "=~", ".*".join(map(re.escape, pieces))) if any(pieces) else None
