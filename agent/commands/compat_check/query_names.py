"""The metrics and labels that a query names. Grafana's variables are replaced by what can stand in their place."""

from __future__ import annotations

import re
from typing import NamedTuple

from alerts.promql import Matcher
from alerts.promql.labels import METRIC_NAME, wanted_name
from alerts.promql.syntax import parse
from alerts.promql.syntax.tree import AggregateExpr, BinaryExpr, Expression, FunctionCall, StringLiteral, parts_of
from alerts.promql.syntax.tree import VectorSelector as Selector

OPEN = "grafana_variable"
"""Stands for a variable's value; letters, so that it may be part of a name."""
_MOST_CHOICES = 64
_VARIABLE = re.compile(
    r"\$\{(?P<braces>\w+)(?:\.\w+)?(?::[^}\n]{0,40})?\}|\[\[(?P<brackets>\w+)(?::\w+)?\]\]|\$(?P<plain>\w+)"
)
_IN_BRACKETS = re.compile(r"\[([^\]\[\"'`{}]{0,200})\]")
_OFFSET = re.compile(rf"\b(offset\s+-?){OPEN}\b")
_NUMBER = re.compile(
    rf"\b((?:topk|bottomk|quantile|histogram_quantile)\s*(?:(?:by|without)\s*\([^()]*\)\s*)?\(\s*){OPEN}(?=\s*,)"
)
_SPAN = {"__range_s": "300", "__range_ms": "300000", "__interval_ms": "60000"}
_MAKERS = frozenset({"label_replace", "label_join", "count_values"})
"""Functions that make labels, whose names are among their texts."""


class NamedSelector(NamedTuple):
    """A metric in a query. `name` is empty if it is not fixed; `matchers` are those of its labels."""

    name: str
    pattern: Matcher | None
    matchers: tuple[Matcher, ...]

    @property
    def open(self) -> bool:
        """Whether only Grafana knows what is selected."""
        return OPEN in self.name or (self.pattern is not None and OPEN in self.pattern.value)


Choice = tuple[frozenset[str], frozenset[str]]
"""The metrics on either side of an `or`."""


class QueryNames(NamedTuple):
    """What a query names. `grouping` are labels that it groups or joins by."""

    selectors: tuple[NamedSelector, ...]
    grouping: tuple[str, ...] = ()
    choices: tuple[Choice, ...] = ()


def names_in(text: str) -> QueryNames:
    """Return what a query names. Raises PromqlError if it is not PromQL that rules support."""
    return _of_tree(parse(without_variables(text)))


def without_variables(text: str) -> str:
    """Return the text with a duration, a number or a word in the place of each of Grafana's variables."""
    text = _VARIABLE.sub(_in_place, text)
    text = _OFFSET.sub(r"\g<1>5m", _NUMBER.sub(r"\g<1>1", text))
    return _IN_BRACKETS.sub(lambda found: f"[{found[1].replace(OPEN, '5m')}]", text)


def _in_place(found: re.Match[str]) -> str:
    name = found["braces"] or found["brackets"] or found["plain"]
    return _SPAN.get(name, OPEN)


def _of_tree(tree: Expression) -> QueryNames:
    selectors: list[NamedSelector] = []
    grouping: list[str] = []
    made: set[str] = set()
    choices: list[Choice] = []
    for part in parts_of(tree):
        if isinstance(part, Selector):
            selectors.append(_selector(part.matchers))
        elif isinstance(part, AggregateExpr):
            grouping += part.grouping.labels
            made |= _texts(part) if part.operator in _MAKERS else set()
        elif isinstance(part, BinaryExpr):
            grouping += (*part.matching.labels, *part.matching.include)
            if part.operator == "or" and len(choices) < _MOST_CHOICES:
                choices.append((_names(part.left), _names(part.right)))
        elif isinstance(part, FunctionCall) and part.name in _MAKERS:
            made |= _texts(part)
    return QueryNames(tuple(selectors), _kept(grouping, made), tuple(choices))


def _names(tree: Expression) -> frozenset[str]:
    return frozenset(
        part.name or wanted_name(part.matchers) or "" for part in parts_of(tree) if isinstance(part, Selector)
    )


def _texts(call: FunctionCall | AggregateExpr) -> set[str]:
    parts = call.arguments if isinstance(call, FunctionCall) else (call.parameter,)
    return {each.value for each in parts if isinstance(each, StringLiteral)}


def _kept(grouping: list[str], made: set[str]) -> tuple[str, ...]:
    return tuple(each for each in dict.fromkeys(grouping) if each not in made and OPEN not in each)


def _selector(matchers: tuple[Matcher, ...]) -> NamedSelector:
    name = wanted_name(matchers) or ""
    pattern = next((each for each in matchers if each.name == METRIC_NAME and each.operator == "=~"), None)
    return NamedSelector(name, pattern, tuple(each for each in matchers if each.name != METRIC_NAME))
