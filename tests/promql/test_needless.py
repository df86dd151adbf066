"""What a query needs no samples of is not read, and an error that Prometheus would report is reported all the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from alerts.promql import EvaluationError, Storage, compile_query
from alerts.promql.budget import Budget
from alerts.promql.labels import Matcher, make_labels, wanted_name
from alerts.promql.storage import Newest, Window

AT = 100.0


class Watched(Storage):
    """Two series of `m` and one of `quiet`, which is below 5; notes the names that are read, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str | None] = []
        for name, gpu, value in (("m", "0", 1.0), ("m", "1", 2.0), ("quiet", "0", 3.0)):
            for second in range(60):
                self.append(make_labels({"gpu": gpu}, name), AT - 60 + second, value + second / 60)

    def select(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> Iterator[Window]:
        self.read.append(wanted_name(matchers))
        return super().select(matchers, start, end, budget)

    def newest(
        self, matchers: tuple[Matcher, ...], start: float, end: float, budget: Budget | None = None
    ) -> list[Newest]:
        self.read.append(wanted_name(matchers))
        return super().newest(matchers, start, end, budget)


def read_by(query: str) -> list[str | None]:
    storage = Watched()
    assert compile_query(query).evaluate(storage, AT) == []
    return storage.read


@pytest.mark.parametrize(
    "query",
    [
        "nothing > 1",
        "max by (x) (nothing) == 0",
        "sum by (gpu) (rate(nothing[1m])) / m",
        "m and nothing",
        "nothing unless m",
        "count_over_time(nothing[1m:1s]) >= 10",
        "(nothing > 1) unless (nothing > 2) unless (m > 3) unless (m > 4)",
        "max_over_time((nothing * 2)[1m:1s]) or nothing",
        'label_replace(max_over_time(nothing[5m]) > 1, "a", "b", "", "") or label_replace(none, "a", "c", "", "")',
        'label_join(nothing, "x", "-", "y", "z")',
        "abs(nothing - (nothing offset 10s)) / 10",
        "predict_linear(nothing[5m], 60) > 0",
        "quantile_over_time(0.75, nothing[5m])",
    ],
)
def test_where_no_series_is_there_nothing_is_read(query: str) -> None:
    assert read_by(query) == []


@pytest.mark.parametrize("query", ["absent(nothing)", "nothing or vector(1)", "count(nothing) or on () vector(0)"])
def test_a_query_that_has_a_result_without_series_has_it(query: str) -> None:
    found = compile_query(query).evaluate(Watched(), AT)
    assert isinstance(found, list)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("(quiet > 5) and (m > 0)", ["quiet"]),
        ("(quiet > 5) unless max by (gpu) (rate(m[1m]))", ["quiet"]),
        ("(quiet > 5) / on (gpu) m", ["quiet"]),
        ("(quiet > 5) and (quiet < 9) and m", ["quiet"]),
        ("(quiet > 5) or (m > 5)", ["quiet", "m"]),
        ('(quiet > 5) and ({gpu="0"} > 5)', ["quiet", None]),  # of two names, it might clash
    ],
)
def test_what_an_empty_side_makes_needless_is_not_read(query: str, read: list[str | None]) -> None:
    assert read_by(query) == read


@pytest.mark.parametrize(
    "query",
    [
        "nothing and (m + on () m)",
        "nothing unless (m * on () group_left () m)",
        "(quiet > 5) + (m - on () m)",
        '(quiet > 5) and rate({gpu="0"}[1m])',
        "(m + on () m) and nothing",
        'count_over_time(label_replace(nothing, "gpu", "x", "", "")[1m:1s]) + (m + on () m)',
    ],
)
def test_an_error_is_reported_whether_or_not_the_elements_are_needed(query: str) -> None:
    with pytest.raises(EvaluationError):
        compile_query(query).evaluate(Watched(), AT)
