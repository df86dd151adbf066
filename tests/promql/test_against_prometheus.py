"""Every answer is a real Prometheus's answer, at instants where its major versions agree."""

from __future__ import annotations

from typing import Any

import pytest

from alerts.promql import Storage
from tests.promql.answers import Refusal, ours, same, theirs
from tests.promql.corpus import QUERIES

# Past the start, off the grid of samples (15 s) and off the steps of the subqueries.
INSTANTS = (1_700_000_001.0 + 787.3, 1_700_000_001.0 + 1153.4)
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
