"""The queries of dashboards of several ages and of rule files, and files that are neither."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.commands.compat_check.query_extraction import MOST_BYTES, NoQueriesError, extract_queries, read_queries


def places_and_texts(document: Any) -> list[tuple[str, str]]:
    return [(query.place, query.text) for query in extract_queries(json.dumps(document))]


def panel(title: str, *queries: str, **more: Any) -> dict[str, Any]:
    return {"title": title, "targets": [{"expr": query, "refId": "A"} for query in queries], **more}


def test_panels_are_found_in_rows_of_every_age() -> None:
    assert places_and_texts({"rows": [{"title": "R", "panels": [panel("old", "a")]}]}) == [("old", "a")]
    row = {"type": "row", "title": "R", "panels": [panel("folded", "b")]}
    assert places_and_texts({"title": "Board", "panels": [panel("top", "a", "a2"), row]}) == [
        ("top", "a"),
        ("top", "a2"),
        ("folded", "b"),
    ]
    assert places_and_texts({"dashboard": {"panels": [panel("of the API", "a")]}, "meta": {}}) == [("of the API", "a")]
    newest = {"spec": {"elements": {"panel-1": {"spec": {"title": "v2", "data": {"spec": {"expr": "a"}}}}}}}
    assert places_and_texts(newest) == [("v2", "a")]


def test_a_library_panel_that_is_not_in_the_file_is_unread() -> None:
    element = {"kind": 1, "name": "L", "model": panel("shared", "a")}
    assert places_and_texts({"panels": [], "__elements": {"uid": element}}) == [("shared", "a")]
    (query,) = extract_queries(json.dumps({"panels": [{"libraryPanel": {"uid": "u", "name": "Heat"}}]}))
    assert (query.place, query.unread) == ("library panel Heat", "its queries are not in this file")


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("label_values(m, gpu)", ("m", ("gpu",))),
        ('label_values(m{a="b,c"}, gpu)', ('m{a="b,c"}', ("gpu",))),
        ({"query": "label_values(m, gpu)", "refId": "x"}, ("m", ("gpu",))),
        ("query_result(topk(5, m))", ("topk(5, m)", ())),
        ("label_values(instance)", None),
        ("metrics(DCGM_.*)", None),
    ],
)
def test_variables_ask_too(query: Any, expected: tuple[str, tuple[str, ...]] | None) -> None:
    board = {"templating": {"list": [{"name": "v", "type": "query", "query": query}]}}
    texts_and_labels = [(query.text, query.labels) for query in extract_queries(json.dumps(board))]
    assert texts_and_labels == ([] if expected is None else [expected])


def test_queries_of_other_data_sources_are_no_promql() -> None:
    logs = panel("logs", '{app="x"} |= "err"', datasource={"type": "loki", "uid": "l"})
    assert places_and_texts({"panels": [logs, panel("metrics", "a", datasource={"type": "prometheus"})]}) == [
        ("metrics", "a")
    ]
    assert (
        places_and_texts({"annotations": {"list": [{"name": "deploys", "expr": "changes(a[1m])"}]}, "panels": []}) != []
    )


RULES = "groups:\n- name: g\n  rules:\n  - {alert: A, expr: a > 1}\n  - {record: r, expr: b}\n"


def test_rules_are_found_in_prometheus_files_and_in_kubernetes_objects() -> None:
    queries = extract_queries(RULES)
    assert [(query.place, query.text, query.record) for query in queries] == [("A", "a > 1", ""), ("r", "b", "r")]
    wrapped = "kind: PrometheusRule\nspec:\n  " + RULES.replace("\n", "\n  ")
    assert extract_queries(wrapped) == queries
    listed = "kind: List\nitems:\n- spec:\n    " + RULES.replace("\n", "\n    ")
    assert extract_queries(listed) == queries
    *_, rest = extract_queries(f"{RULES}---\na: 1\n")
    assert (rest.place, rest.unread) == ("line 7", "another document begins, which is not read")


BOMB = "a: &a [x,x]\n" + "".join(f"{c}: &{c} [{','.join([f'*{chr(ord(c) - 1)}'] * 9)}]\n" for c in "bcdefghij")
HOPELESS = {
    "truncated": ('{"panels": [{"title": "x", "targets": [{"expr": "a"', "line 1: is not JSON"),
    "another document": ('{"name": "coldplate"}', "is not a Grafana dashboard"),
    "a list": ("[1, 2]", "is not a Grafana dashboard"),
    "deep": ("[" * 200_000, "is nested too deep"),
    "a number without end": ('{"panels": ' + "9" * 5000 + "}", "is not JSON"),
    "no rules": ("a: 1\n", "has no rules"),
    "rules that are none": ("groups: [{rules: [7, {expr: {}}]}, 3]\n", "has no rules"),
    "a bomb": (BOMB, "is neither JSON nor YAML"),
    "empty": ("", "has no rules"),
}


@pytest.mark.parametrize("kind", HOPELESS)
def test_what_is_no_file_of_queries_is_refused_with_the_reason(kind: str) -> None:
    text, reason = HOPELESS[kind]
    with pytest.raises(NoQueriesError, match=reason):
        extract_queries(text)


def test_a_file_that_is_too_large_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(50 * 2**20)
    with pytest.raises(NoQueriesError, match=rf"large\.json: is larger than {MOST_BYTES // 2**20} MiB"):
        read_queries(path)
