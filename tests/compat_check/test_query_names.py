"""Names in queries, as they are written in dashboards: with variables, in dialects, and broken."""

from __future__ import annotations

import pytest

from agent.commands.compat_check.query_names import names_in


def names(text: str) -> list[str]:
    found = names_in(text)
    assert not found.problem, found.problem
    return [each.name for each in found.selectors]


@pytest.mark.parametrize(
    "text",
    [
        'm{instance=~"$instance", gpu=~"$gpu"}',
        "rate(m[$__rate_interval])",
        "rate(m[${__rate_interval}])",
        "increase(m[$__range])",
        "m * $factor",
        "sum by ($by) (m)",
        "sum by (${by:csv}) (m{a='[[b]]'})",
        "avg_over_time(m[$window:$__interval])",
        "rate(m[5m] offset $offset)",
        "topk($n, m)",
        'm{a=~"${b:regex}"}',
        # MetricsQL, and functions that are newer than our grammar
        "rate(m) keep_metric_names",
        "rollup_rate(m[5m])",
        "m default 0",
        'm{a="b" or c="d"}',
        "histogram_quantiles(m, 'q', 0.5)",
        "info(m)",
        "sort_by_label(m, 'gpu')",
        "limitk(3, m)",
    ],
)
def test_one_metric_is_found_whatever_is_around_it(text: str) -> None:
    assert [each for each in names(text) if "grafana" not in each] == ["m"]


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("sum by (a, b) (m)", ("a", "b")),
        ("m * on (gpu, uuid) group_left (job_id) n", ("gpu", "uuid", "job_id")),
        ('sum by (host) (label_replace(m, "host", "$1", "instance", "(.*):.*"))', ()),
        ('count_values("version", m)', ()),
        ("sum by ($by, c) (m)", ("c",)),
        ("sum by (a) (rollup_rate(m[5m]))", ("a",)),
    ],
)
def test_labels_to_group_by_are_named_but_not_those_that_the_query_makes(text: str, labels: tuple[str, ...]) -> None:
    assert names_in(text).grouping == labels


def test_matchers_are_those_of_their_metric_in_any_dialect() -> None:
    for text in ('m{a="1", b=~"x.*"} + n{c!="2"}', 'm{a="1", b=~"x.*"} + n{c!="2"} keep_metric_names'):
        found = {
            each.name: [(one.name, one.operator, one.value) for one in each.matchers]
            for each in names_in(text).selectors
        }
        assert found == {"m": [("a", "=", "1"), ("b", "=~", "x.*")], "n": [("c", "!=", "2")]}  # fmt: skip


@pytest.mark.parametrize("text", ["$metric", "node_${what}_total", '{__name__=~"$m"}', "[[metric]]{a='b'}"])
def test_a_name_that_grafana_fills_in_is_open(text: str) -> None:
    (found,) = names_in(text).selectors
    assert found.open


def test_a_name_by_regular_expression_is_a_pattern() -> None:
    (found,) = names_in('{__name__=~"DCGM_.+"}').selectors
    assert found.pattern is not None and found.pattern.matches("DCGM_FI_DEV_GPU_TEMP")


@pytest.mark.parametrize("text", ["", "   ", "sum(", "'text'", "((((", "\ud800", "x" * 70_000, "5 +"])
def test_what_names_nothing_has_a_reason_or_is_nothing(text: str) -> None:
    found = names_in(text)
    assert found.selectors == () and (found.problem or text == "'text'")


def test_both_sides_of_an_or_are_known() -> None:
    assert names_in("(a or b) * on (x) c").choices == ((frozenset({"a"}), frozenset({"b"})),)
