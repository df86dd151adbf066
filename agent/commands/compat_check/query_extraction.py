"""Extract the queries of a file: a Grafana dashboard in JSON, or rules in Prometheus's or Kubernetes' YAML.

Grafana's variables are replaced by what can stand in their place.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from agent.lib import textfile, yamltree
from agent.lib.wording import one_line, shown_path
from agent.lib.yamltree import Bounds, YamlError

MOST_BYTES = 8 * 2**20
"""A file's size: the largest published dashboards have two mebibytes."""
MOST_QUERIES = 20_000
_BOUNDS = Bounds(depth=48, nodes=300_000, characters=MOST_BYTES)
_MARKS = frozenset({"panels", "rows", "templating", "targets", "elements", "model", "expr"})
"""Keys of which a dashboard, or a part of one, has at least one."""
_OTHER_LANGUAGES = frozenset(
    {"loki", "tempo", "elasticsearch", "influxdb", "graphite", "mysql", "postgres", "cloudwatch"}
)
"""Data sources whose queries are in other languages."""
_QUERY_FUNCTIONS = re.compile(r"\s*(label_values|query_result|metrics|label_names)\s*\((.*)\)\s*", re.DOTALL)


class NoQueriesError(Exception):
    """A file has no queries that can be read; the text names it and says why."""


class ExtractedQuery(Struct, frozen=True):
    """A query and where it is: a panel, a variable, a rule. `record` is the name that its result gets, if any.

    `labels` are those that the query is asked for besides: `label_values(m, gpu)`. `unread` says why what is there is
    not in the file, such as the queries of a library panel.
    """

    place: str
    text: str
    record: str = ""
    labels: tuple[str, ...] = ()
    unread: str = ""


def read_queries(path: Path) -> tuple[ExtractedQuery, ...]:
    """Return the queries of a file. Raises NoQueriesError."""
    try:
        return extract_queries(textfile.read_text(path, MOST_BYTES, handed=True))
    except textfile.ReadError as error:
        raise NoQueriesError(str(error)) from None
    except NoQueriesError as error:
        raise NoQueriesError(f"{shown_path(path)}: {error}") from None


def extract_queries(text: str) -> tuple[ExtractedQuery, ...]:
    """Return the queries of a text. Raises NoQueriesError, without a file's name."""
    is_json = text.lstrip()[:1] in ("{", "[")
    queries = tuple(_of_dashboard(_json(text)) if is_json else _of_rules(text))
    if len(queries) > MOST_QUERIES:
        raise NoQueriesError(f"has more than {MOST_QUERIES} queries; check its parts one by one")
    return queries


def _of_rules(text: str) -> Iterator[ExtractedQuery]:
    try:
        tree = yamltree.compose(text, _BOUNDS, lone=False)
        queries = list(_rules(yamltree.plain(tree.root)))
    except YamlError as error:
        raise NoQueriesError(f"is neither JSON nor YAML: {error}") from None
    if not queries:
        raise NoQueriesError("has no rules; give a Prometheus rule file, a PrometheusRule, or a Grafana dashboard")
    yield from queries
    if tree.rest:
        yield ExtractedQuery(f"line {tree.rest}", "", unread="another document begins, which is not read")


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise NoQueriesError(f"line {error.lineno}: is not JSON: {error.msg}") from None
    except RecursionError:
        raise NoQueriesError("is nested too deep for a dashboard") from None
    except ValueError as error:  # a number of thousands of digits
        raise NoQueriesError(f"is not JSON: {one_line(str(error))}") from None


def _of_dashboard(document: Any) -> Iterator[ExtractedQuery]:
    parts = list(_parts(document))
    if all(_MARKS.isdisjoint(part) for part, _, _ in parts):
        raise NoQueriesError("is not a Grafana dashboard: it has neither panels nor variables")
    for part in parts:
        yield from _queries(*part)


