"""Every answer is a real Prometheus's answer, at instants where its major versions agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.promql import Storage
from tests.promql.answers import Refusal, ours, same, theirs
from tests.promql.corpus import QUERIES

# Past the start, off the grid of samples (15 s) and off the steps of the subqueries.
INSTANTS = (1_700_000_001.0 + 787.3, 1_700_000_001.0 + 1153.4)
ORDERED = ("sort(", "sort_desc(", "topk(", "bottomk(")


def _words(text: str) -> list[str]:
    return text.split()


def agree(storage: Storage, prometheus: Any, query: str, at: float, tolerance: float = 1e-12) -> None:
    answer, expected = ours(storage, query, at), theirs(prometheus.ask(query, at))
    if isinstance(expected, Refusal) and isinstance(answer, Refusal):
        # Where two elements clash, which is named first depends on the order in which a storage gives them.
        start = answer.text.split("[")[0].split("{")[0]
        assert start in expected.text, f"{query} at {at}: {answer!r}, not {expected!r}"
        return
    ordered = query.startswith(ORDERED) and "by" not in query
    assert same(answer, expected, ordered=ordered, absolute=tolerance), (
        f"{query} at {at}:\n ours   {answer}\n theirs {expected}"
    )


CLASH = "vector cannot contain metrics with the same labelset"
LETS_CLASHES_PASS = {'label_join(util, "gpu", "", "node")': ((2, 51), (3, 3))}
"""Queries that refuse elements of equal labels, and the versions (from, before) that forgot to: 2.51 moved label_join
to a place where nothing looks for such elements, and 3.3 looks again."""


@pytest.mark.parametrize("at", INSTANTS)
def test_every_query_has_prometheus_answer(storage: Storage, prometheus: Any, at: float) -> None:
    assert len(QUERIES) > 500
    differing = []
    for query in QUERIES:
        try:
            agree_or_clash(storage, prometheus, query, at)
        except AssertionError as error:
            differing.append(str(error))
    assert not differing, "\n".join(differing)


def agree_or_clash(storage: Storage, prometheus: Any, query: str, at: float) -> None:
    first, mended = LETS_CLASHES_PASS.get(query, ((0, 0), (0, 0)))
    if first <= prometheus.version() < mended:
        passed = [labels for labels, _ in theirs(prometheus.ask(query, at))]
        assert len(passed) > len({tuple(sorted(labels.items())) for labels in passed}), query
        assert ours(storage, query, at).text == CLASH, query
        return
    agree(storage, prometheus, query, at)


# Random queries keep away from where a last bit decides (equality, rounding, ties), since 2.x sums without
# compensation, and from ranges that begin before the samples, where 2.x looks for a counter's zero farther away.
NUMBERS = st.sampled_from(["0.37", "2.11", "-1.3", "43.7", "1e6"])
PLAIN = st.sampled_from(
    [
        "util",
        'util{gpu=~"[0-4]"}',
        'util{node!="n1"} offset 1m10s',
        "energy_total",
        'energy_total{gpu="3"}',
        "temp",
        "temp offset -20s",
        "limit",
        "ends",
        "job_info",
        "nothing",
    ]
)
DURATIONS = st.sampled_from(["40s", "2m", "5m", "7m", "9m offset 30s", "3m offset -1m"])
ROLLING = st.sampled_from(
    _words(
        "rate increase delta irate idelta deriv changes resets avg_over_time min_over_time max_over_time "
        "sum_over_time count_over_time last_over_time present_over_time"
    )
)
MATCHINGS = st.sampled_from(
    ["", " on(gpu)", " on(gpu, node)", " ignoring(gpu)", " on(node)", " on()"]
    + [f" on(node) group_{side}{kept}" for side in ("left", "right") for kept in ("()", "(gpu)")]
    + [" on(gpu, node) group_left(job_id)", " ignoring(gpu, job_id) group_right()"]
)
CLAUSES = st.sampled_from(["", " by (node)", " by (gpu, node)", " without (gpu)", " by (job_id)", " without ()"])


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    reduce = st.sampled_from(_words("sum avg min max count group"))
    arithmetic = st.sampled_from(_words("+ - * / % ^"))
    compare = st.sampled_from(["> ", "< ", ">= ", "<= ", "> bool ", "< bool "])
    sets = st.sampled_from(["and", "or", "unless"])
    sets_matching = MATCHINGS.filter(lambda text: "group" not in text)
    return st.one_of(
        st.builds("{}{} ({})".format, reduce, CLAUSES, inner),
        st.builds("quantile{} (0.3, {})".format, CLAUSES, inner),
        st.builds("({} {} {})".format, inner, arithmetic, NUMBERS),
        st.builds("({} {} {})".format, NUMBERS, arithmetic, inner),
        st.builds("({} {}{})".format, inner, compare, NUMBERS),
        st.builds("({} {}{} {})".format, inner, arithmetic, MATCHINGS, inner),
        st.builds("({} {}{} {})".format, inner, sets, sets_matching, inner),
        st.builds("clamp_max(abs({}), {})".format, inner, NUMBERS),
        st.builds("-{}".format, inner),
        st.builds("absent({})".format, inner),
        st.builds(
            "{}(({})[175s:20s])".format, st.sampled_from(["max_over_time", "sum_over_time", "last_over_time"]), inner
        ),
        st.builds('label_replace({}, "gpu", "g$1", "gpu", "([0-3])")'.format, inner),
        st.builds("(vector(scalar({})) or on() {})".format, inner, inner),
    )


def rolled(function: str, selector: str, duration: str) -> str:
    """A range function of a selector; an offset stands after the brackets."""
    width, _, offset = duration.partition(" ")
    return f"{function}({selector.partition(' offset')[0]}[{width}] {offset})"


RANDOM = st.recursive(
    st.one_of(PLAIN, st.builds(rolled, ROLLING, PLAIN, DURATIONS)),
    larger,
    max_leaves=5,
)


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(query=RANDOM, seconds=st.integers(1100, 1199))
def test_random_queries_have_prometheus_answers(storage: Storage, prometheus: Any, query: str, seconds: int) -> None:
    # The samples lie at one past a multiple of five, so this instant and what a subquery steps on are off the grid.
    agree(storage, prometheus, query, 1_700_000_000.4 + seconds, tolerance=1e-6)
