"""Every answer is a real Prometheus's answer, at instants where its major versions agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from alerts.promql import Storage
from tests.promql.answers import Refusal, ours, same, theirs

# Past the start, off the grid of samples (15 s) and off the steps of the subqueries.
INSTANTS = (1_700_000_001.0 + 787.3, 1_700_000_001.0 + 1153.4)
_RANGE_FUNCTIONS = (
    "rate", "irate", "increase", "delta", "idelta", "deriv", "changes", "resets", "avg_over_time", "min_over_time",
    "max_over_time", "sum_over_time", "count_over_time", "stddev_over_time", "stdvar_over_time", "last_over_time",
    "present_over_time", "absent_over_time",
)  # fmt: skip
_VALUE_FUNCTIONS = ("abs", "ceil", "floor", "sgn", "sqrt", "exp", "ln", "log2", "log10", "round", "sort", "sort_desc",
                    "timestamp", "absent")  # fmt: skip
_DATE_FUNCTIONS = ("minute", "hour", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "month", "year")
_AGGREGATIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")
_VECTORS = ("util", 'odd{kind!="mixed"}', "sum by (node) (util)", 'ends{how=~"m.*|r.*"}')
_RANGES = ("energy_total[5m]", "odd[2m]", "ends[4m]", "energy_total[90s] offset 2m", "sum by (node) (util)[3m:20s]")
QUERIES = [
    *Path(__file__).with_name("queries.txt").read_text().splitlines(),
    *(f"{name}({each})" for name in _RANGE_FUNCTIONS for each in _RANGES),
    *(f"{name}({each})" for name in _VALUE_FUNCTIONS for each in _VECTORS),
    # Of NaN and the infinities, the date is whatever the processor makes of them.
    *(f"{name}({each} * 1e8)" for name in _DATE_FUNCTIONS for each in _VECTORS[2:]),
    *(f"{name}{clause} ({each})" for name in _AGGREGATIONS for clause in ("", " by (node)") for each in _VECTORS),
]
"""Every function, operator and modifier, and their errors."""
ORDERED = ("sort(", "sort_desc(", "topk(", "bottomk(")


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
