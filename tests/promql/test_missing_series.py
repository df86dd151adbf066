"""A query whose series are all missing is not evaluated: on most nodes most rules are of this kind."""

from __future__ import annotations

from typing import Any

import pytest

from alerts.promql import compile_query
from alerts.promql.storage import Storage


class Unread(Storage):
    """A storage without series, which nothing may read."""

    def select(self, *_: Any) -> Any:
        raise AssertionError("read")

    def newest(self, *_: Any) -> Any:
        raise AssertionError("read")


@pytest.mark.parametrize(
    "text",
    [
        "a > 1",
        "max by (x) (a) == 0",
        'label_replace(max_over_time(a[5m]) > 1, "level", "high", "", "") or label_replace(b, "level", "low", "", "")',
        'label_join(a, "x", "-", "y", "z")',
        "abs(a - (a offset 10s)) / 10",
        "predict_linear(a[5m], 60) > 0",
        "quantile_over_time(0.75, a[5m])",
    ],
)
def test_it_reads_nothing(text: str) -> None:
    assert compile_query(text).evaluate(Unread(), 1000.0) == []


@pytest.mark.parametrize("text", ["absent(a)", "a or vector(1)", "count(a) or on () vector(0)"])
def test_one_that_has_a_result_without_series_has_it(text: str) -> None:
    found = compile_query(text).evaluate(Storage(), 1000.0)
    assert isinstance(found, list)
    assert len(found) == 1
