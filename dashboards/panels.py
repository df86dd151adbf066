"""Panels as a board writes them: one line each, with what the catalogue and the rules know filled in.

Nothing here knows Grafana's JSON or where on the board a panel will stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from agent.catalogue import BY_NAME
from dashboards import terms
from dashboards.queries import Query, names_in
from dashboards.rulebook import Steps, recorded

About = Union[str, Query, Sequence[Union[str, Query, "tuple[str, str]"]]]
"""A query, or several; a pair is a query and its legend."""
Mapped = tuple[tuple[float, str, str], ...]
"""Values that are shown as a text and a colour."""

_SIZES = {
    "stat": (4, 4), "gauge": (6, 6), "timeseries": (12, 8), "bargauge": (12, 8), "heatmap": (12, 8),
    "state-timeline": (12, 8),
}  # fmt: skip
"""Width and height where the board does not say."""
YES_NO: Mapped = ((1, "yes", "orange"), (0, "no", "green"))
UP_DOWN: Mapped = ((1, "up", "green"), (0, "down", "red"))


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: a query whose result has just the table's labels."""

    header: str
    expr: str
    unit: str | None = None
    limits: Steps = ()
    mapped: Mapped = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel, before it has a place."""

    look: str
    title: str
    queries: tuple[Query, ...]
    description: str
    unit: str
    width: int
    height: int
    limits: Steps = ()
    span: tuple[float | None, float | None] = (None, None)
    mapped: Mapped = ()
    decimals: int | None = None
    columns: tuple[Column, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    lines: tuple[str, ...] = ()
    instant: bool = False
    extra: dict[str, Any] = field(default_factory=dict)


def _queries(about: About) -> tuple[Query, ...]:
    if isinstance(about, (str, Query)):
        about = [about]
    return tuple(
        each if isinstance(each, Query) else Query(each) if isinstance(each, str) else Query(*each) for each in about
    )


def _subject(queries: tuple[Query, ...]) -> str:
    names = names_in(queries[0].expr)
    if not names:
        raise ValueError(f"no known series in {queries[0].expr!r}")
    known = [name for name in names if name in BY_NAME or name in recorded()]
    return known[0] if known else names[0]


def _meaning(subject: str, what: str | None, good: str) -> str:
    if what is None:
        what = BY_NAME[subject].help if subject in BY_NAME else ""
    return f"{what}\n\n**Good:** {good}".strip()


def _panel(look: str, about: About, good: str, **options: Any) -> Panel:
    queries = _queries(about)
    if "legend" in options:
        queries = (Query(queries[0].expr, options.pop("legend")), *queries[1:])
    subject = _subject(queries)
    unit = options.pop("unit", None) or terms.unit_of_query(queries[0].expr, subject)
    title = options.pop("title", None) or terms.title_of(subject)
    what = options.pop("what", None)
    size = options.pop("size", _SIZES[look])
    known = {"limits", "span", "mapped", "decimals", "links", "lines", "instant"}
    given = {key: options.pop(key) for key in known & options.keys()}
    if unit == "percentunit" and "span" not in given and look != "timeseries":
        given["span"] = (0, 1)
    given["extra"] = options
    return Panel(look, title, queries, _meaning(subject, what, good), unit, *size, **given)


def graph(about: About, good: str, **options: Any) -> Panel:
    """Values over time."""
    return _panel("timeseries", about, good, **options)


def stat(about: About, good: str, **options: Any) -> Panel:
    """One number, large."""
    return _panel("stat", about, good, instant=not options.get("trend"), **options)


def bars(about: About, good: str, **options: Any) -> Panel:
    """A bar for each series, now."""
    return _panel("bargauge", about, good, instant=True, **options)


def gauge(about: About, good: str, **options: Any) -> Panel:
    """A dial for each series, now."""
    return _panel("gauge", about, good, instant=True, **options)


def heat(about: About, good: str, **options: Any) -> Panel:
    """A row for each series, coloured by value over time."""
    return _panel("heatmap", about, good, **options)


def states(about: About, good: str, **options: Any) -> Panel:
    """A row for each series, coloured by state over time."""
    return _panel("state-timeline", about, good, **options)


def table(
    title: str,
    columns: Sequence[Column],
    good: str,
    *,
    labels: dict[str, str],
    what: str | None = None,
    size: tuple[int, int] = (12, 9),
    links: Sequence[tuple[str, str]] = (),
    **extra: Any,
) -> Panel:
    """A row for each set of labels and a column for each query; `labels` says how each label is headed.

    `links` are pairs of a header and the board that its values lead to.
    """
    queries = tuple(Query(column.expr, "") for column in columns)
    columns = tuple(
        column
        if column.unit is not None
        else Column(column.header, column.expr, terms.unit_of_query(column.expr, _subject((Query(column.expr),))),
                    column.limits, column.mapped)
        for column in columns
    )  # fmt: skip
    description = _meaning(_subject(queries), what, good)
    return Panel(
        "table", title, queries, description, "none", *size, columns=columns, labels=tuple(labels.items()),
        links=tuple(links), instant=True, extra=extra,
    )  # fmt: skip


def note(content: str, *, title: str = "", size: tuple[int, int] = (24, 2)) -> Panel:
    """Text, for what a board has to say about itself."""
    return Panel("text", title, (), content, "none", *size, extra={"content": content})
