"""Renders a snapshot as Prometheus text 0.0.4 or OpenMetrics 1.0.0.

The page is rendered on every sample that somebody scrapes, so everything that stays the same from
sample to sample (names, labels, HELP, TYPE, order) is laid out once, as a template for each family; a
render fills in the values of the families that changed. prometheus_client takes some twenty times as
long for the same page; its parsers prove in the tests that this encoder says the same.

It refuses to judge: it shows every reading that the snapshot holds, and invents none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from math import isfinite, isnan
from operator import itemgetter

from agent.model import Metric, Reading, Series, Snapshot
from exporters.families import AGE_SERIES, Family, group, labels_of, openmetrics_kinds, openmetrics_unit, text_type


class Format(Enum):
    """An exposition format, by its media type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_Values = tuple[float, ...]
_SERIES_OF, _VALUE_OF = itemgetter(0), itemgetter(1)
_PLAIN = frozenset({int, float})


class _Word(str):
    """A value whose spelling differs from Python's."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _Chunk:
    """One family of a page: its head and its lines, and how it last came out."""

    __slots__ = ("_made", "_pick", "_template", "_values")

    def __init__(self, places: Sequence[int], template: bytes) -> None:
        self._pick = _picker(places)
        self._template = template
        self._values: _Values | None = None
        self._made = b""

    def render(self, values: _Values) -> bytes:
        """The family with these values of the page; most families are sampled seldom and come out as before."""
        own = self._pick(values)
        if own != self._values:
            # Readings are finite numbers. A bool or an infinity that slips in must not cost the page.
            plain = _PLAIN.issuperset(map(type, own)) and isfinite(sum(own))
            self._made = self._template % (own if plain else tuple(map(_spelled, own)))
            self._values = own if plain else None
        return self._made


class _Layout:
    """Everything about a page but its values; good for as long as the same series come in the same order."""

    __slots__ = ("chunks", "families", "series")

    def __init__(self, series: tuple[Series, ...]) -> None:
        self.series = series
        self.families = group(series)
        self.chunks: dict[Format, list[_Chunk]] = {}


class Encoder:
    """Renders snapshots; keeps what it knows about the series of the last one, and no others."""

    def __init__(self) -> None:
        self._prefixes: dict[Series, bytes] = {}
        self._layout = _Layout(())

    @property
    def cached(self) -> int:
        """Number of series whose encoded prefix is kept."""
        return len(self._prefixes)

    def render(self, snapshot: Snapshot, fmt: Format, age: float) -> bytes:
        """The page. `age` is the seconds since the snapshot was taken, shown as coldplate_sample_age_seconds."""
        series, values = _columns(snapshot.readings, age)
        layout = self._layout
        if layout.series != series:
            layout = self._lay_out(series)
        chunks = layout.chunks.get(fmt)
        if chunks is None:
            chunks = layout.chunks[fmt] = self._chunks(layout, fmt)
        parts = [chunk.render(values) for chunk in chunks]
        if fmt is Format.OPENMETRICS:
            parts.append(b"# EOF\n")
        return b"".join(parts)

    def _lay_out(self, series: tuple[Series, ...]) -> _Layout:
        known = self._prefixes
        self._prefixes = {each: known.get(each) or _prefix(each) for each in series}
        self._layout = _Layout(series)
        return self._layout

    def _chunks(self, layout: _Layout, fmt: Format) -> list[_Chunk]:
        heads = _openmetrics_heads(layout.families) if fmt is Format.OPENMETRICS else _text_heads(layout.families)
        chunks = []
        for head, family in zip(heads, layout.families, strict=True):
            lines = [self._prefixes[layout.series[place]] for place in family.members]
            chunks.append(_Chunk(family.members, b"".join((_escape_percent(_encode(head)), *lines))))
        return chunks


def _columns(readings: Sequence[Reading], age: float) -> tuple[tuple[Series, ...], _Values]:
    """Series and values, the age first: it wins over one that a snapshot might bring along."""
    return (AGE_SERIES, *map(_SERIES_OF, readings)), (age, *map(_VALUE_OF, readings))


def _picker(places: Sequence[int]) -> Callable[[_Values], _Values]:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)


def _spelled(value: float) -> object:
    if type(value) is int:
        return value
    number = float(value)
    if isfinite(number):
        return number
    return _Word("NaN" if isnan(number) else "+Inf" if number > 0 else "-Inf")


def _prefix(series: Series) -> bytes:
    """The line of a series up to its value, as a piece of the template: `%a` is Python's ASCII repr."""
    labels = ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels_of(series))
    line = f"{series.metric.name}{{{labels}}} " if labels else f"{series.metric.name} "
    return _escape_percent(_encode(line)) + b"%a\n"


def _encode(text: str) -> bytes:
    """UTF-8; a lone surrogate, from an undecodable file name, becomes a question mark rather than an error."""
    return text.encode("utf-8", "replace")


def _escape_percent(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _escape_label(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _text_heads(families: Iterable[Family]) -> list[str]:
    return [_text_head(family.metric) for family in families]


def _text_head(row: Metric) -> str:
    meaning = row.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {row.name} {meaning}\n# TYPE {row.name} {text_type(row)}\n"


def _openmetrics_heads(families: Sequence[Family]) -> list[str]:
    rows = [family.metric for family in families]
    kinds = openmetrics_kinds(rows)
    return [_openmetrics_head(row, name, kind) for row, (name, kind) in zip(rows, kinds, strict=True)]


def _openmetrics_head(row: Metric, name: str, kind: str) -> str:
    unit = openmetrics_unit(row, name)
    lines = [f"# TYPE {name} {kind}\n"]
    if unit:
        lines.append(f"# UNIT {name} {unit}\n")
    if row.help:
        lines.append(f"# HELP {name} {_escape_label(row.help)}\n")
    return "".join(lines)
