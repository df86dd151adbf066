"""Renders a snapshot as Prometheus text 0.0.4 or OpenMetrics 1.0.0.

The page is rendered for every sample that is scraped, so everything that stays the same from sample to sample (names,
labels, HELP, TYPE, order) is laid out once, as a template for each family; a render fills in the values of the families
that changed. prometheus_client takes about twenty times as long for the same page; its parsers prove in the tests that
this encoder produces the same.

It does not choose: it renders every reading of the snapshot, and adds none. The order depends only on the series, never
on the order in which backends answered, which makes golden files and diffs of pages possible.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import chain
from math import isfinite, isnan
from typing import NamedTuple

from agent.catalogue import BY_NAME, ROWS
from agent.lib.layout_columns import picker
from agent.model import Kind, Labels, Layout, Metric, Node, Series, Snapshot, Unit

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
    """Return the labels as exposed: of two with one name, which would make the page invalid, the first stays."""
    labels = series.all_labels
    unique = dict(reversed(labels))
    if len(unique) == len(labels):
        return labels
    return tuple((name, unique[name]) for name in dict(labels))


def group(series: Sequence[Series]) -> list[Family]:
    """Return families in catalogue order; of a series that appears twice the first is kept."""
    return [
        Family(
            series[places[0]].metric, tuple(places[member] for member in arrange([series[place] for place in places]))
        )
        for places in by_family(series)
    ]


def by_family(series: Sequence[Series]) -> list[list[int]]:
    """Return the positions of each family's series, in their order; the families in catalogue order."""
    by_name: defaultdict[str, list[int]] = defaultdict(list)
    for place, member in enumerate(series):
        by_name[member.metric.name].append(place)
    return sorted(by_name.values(), key=lambda places: _rank(series[places[0]].metric))


def arrange(members: Sequence[Series]) -> tuple[int, ...]:
    """Return the order of one family's series on the page, as positions among them; duplicates are left out."""
    ordered: list[tuple[_NaturalKey, int]] = []
    identities: set[frozenset[tuple[str, str]]] = set()
    for place, s in enumerate(members):
        labels = labels_of(s)
        identity = frozenset(pair for pair in labels if pair[1])  # an empty label is no label
        if identity not in identities:
            identities.add(identity)
            ordered.append((_natural(labels), place))
    ordered.sort()
    return tuple(place for _, place in ordered)


def _rank(row: Metric) -> tuple[int, str]:
    """Rank catalogue rows by position; a row made at run time by name, after the last known row of its entity."""
    place = _PLACE.get(row.name)
    if place is not None:
        return place, ""
    return _LAST.get(row.entity, len(ROWS)), row.name


def _natural(labels: Labels) -> _NaturalKey:
    """Return a sort key that puts GPU 10 after GPU 9: values that are numbers are sorted by length first."""
    return tuple((len(value) if value.isdigit() else 0, value) for _, value in labels)


def openmetrics_kinds(rows: Iterable[Metric]) -> list[_OpenMetricsKind]:
    """Return family name and type of each row in OpenMetrics, where a counter and an info drop their suffix.

    A row keeps its whole name and is of type `unknown` where dropping it is impossible: a counter
    without `_total` (a neighbour's name), or a short name that another family already has.
    """
    rows = list(rows)
    names = {row.name for row in rows}
    return [_openmetrics_kind(row, names) for row in rows]


def _openmetrics_kind(row: Metric, names: set[str]) -> _OpenMetricsKind:
    suffix, kind = {Kind.COUNTER: ("_total", "counter"), Kind.INFO: ("_info", "info")}.get(row.kind, ("", "gauge"))
    if not suffix:
        return row.name, kind
    stem = row.name.removesuffix(suffix)
    if stem == row.name or stem in names or f"{stem}_created" in names:
        return row.name, "unknown"
    names.add(stem)
    return stem, kind


def openmetrics_unit(row: Metric, family: str) -> str:
    """Return the unit to declare, or nothing: OpenMetrics requires it as the name's last part, and infos have none."""
    unit: str = row.unit.value
    fits = row.unit is not Unit.NONE and row.kind is not Kind.INFO and family.endswith(f"_{unit}")
    return unit if fits else ""


class Format(Enum):
    """An exposition format, by its media type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


_Values = tuple[float, ...]
_PLAIN = frozenset({int, float})
_AGE_LAYOUT = Layout((AGE_SERIES,))


class _ValueText(str):
    """A value whose spelling differs from Python's."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


class _FamilyText:
    """One family of a page in one format: its head, its lines, and its last rendering."""

    __slots__ = ("_made", "_template", "_values", "head")

    def __init__(self, head: str, members: Sequence[Series]) -> None:
        self.head = head
        self._template = b"".join((_escape_percent(_encode(head)), *map(_prefix, members)))
        self._values: _Values | None = None
        self._made = b""

    def render(self, own: _Values) -> bytes:
        """Return the family with these values; most families are sampled seldom, and are the same as before."""
        if own != self._values:
            # Readings are finite numbers. A bool or an infinity that slips in must not break the page.
            plain = _PLAIN.issuperset(map(type, own)) and isfinite(sum(own))
            self._made = self._template % (own if plain else tuple(map(_spelled, own)))
            self._values = own if plain else None
        return self._made