def _parts(document: Any) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield every mapping in a dashboard of any version, with the title and the data source that hold for it."""
    waiting: list[tuple[Any, str, str]] = [(document, "", "")]
    while waiting:
        part, place, source = waiting.pop()
        if isinstance(part, dict):
            title, source = part.get("title"), _source(part) or source
            place = one_line(title, 80) if isinstance(title, str) and title else place
            yield part, place, source
            part = list(part.values())
        if isinstance(part, list):
            waiting += [(child, place, source) for child in reversed(part) if isinstance(child, (dict, list))]


def _queries(part: dict[str, Any], place: str, source: str) -> Iterator[ExtractedQuery]:
    """Yield what a part of a dashboard asks for itself: panels are where they are, and any `expr` is a query."""
    library = part.get("libraryPanel")
    if isinstance(library, dict) and not isinstance(part.get("targets"), list):
        name = one_line(str(library.get("name") or library.get("uid")), 80)
        yield ExtractedQuery(f"library panel {name}", "", unread="its queries are not in this file")
    if source in _OTHER_LANGUAGES:
        return
    expr = part.get("expr")
    if isinstance(expr, str) and expr.strip():
        yield ExtractedQuery(place or "a query", expr)
    if part.get("type") == "query" or part.get("kind") == "QueryVariable":
        text = part.get("query") or part.get("definition")
        if isinstance(text, dict):
            text = text.get("query")
        if isinstance(text, str) and text.strip():
            query = variable_query(f"variable {one_line(str(part.get('name')), 80)}", text)
            if query is not None:
                yield query


def variable_query(place: str, text: str) -> ExtractedQuery | None:
    """Return what a variable asks for; None if no metric is named, as in `label_values(instance)`."""
    function = _QUERY_FUNCTIONS.fullmatch(text)
    if function is None:
        return ExtractedQuery(place, text)
    if function[1] == "query_result":
        return ExtractedQuery(place, function[2])
    if function[1] == "metrics":
        return None
    selector, comma, label = function[2].rpartition(",")
    if not comma or "}" in label or '"' in label:
        return ExtractedQuery(place, function[2]) if function[1] == "label_names" and function[2].strip() else None
    return ExtractedQuery(place, selector, labels=(label.strip(),))


def _source(node: dict[str, Any]) -> str:
    """Return the kind of a node's data source, if it says so."""
    source = node.get("datasource")
    kind = source.get("type") if isinstance(source, dict) else source
    return kind.lower() if isinstance(kind, str) else ""


def _rules(document: Any) -> Iterator[ExtractedQuery]:
    """Yield the rules of a rule file, of a PrometheusRule, or of a list of them."""
    if not isinstance(document, dict):
        return
    items = document.get("items")
    for item in items if isinstance(items, list) else ():
        yield from _rules(item)
    spec = document.get("spec")
    groups = spec.get("groups") if isinstance(spec, dict) else document.get("groups")
    for group in groups if isinstance(groups, list) else ():
        rules = group.get("rules") if isinstance(group, dict) else None
        for rule in rules if isinstance(rules, list) else ():
            if isinstance(rule, dict) and isinstance(rule.get("expr"), (str, int, float)):
                record = rule.get("record")
                name = one_line(str(rule.get("alert") or record or "a rule"), 80)
                yield ExtractedQuery(name, str(rule["expr"]), record if isinstance(record, str) else "")


OPEN = "grafana_variable"
"""Stands for a variable's value; letters, so that it may be part of a name."""
_VARIABLE = re.compile(r"\$\{(\w+)(?:\.\w+)?(?::[^}\n]{0,40})?\}|\[\[(\w+)(?::\w+)?\]\]|\$(\w+)")
_IN_BRACKETS = re.compile(r"\[([^\]\[\"'`{}]{0,200})\]")
_OFFSET = re.compile(rf"\b(offset\s+-?){OPEN}\b")
_NUMBER = re.compile(
    rf"\b((?:topk|bottomk|quantile|histogram_quantile)\s*(?:(?:by|without)\s*\([^()]*\)\s*)?\(\s*){OPEN}(?=\s*,)"
)
_SPAN = {"__range_s": "300", "__range_ms": "300000", "__interval_ms": "60000"}


def without_variables(text: str) -> str:
    """Return the text with a duration, a number or a word in the place of each of Grafana's variables."""
    text = _VARIABLE.sub(lambda match: _SPAN.get(next(filter(None, match.groups())), OPEN), text)
    text = _OFFSET.sub(r"\g<1>5m", _NUMBER.sub(r"\g<1>1", text))
    return _IN_BRACKETS.sub(lambda match: f"[{match[1].replace(OPEN, '5m')}]", text)
