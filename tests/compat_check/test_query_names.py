"""Names in queries, as they are written in dashboards: with variables, and broken."""

from __future__ import annotations

import pytest

from agent.commands.compat_check.query_extraction import extract_names
from alerts.promql import PromqlError


def names(text: str) -> list[str]:
    return [each.name for each in extract_names(text).selectors]


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
        "topk by (a) ([[n]], m)",
        "histogram_quantile($q, m)",
        "quantile(${q}, m)",
        "m offset $offset",
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
    ],
)
def test_labels_to_group_by_are_named_but_not_those_that_the_query_makes(text: str, labels: tuple[str, ...]) -> None:
    assert extract_names(text).grouping == labels


def test_matchers_are_those_of_their_metric() -> None:
    found = {
        each.name: [(one.name, one.operator, one.value) for one in each.matchers]
        for each in extract_names('m{a="1", b=~"x.*"} + n{c!="2"}').selectors
    }
    assert found == {"m": [("a", "=", "1"), ("b", "=~", "x.*")], "n": [("c", "!=", "2")]}


@pytest.mark.parametrize("text", ["$metric", "node_${what}_total", '{__name__=~"$m"}', "[[metric]]{a='b'}"])
def test_a_name_that_grafana_fills_in_is_open(text: str) -> None:
    (found,) = extract_names(text).selectors
    assert found.open


def test_a_name_by_regular_expression_is_a_pattern() -> None:
    (found,) = extract_names('{__name__=~"DCGM_.+"}').selectors
    assert found.pattern is not None and found.pattern.matches("DCGM_FI_DEV_GPU_TEMP")


@pytest.mark.parametrize(
    "text",
    ["", "   ", "sum(", "((((", "\ud800", "x" * 70_000, "5 +", "rate(m) keep_metric_names", "m default 0", "info(m)"],
)
def test_what_rules_do_not_support_is_refused(text: str) -> None:
    with pytest.raises(PromqlError):
        extract_names(text)


def test_a_text_names_nothing() -> None:
    assert extract_names("'text'").selectors == ()


def test_both_sides_of_an_or_are_known() -> None:
    assert extract_names("(a or b) * on (x) c").choices == ((frozenset({"a"}), frozenset({"b"})),)
