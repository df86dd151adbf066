"""The metrics and labels that a query names, also one with Grafana's variables, or in another server's dialect.

Grafana's variables are replaced by what can stand in their place: a duration in brackets, a word elsewhere. What then
is PromQL is parsed as such; of anything else (functions of newer servers, MetricsQL) the tokens are read, which is
enough to tell names from functions and labels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from alerts.promql import Matcher, PromqlError
from alerts.promql.labels import METRIC_NAME
from alerts.promql.matchers import wanted_name
from alerts.promql.syntax import parse
from alerts.promql.syntax.flaw import FlawError
from alerts.promql.syntax.literals import unquoted
from alerts.promql.syntax.scanner import AGGREGATIONS, Scanner
from alerts.promql.syntax.tree import AggregateExpr, BinaryExpr, Expression, FunctionCall, StringLiteral, parts_of
from alerts.promql.syntax.tree import VectorSelector as Selector

OPEN = "grafana_variable"
"""Stands for a variable's value; letters, so that it may be part of a name."""
_LONGEST = 65_536
_MOST_CHOICES = 64
_VARIABLE = re.compile(
    r"\$\{(?P<braces>\w+)(?:\.\w+)?(?::[^}\n]{0,40})?\}|\[\[(?P<brackets>\w+)(?::\w+)?\]\]|\$(?P<plain>\w+)"
)
_IN_BRACKETS = re.compile(r"\[([^\]\[\"'`{}]{0,200})\]")
_SPAN = {"__range_s": "300", "__range_ms": "300000", "__interval_ms": "60000"}
_GROUPING = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_METRICSQL = frozenset({"keep_metric_names", "default", "if", "ifnot", "limit", "with", "prefix"})
_MAKERS = frozenset({"label_replace", "label_join", "count_values"})
"""Functions that make labels, whose names are among their texts."""
_TIME = re.compile(r"[0-9.]+(?:ms|[smhdwyi])?")


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
    """What a query names. `grouping` are labels that it groups or joins by; `problem` says why it cannot be read."""

    selectors: tuple[NamedSelector, ...]
    grouping: tuple[str, ...] = ()
    problem: str = ""
    choices: tuple[Choice, ...] = ()


def names_in(text: str) -> QueryNames:
    """What a query names; any text has an answer."""
    if len(text) > _LONGEST:
        return QueryNames((), problem=f"is longer than {_LONGEST} characters")
    query = without_variables(text)
    try:
        return _of_tree(parse(query))
    except PromqlError as error:
        return _of_tokens(query, str(error))


def without_variables(text: str) -> str:
    """The text with something that can stand in the place of each of Grafana's variables."""
    text = _VARIABLE.sub(_in_place, text)
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
    return QueryNames(tuple(selectors), _kept(grouping, made), choices=tuple(choices))


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


def _of_tokens(query: str, problem: str) -> QueryNames:
    """The names of a text that our grammar rejects, if its words and signs can be told apart."""
    try:
        tokens = Scanner(query)
    except FlawError as flaw:
        return QueryNames((), problem=flaw.problem)
    made = {text[1:-1] for kind, text in zip(tokens.kinds, tokens.texts, strict=True) if kind == "string"}
    makes = any(text in _MAKERS for text in tokens.texts)
    reading = _TokenReading(tokens)
    selectors = tuple(reading.selectors())
    if not selectors:
        return QueryNames((), problem=problem)
    return QueryNames(selectors, _kept(reading.grouping, made if makes else set()))


class _TokenReading:
    """Goes through tokens without a grammar."""

    def __init__(self, tokens: Scanner) -> None:
        self._kinds, self._texts = tokens.kinds, tokens.texts
        self._at = 0
        self.grouping: list[str] = []

    def selectors(self) -> Iterator[NamedSelector]:
        while self._at < len(self._kinds):
            kind, text, after = self._kinds[self._at], self._texts[self._at], self._kind(1)
            if kind in _GROUPING and after == "(":
                self._group()
            elif kind == "[":
                self._skip("]")
            elif kind == "{":
                yield _selector(tuple(self._matchers()))
            elif self._is_name(kind, text, after):
                yield self._named(text)
            else:
                self._at += 1

    def _kind(self, ahead: int) -> str:
        return self._kinds[self._at + ahead] if self._at + ahead < len(self._kinds) else ""

    def _is_name(self, kind: str, text: str, after: str) -> bool:
        if kind not in ("identifier", "metric identifier") or after == "(" or text.lower() in _METRICSQL:
            return False
        return kind not in AGGREGATIONS and not _TIME.fullmatch(text)

    def _named(self, name: str) -> NamedSelector:
        self._at += 1
        more = tuple(self._matchers()) if self._kind(0) == "{" else ()
        return _selector((Matcher(METRIC_NAME, "=", name), *more))

    def _matchers(self) -> Iterator[Matcher]:
        """The matchers up to the closing brace; what cannot be one is passed over."""
        self._at += 1
        while self._kind(0) not in ("}", "", "end of input", "error"):
            if self._kind(2) == "string" and self._kind(1) in ("=", "!=", "=~", "!~"):
                with suppress(PromqlError, ValueError):  # a value that is no regular expression names nothing
                    yield Matcher(self._texts[self._at], self._kind(1), unquoted(self._texts[self._at + 2]))
                self._at += 2
            self._at += 1
        self._at += 1

    def _group(self) -> None:
        self._at += 2
        while self._kind(0) not in (")", "", "end of input", "error"):
            if self._kind(0) != ",":
                self.grouping.append(self._texts[self._at])
            self._at += 1

    def _skip(self, closing: str) -> None:
        while self._kind(0) not in (closing, "", "end of input", "error"):
            self._at += 1
