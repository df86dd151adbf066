"""The grouping of series on a page: their order, and their family names.

The encoder and the bridge to prometheus_client share it, so that a page and a text file cannot
disagree. The order depends only on the series, never on the order in which backends answered: the
same devices give the same page, which makes golden files and diffs of pages possible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.catalogue import BY_NAME, ROWS
from agent.model import Kind, Labels, Metric, Node, Series, Unit

AGE_SERIES = Series(BY_NAME["coldplate_sample_age_seconds"], Node())
"""The one series that no snapshot can contain: how old the snapshot is when its page is rendered."""

_PLACE: dict[str, int] = {row.name: place for place, row in enumerate(ROWS)}
_LAST: dict[type, int] = {row.entity: place for place, row in enumerate(ROWS)}

_OpenMetricsKind = tuple[str, str]
_NaturalKey = tuple[tuple[int, str], ...]


class Family(NamedTuple):
    """The series of one metric name; `members` are positions in the grouped sequence, in page order."""

    metric: Metric
    members: tuple[int, ...]


def labels_of(series: Series) -> Labels:
    """The labels as exposed: a name that appears twice would make the whole page invalid, so the first one stays."""
    labels = series.all_labels
    unique = dict(reversed(labels))
    if len(unique) == len(labels):
        return labels
    return tuple((name, unique[name]) for name in dict(labels))


def group(series: Sequence[Series]) -> list[Family]:
    """Families in catalogue order; of a series that appears twice the first is kept."""
    return [
        Family(series[places[0]].metric, tuple(places[each] for each in arrange([series[place] for place in places])))
        for places in by_family(series)
    ]


def by_family(series: Sequence[Series]) -> list[list[int]]:
    """The positions of each family's series, in their order; the families in catalogue order."""
    found: dict[str, list[int]] = {}
    for place, each in enumerate(series):
        name = each.metric.name
        if name in found:
            found[name].append(place)
        else:
            found[name] = [place]
    return sorted(found.values(), key=lambda places: _rank(series[places[0]].metric))


def arrange(members: Sequence[Series]) -> tuple[int, ...]:
    """The order of one family's series on the page, as positions among them; one that appears twice is kept once."""
    kept: list[tuple[_NaturalKey, int]] = []
    seen: set[frozenset[tuple[str, str]]] = set()
    for place, each in enumerate(members):
        labels = labels_of(each)
        identity = frozenset(pair for pair in labels if pair[1])  # an empty label is no label
        if identity not in seen:
            seen.add(identity)
            kept.append((_natural(labels), place))
    kept.sort()
    return tuple(place for _, place in kept)


def _rank(row: Metric) -> tuple[int, str]:
    """Catalogue rows by position; a row made at run time by name, after the last known row of its entity."""
    place = _PLACE.get(row.name)
    if place is not None:
        return place, ""
    return _LAST.get(row.entity, len(ROWS)), row.name


def _natural(labels: Labels) -> _NaturalKey:
    """A sort key that puts GPU 10 after GPU 9: values that are numbers are sorted by length first."""
    return tuple((len(value) if value.isdigit() else 0, value) for _, value in labels)


def text_type(row: Metric) -> str:
    """The type in Prometheus's text format, which has neither states nor infos."""
    return "counter" if row.kind is Kind.COUNTER else "gauge"


def openmetrics_kinds(rows: Iterable[Metric]) -> list[_OpenMetricsKind]:
    """Family name and type of each row in OpenMetrics, where a counter and an info drop their suffix.

    A row keeps its whole name and is of type `unknown` where dropping it is impossible: a counter
    without `_total` (a neighbour's name), or a short name that another family already has.
    """
    rows = list(rows)
    taken = {row.name for row in rows}
    return [_openmetrics_kind(row, taken) for row in rows]


def _openmetrics_kind(row: Metric, taken: set[str]) -> _OpenMetricsKind:
    suffix, kind = {Kind.COUNTER: ("_total", "counter"), Kind.INFO: ("_info", "info")}.get(row.kind, ("", "gauge"))
    if not suffix:
        return row.name, kind
    stem = row.name.removesuffix(suffix)
    if stem == row.name or stem in taken or f"{stem}_created" in taken:
        return row.name, "unknown"
    taken.add(stem)
    return stem, kind


def openmetrics_unit(row: Metric, family: str) -> str:
    """The unit to declare, or nothing: OpenMetrics requires it as the name's last part, and infos have none."""
    unit: str = row.unit.value
    fits = row.unit is not Unit.NONE and row.kind is not Kind.INFO and family.endswith(f"_{unit}")
    return unit if fits else ""
