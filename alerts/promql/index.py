"""Finds series by their matchers: by metric name first, and with the answer remembered until a series comes or goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from alerts.promql.labels import METRIC_NAME, Labels, label_value
from alerts.promql.matchers import Matcher, match_all, wanted_name

_REMEMBERED_SELECTIONS = 1024


class Labelled(Protocol):
    """Whatever has the labels of a series."""

    @property
    def labels(self) -> Labels: ...


S = TypeVar("S", bound=Labelled)


class Index(Generic[S]):
    """Series by their labels."""

    def __init__(self) -> None:
        self._series: dict[Labels, S] = {}
        self._by_name: dict[str, list[S]] = {}
        self._selections: dict[tuple[Matcher, ...], list[S]] = {}

    def __len__(self) -> int:
        return len(self._series)

    def __iter__(self) -> Iterator[S]:
        return iter(self._series.values())

    def get(self, labels: Labels) -> S | None:
        """Return the series with exactly these labels."""
        return self._series.get(labels)

    def add(self, series: S) -> S:
        """Take in a series that is not there yet, and return it."""
        self._series[series.labels] = series
        self._by_name.setdefault(label_value(series.labels, METRIC_NAME), []).append(series)
        self._selections.clear()
        return series

    def remove(self, series: S) -> None:
        """Forget a series."""
        del self._series[series.labels]
        name = label_value(series.labels, METRIC_NAME)
        self._by_name[name].remove(series)
        if not self._by_name[name]:
            del self._by_name[name]
        self._selections.clear()

    def matching(self, matchers: tuple[Matcher, ...]) -> list[S]:
        """Return the series that match."""
        found = self._selections.get(matchers)
        if found is None:
            name = wanted_name(matchers)
            candidates = self._series.values() if name is None else self._by_name.get(name, ())
            found = [series for series in candidates if match_all(matchers, series.labels)]
            if len(self._selections) >= _REMEMBERED_SELECTIONS:
                self._selections.clear()
            self._selections[matchers] = found
        return found