class _FamilySeries:
    """The series of one family in the snapshot's order, their order on the page, and the family's text by format."""

    __slots__ = ("_texts", "members", "order")

    def __init__(self, members: tuple[Series, ...]) -> None:
        self.members = members
        self.order = arrange(members)
        self._texts: dict[Format, _FamilyText] = {}

    @property
    def metric(self) -> Metric:
        return self.members[0].metric

    def text(self, fmt: Format, head: str) -> _FamilyText:
        """Return the family in that format; made again if another family's coming or going changes its head."""
        text = self._texts.get(fmt)
        if text is None or text.head != head:
            text = self._texts[fmt] = _FamilyText(head, [self.members[place] for place in self.order])
        return text


class Encoder:
    """Renders snapshots; keeps what it knows about the families of the last one, and no others."""

    def __init__(self) -> None:
        self._layouts: list[Layout] = []
        self._families: list[_FamilySeries] = []
        self._picks: list[Callable[[_Values], _Values]] = []
        """The values of each family in the order of the page, from those of all frames."""
        self._texts: dict[Format, list[_FamilyText]] = {}

    def render(self, snapshot: Snapshot, fmt: Format, age: float) -> bytes:
        """Return the page. `age` is the seconds since the snapshot was taken, shown as coldplate_sample_age_seconds."""
        layouts = [_AGE_LAYOUT, *(frame.layout for frame in snapshot.frames)]  # the age wins over one in a snapshot
        values = (age, *chain.from_iterable(frame.values for frame in snapshot.frames))
        if self._layouts != layouts:
            self._lay_out(layouts)
        if fmt not in self._texts:
            self._add_texts(fmt)
        pieces = [text.render(pick(values)) for pick, text in zip(self._picks, self._texts[fmt], strict=True)]
        if fmt is Format.OPENMETRICS:
            pieces.append(b"# EOF\n")
        return b"".join(pieces)

    def _lay_out(self, layouts: list[Layout]) -> None:
        """Lay out a page. A GPU that comes or goes changes few families: those with the same series are kept."""
        by_name = {family.metric.name: family for family in self._families}
        series = tuple(chain.from_iterable(layout.series for layout in layouts))
        families: list[_FamilySeries] = []
        picks: list[Callable[[_Values], _Values]] = []
        for places in by_family(series):
            members = tuple(series[place] for place in places)
            family = by_name.get(members[0].metric.name)
            if family is None or family.members != members:
                family = _FamilySeries(members)
            families.append(family)
            picks.append(picker([places[member] for member in family.order]))
        self._layouts, self._families, self._picks, self._texts = layouts, families, picks, {}

    def _add_texts(self, fmt: Format) -> None:
        rows = [family.metric for family in self._families]
        heads = openmetrics_heads(rows) if fmt is Format.OPENMETRICS else map(_text_head, rows)
        self._texts[fmt] = [family.text(fmt, head) for family, head in zip(self._families, heads, strict=True)]


def _spelled(value: float) -> object:
    if type(value) is int:
        return value
    number = float(value)
    if isfinite(number):
        return number
    if isnan(number):
        return _ValueText("NaN")
    return _ValueText("+Inf" if number > 0 else "-Inf")


def _prefix(series: Series) -> bytes:
    """Return the line of a series up to its value, as a piece of the template: `%a` is Python's ASCII repr."""
    labels = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels_of(series))
    line = f"{series.metric.name}{{{labels}}} " if labels else f"{series.metric.name} "
    return _escape_percent(_encode(line)) + b"%a\n"


def _encode(text: str) -> bytes:
    """Encode in UTF-8; a lone surrogate, from an undecodable file name, becomes a question mark."""
    return text.encode("utf-8", "replace")


def _escape_percent(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def escape_label(value: str) -> str:
    """Return a label's value, or a HELP text, between the quotes of a page."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _text_head(row: Metric) -> str:
    kind = "counter" if row.kind is Kind.COUNTER else "gauge"  # the format has neither states nor infos
    meaning = row.help.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {row.name} {meaning}\n# TYPE {row.name} {kind}\n"


def openmetrics_heads(rows: Sequence[Metric]) -> Iterator[str]:
    """Yield the lines above each family's samples; whether a name can be shortened depends on the others."""
    for row, (name, kind) in zip(rows, openmetrics_kinds(rows), strict=True):
        unit = openmetrics_unit(row, name)
        lines = [f"# TYPE {name} {kind}\n"]
        lines += [f"# UNIT {name} {unit}\n"] if unit else []
        lines += [f"# HELP {name} {escape_label(row.help)}\n"] if row.help else []
        yield "".join(lines)
