"""Panels as a board writes them: one line each, with what the catalogue and the rules know filled in.

Nothing here knows Grafana's JSON or where on the board a panel will be.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Union

from msgspec import Struct, field
from msgspec.structs import replace

from agent.catalogue import BY_NAME
from dashboards.alert_thresholds import Steps, alert_meanings, recorded_series
from dashboards.queries import ACTIVE_ALERTS, AGENT, PanelQuery, names_in, title_of, unit_of_query

About = Union[str, Sequence[Union[str, "tuple[str, str]"]]]
"""A query, or several; a pair is a query and its legend."""
Mapped = tuple[tuple[float, str, str], ...]
"""Values that are shown as a text and a colour."""

_SIZES = {
    "stat": (4, 4), "gauge": (6, 6), "timeseries": (12, 8), "bargauge": (12, 8), "heatmap": (12, 8),
    "state-timeline": (12, 8),
}  # fmt: skip
"""Width and height if the board gives none."""
YES_NO: Mapped = ((1, "yes", "orange"), (0, "no", "green"))
UP_DOWN: Mapped = ((1, "up", "green"), (0, "down", "red"))
NONE: Steps = (("green", None), ("red", 1))
FEW: Steps = (("green", None), ("orange", 1))
"""Limits of what should be 0."""


class TableColumn(Struct, frozen=True):
    """One column of a table: a query whose result has just the table's labels.

    `zero` says that an absent value is 0: a count of what has not happened. `first` puts the column before the labels.
    `row` gives its colour to all of the row.
    """

    header: str
    expr: str
    unit: str | None = None
    limits: Steps = ()
    mapped: Mapped = ()
    zero: bool = False
    first: bool = False
    decimals: int | None = None
    row: bool = False


class DashboardPanel(Struct, frozen=True):
    """One panel, before it has a place.

    `texts` are pairs of a header and the text that is shown for each of its values. `runbook` is the header of the
    column whose values are the addresses of agents that have the runbooks. `lines` are the series that are limits,
    by regular expressions, each with its colour if it is not red.
    """

    look: str
    title: str
    queries: tuple[PanelQuery, ...]
    description: str
    unit: str
    width: int
    height: int
    limits: Steps = ()
    span: tuple[float | None, float | None] = (None, None)
    mapped: Mapped = ()
    decimals: int | None = None
    columns: tuple[TableColumn, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    texts: tuple[tuple[str, dict[str, str]], ...] = ()
    runbook: str = ""
    lines: Sequence[str | tuple[str, str]] = ()
    instant: bool = False
    none: str = ""
    absent: str = "-"
    extra: dict[str, Any] = field(default_factory=dict)


def _queries(about: About) -> tuple[PanelQuery, ...]:
    given = [about] if isinstance(about, str) else about
    return tuple(PanelQuery(each) if isinstance(each, str) else PanelQuery(*each) for each in given)


def _subject(expr: str) -> str:
    names = names_in(expr)
    if not names:
        raise ValueError(f"no known series in {expr!r}")
    known = [name for name in names if name in BY_NAME or name in recorded_series()]
    return known[0] if known else names[0]


def _meaning(subject: str, what: str | None, good: str) -> str:
    if what is None:
        what = BY_NAME[subject].help if subject in BY_NAME else ""
    return f"{what}\n\n**Good:** {good}".strip()


NOT_OFFERED = "no series: this hardware, its driver or the configuration does not offer it"
NONE_REPORTED = "no series: nothing of this kind is reported"


def _emptiness(good: str) -> str:
    """Return the text of a panel without any series. Silence is no proof that all is well."""
    return NONE_REPORTED if good.startswith(("empty", "no value")) else NOT_OFFERED


def _decimals(unit: str, look: str) -> int | None:
    """Return how many decimals values of a unit have, None if Grafana shall choose.

    Of shares it would show four digits, of which no sensor knows more than two; an axis needs one more.
    """
    if unit == "percentunit":
        return 1 if look == "timeseries" else 0
    return 0 if unit == "celsius" else None


def _panel(look: str, about: About, good: str, **options: Any) -> DashboardPanel:
    queries = _queries(about)
    subject = _subject(queries[0].expr)
    unit = options.pop("unit", None) or unit_of_query(queries[0].expr, subject)
    title = options.pop("title", None) or title_of(subject)
    what = options.pop("what", None)
    size = options.pop("size", _SIZES[look])
    options.setdefault("none", _emptiness(good))
    known = {"limits", "span", "mapped", "decimals", "lines", "instant", "absent", "none"}
    given = {key: options.pop(key) for key in known & options.keys()}
    given["extra"] = options
    given.setdefault("decimals", _decimals(unit, look))
    if unit == "percentunit" and "span" not in given and look != "timeseries":
        given["span"] = (0, 1)
    return DashboardPanel(look, title, queries, _meaning(subject, what, good), unit, *size, **given)


graph = partial(_panel, "timeseries")
"""Values over time."""
small_graph = partial(graph, size=(8, 8), few=True)
"""The same on a third of a line, with its legend in a list below."""
bar_gauge = partial(_panel, "bargauge", instant=True)
"""A bar for each series, now."""
gauge = partial(_panel, "gauge", instant=True)
"""A dial for each series, now."""
heatmap = partial(_panel, "heatmap")
"""A row for each series, coloured by value over time."""
state_timeline = partial(_panel, "state-timeline")
"""A row for each series, coloured by state over time."""


def stat(about: About, good: str, **options: Any) -> DashboardPanel:
    """Return one number, large."""
    return _panel("stat", about, good, instant=not options.get("trend"), **options)


def table(
    title: str,
    columns: Sequence[TableColumn],
    good: str,
    *,
    labels: dict[str, str],
    what: str | None = None,
    size: tuple[int, int] = (12, 9),
    rows: str = "",
    none: str = "",
    texts: Sequence[tuple[str, dict[str, str]]] = (),
    runbook: str = "",
    **extra: Any,
) -> DashboardPanel:
    """Return a row for each set of labels and a column for each query; `labels` has the header of each label.

    `rows` is a query with a series for each row that must be there, whether or not a column has a value for it. A table
    of several columns needs it: Grafana joins rows by the labels that all queries have, and a query without a result
    has none, so that one empty column would break all rows.
    """
    if len(columns) > 1 and not rows:
        raise ValueError(f"table {title!r}: several columns need `rows`")
    # A value that is missing from a row that must be there is NaN, which is shown as a dash.
    queries = tuple(
        PanelQuery(f"{each.expr} or {rows} * {'0' if each.zero else 'NaN'}" if rows else each.expr, "")
        for each in columns
    )
    columns = tuple(_with_unit(column) for column in columns)
    description = _meaning(_subject(queries[0].expr), what, good)
    return DashboardPanel(
        "table", title, queries, description, "none", *size, columns=columns, labels=tuple(labels.items()),
        texts=tuple(texts), runbook=runbook, instant=True, none=none or _emptiness(good), extra=extra,
    )  # fmt: skip


def _with_unit(column: TableColumn) -> TableColumn:
    unit = column.unit or unit_of_query(column.expr, _subject(column.expr))
    decimals = _decimals(unit, "table") if column.decimals is None else column.decimals
    return replace(column, unit=unit, decimals=decimals)


SEVERITIES: Mapped = ((3, "critical", "red"), (2, "warning", "orange"), (1, "info", "blue"))


def alerts(
    labels: dict[str, str],
    *,
    what: str,
    title: str = "Firing alerts",
    series: str = ACTIVE_ALERTS,
    matchers: str = "",
    good: str = "empty. Every agent has the runbooks, at /runbooks/.",
    among: str = "",
    explained: bool = False,
    **options: Any,
) -> DashboardPanel:
    """Return active alerts, the worst first: the severity is a number with a name, so that it sorts correctly.

    `among` is a query: only alerts that are in its result are shown. `explained` alerts have a column with their
    summary (of those that only a server reports: with what the alert means), and one with a link to the runbook.
    """
    begin = f"{series}{{{matchers}, " if matchers else f"{series}{{"
    ranked = " or ".join(
        f"{begin}severity{severity}}} * {rank}"
        for severity, rank in (('="critical"', 3), ('="warning"', 2), ('!~"critical|warning"', 1))
    )
    if among:
        ranked = f"({ranked}) and ({among})"
    if explained:
        labels = {**labels, "summary": "Summary"}
    expr = f"max by ({', '.join(labels)}) ({ranked})"
    if explained:
        expr = f"{expr} * on () group_left (agent) {AGENT}"
        labels = {**labels, "agent": "Runbook"}
        options |= {"texts": [("Summary", alert_meanings())], "runbook": "Runbook"}
    rank = TableColumn("Severity", expr, "short", mapped=SEVERITIES, first=True)
    options.setdefault("sort", "Severity")
    return table(title, [rank], good, labels=labels, what=what, none="no alert is reported", **options)
