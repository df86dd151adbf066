"""Finds series by their matchers: by metric name first, with results cached until a series comes or goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from alerts.promql.budget import Budget
from alerts.promql.labels import METRIC_NAME, Labels, label_value
from alerts.promql.matchers import Matcher, match_all, wanted_name

_REMEMBERED_SELECTIONS = 1024
_REMEMBERED_SERIES = 250_000
"""Most entries of all remembered selections together: 2 MB."""
_MATCHED = 4
"""Units of work to compare a series with matchers."""


class Labelled(Protocol):
    """Anything that has the labels of a series."""

    @property
    def labels(self) -> Labels: ...


S = TypeVar("S", bound=Labelled)


class Index(Generic[S]):
    """Series by their labels."""

    def __init__(self) -> None:
        self._series: dict[Labels, S] = {}
        self._by_name: dict[str, list[S]] = {}
        self._selections: dict[tuple[Matcher, ...], list[S]] = {}
        self._places = 0
        self.version = object()
        """Another object after each series that came or went."""

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Iterator[S]:
        return iter(self._series.values())

    def get(self, labels: Labels) -> S | None:
        """Return the series with exactly these labels."""
        return self._series.get(labels)

    def add(self, series: S) -> S:
        """Add a new series, and return it."""
        self._series[series.labels] = series
        self._by_name.setdefault(label_value(series.labels, METRIC_NAME), []).append(series)
        self._forget()
        return series

    def remove(self, series: S) -> None:
        """Forget a series."""
        del self._series[series.labels]
        name = label_value(series.labels, METRIC_NAME)
        self._by_name[name].remove(series)
        if not self._by_name[name]:
            del self._by_name[name]
        self._forget()

    def _forget(self) -> None:
        self.version = object()
        self._forget_selections()

    def _forget_selections(self) -> None:
        self._selections.clear()
        self._places = 0

    def matching(self, matchers: tuple[Matcher, ...], budget: Budget | None = None) -> list[S]:
        """Return the series that match. Raises LimitError if the search takes more than the budget has."""
        found = self._selections.get(matchers)
        if found is None:
            name = wanted_name(matchers)
            candidates = [*self._series.values()] if name is None else self._by_name.get(name, [])
            looked_at = candidates if budget is None else budget.each(candidates, _MATCHED)
            found = [series for series in looked_at if match_all(matchers, series.labels)]
            self._places += len(found)
            if len(self._selections) >= _REMEMBERED_SELECTIONS or self._places > _REMEMBERED_SERIES:
                self._forget_selections()
                self._places = len(found)
            self._selections[matchers] = found
        return found
