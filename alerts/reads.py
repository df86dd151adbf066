"""Which series a query in a template reads.

The text of the query is in the template (see `alerts.template.query_reads`). A label value that only the alert knows
stands for any value, and part of a metric's name for any text. A query whose metric or range is unknown is refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from alerts.promql import Matcher, PromqlError, Selector, compile_query
from alerts.promql.labels import METRIC_NAME
from alerts.template.query_reads import NUMBER, WORD, is_unforeseen, shown


class Reads(NamedTuple):
    """What a template's query reads, and what is wrong with it, if anything; `is_unknown` if it is not known."""

    selectors: tuple[Selector, ...]
    problem: str = ""
    is_unknown: bool = False


def reads_of(question: str) -> Reads:
    """Return what a query reads, which may contain placeholders. Any text has an answer, even if it is not a query."""
    try:
        query = compile_query(question)
    except PromqlError as error:
        if not is_unforeseen(question):
            return Reads((), f"query: {error}")
        return _unknown(question, "what it reads is known only when the alert fires")
    found = query.selectors
    selectors = tuple(map(_opened, found))
    if any(_is_open(each) and each not in found for each in selectors):
        return _unknown(question, "the metric name is known only when the alert fires")
    return Reads(selectors, f"query: will fail at every evaluation: {query.doom[0]}" if query.doom else "")


def _unknown(question: str, what: str) -> Reads:
    return Reads((), f"query {shown(question)!r}: {what}; write it out, or read the series in a rule", is_unknown=True)


def _is_open(selector: Selector) -> bool:
    return not any(each.name == METRIC_NAME and each.operator in ("=", "=~") for each in selector.matchers)


def _opened(selector: Selector) -> Selector:
    """Return a selector that accepts any value in place of a placeholder."""
    matchers = [each for each in map(_any_value, selector.matchers) if each is not None]
    return selector._replace(matchers=tuple(matchers))


def _any_value(matcher: Matcher) -> Matcher | None:
    if not (is_unforeseen(matcher.value) or is_unforeseen(matcher.name)):
        return matcher
    if matcher.name != METRIC_NAME or matcher.operator != "=":
        return None
    pieces = re.split(f"{WORD}|{NUMBER}", matcher.value)
    return Matcher(METRIC_NAME, "=~", ".*".join(map(re.escape, pieces))) if any(pieces) else None
