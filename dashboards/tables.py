"""Tables of grafanalib: a row for each set of labels, a column for each query; and tables of alerts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_uppercase

from grafanalib import core

from dashboards.alert_thresholds import Steps, alert_meanings
from dashboards.grafana_json import BY_THRESHOLDS, Json, absent_as, any_text_as, extra, override, threshold_steps
from dashboards.panels import Mapped, Size, decimals_of, heading, mappings, no_series, subject_of, targets
from dashboards.queries import ACTIVE_ALERTS, AGENT, unit_of_query


@dataclass(frozen=True)
class TableColumn:
    """One column of a table: a query whose result has just the table's labels.

    `zero` says that an absent value is 0: a count of what has not happened. `first` puts the column before the labels.
    `row` gives its colour to all of the row.
    """

    header: str
    expr: str
    unit: str = ""
    limits: Steps = ()
    mapped: Mapped = ()
    zero: bool = False
    first: bool = False
    decimals: int | None = None
    row: bool = False


def table(
    title: str,
    columns: Sequence[TableColumn],
    good: str,
    *,
    labels: dict[str, str],
    what: str | None = None,
    size: Size = (12, 9),
    rows: str = "",
    none: str = "",
    sort: str | Sequence[str] = (),
    properties: dict[str, Json] | None = None,
    rest: str = "",
) -> core.Table:
    """Return a row for each set of labels and a column for each query; `labels` has the header of each label.

    `rows` is a query with a series for each row that must be there, whether or not a column has a value for it. A table
    of several columns needs it: Grafana joins rows by the labels that all queries have, and a query without a result
    has none, so that one empty column would break all rows.

    `sort` has headers: the largest first, the smallest first if it begins with +. `properties` are those of columns of
    labels, by header. The column `rest` has all the room that the others leave.
    """
    if len(columns) > 1 and not rows:
        raise ValueError(f"table {title!r}: several columns need `rows`")
    columns = [_with_unit(column) for column in columns]
    # A value that is missing from a row that must be there is NaN, which is shown as a dash.
    queries = [
        (f"{column.expr} or {rows} * {'0' if column.zero else 'NaN'}" if rows else column.expr, "")
        for column in columns
    ]
    shown = {column.header: _properties(column) for column in columns} | (properties or {})
    for header, width in _widths(columns, labels, size[0], rest).items():
        shown[header] = shown.get(header, {}) | {"custom.width": width}
    return core.Table(
        **heading(title, subject_of(columns[0].expr), what, good, size),
        targets=targets(queries, instant=True, format=core.TABLE_TARGET_FORMAT),
        thresholds=threshold_steps(()),
        transformations=_transformations(columns, labels),
        unit="none",
        filterable=True,
        sortBy=[
            core.TableSortByField(header.removeprefix("+"), desc=not header.startswith("+"))
            for header in ([sort] if isinstance(sort, str) else sort)
        ],
        overrides=[override(header, listed) for header, listed in shown.items()],
        extraJson=extra(none or no_series(good), color=BY_THRESHOLDS, custom={"minWidth": 70}),
    )


def _with_unit(column: TableColumn) -> TableColumn:
    unit = column.unit or unit_of_query(column.expr, subject_of(column.expr))
    return replace(column, unit=unit, decimals=decimals_of(unit) if column.decimals is None else column.decimals)


def _properties(column: TableColumn) -> Json:
    """Return the properties of a column. An empty cell has no colour: absent is neither good nor bad."""
    shown: Json = {"unit": column.unit, "mappings": [*mappings(column.mapped), absent_as("-", "transparent")]}
    if column.first:
        shown["custom.align"] = "left"
    if column.decimals is not None:
        shown["decimals"] = column.decimals
    if column.limits:
        shown["thresholds"] = {"mode": "absolute", "steps": threshold_steps(column.limits)}
    if column.limits or column.mapped:
        shown["custom.cellOptions"] = {"type": "color-background", "mode": "basic"}
        if column.row:
            shown["custom.cellOptions"]["applyToRow"] = True
    return shown


def _transformations(columns: Sequence[TableColumn], labels: dict[str, str]) -> list[Json]:
    """Return what joins the results of the queries to one table, and puts its columns into their order."""
    values = {f"Value #{letter}": column for letter, column in zip(ascii_uppercase, columns, strict=False)}
    joined = [
        # Rows are joined by labels: times are removed, since some servers give a different one for each query.
        {"id": "filterFieldsByName", "options": {"exclude": {"names": ["Time"]}}},
        {"id": "merge", "options": {}},
    ]
    if len(columns) == 1:
        values, joined = {"Value": columns[0], **values}, []
    first = [name for name, column in values.items() if column.first]
    order = [*first, *labels, *(name for name in values if name not in first)]
    organize = {
        "excludeByName": {"Time": True},
        "includeByName": {},
        "indexByName": {name: number for number, name in enumerate(order)},
        "renameByName": labels | {name: column.header for name, column in values.items()},
    }
    return [*joined, {"id": "organize", "options": organize}]


_WIDE = {"alertname": 210, "metric": 340, "cluster_uuid": 320, "instance": 150, "equipment": 150, "part": 150}
"""Columns with longer texts than the rest, and their widths in pixels."""
_SCREEN = 1600
"""The width of screen in pixels for which columns are laid out; a panel has a number of its 24 parts."""
_MIN_WIDTHS = {"dateTimeFromNow": 150}
"""Pixels that values need, by unit, if that is more than headers need."""


def _needed(header: str, unit: str = "") -> int:
    """Return the pixels of a column whose header is not cut: its letters, the sort sign, and the padding."""
    return max(_MIN_WIDTHS.get(unit, 70), 8 * len(header) + 36)


def _widths(columns: Sequence[TableColumn], labels: dict[str, str], width: int, rest: str) -> dict[str, int]:
    """Return widths of the columns that need more than their share, or have longer texts; the others share the rest."""
    needs = {header: _WIDE.get(label, _needed(header)) for label, header in labels.items()}
    needs |= {column.header: _needed(column.header, column.unit) for column in columns}
    if rest:
        return {header: need for header, need in needs.items() if header != rest}
    fixed = {header: _WIDE[label] for label, header in labels.items() if label in _WIDE}
    fixed |= {column.header: needs[column.header] for column in columns if column.first}
    room = width * _SCREEN // 24 - 30
    while True:
        others = {header: need for header, need in needs.items() if header not in fixed}
        share = (room - sum(fixed.values())) / max(1, len(others))
        wider = {header: need for header, need in others.items() if need > share}
        if not wider:
            return fixed
        fixed |= wider


SEVERITIES: Mapped = ((3, "critical", "red"), (2, "warning", "orange"), (1, "info", "blue"))


def _explained() -> dict[str, Json]:
    """Return properties of the columns with the summary of an alert, and with the address of an agent with runbooks."""
    meanings = [
        core.StatValueMappingItem(text, alert, index=index)
        for index, (alert, text) in enumerate(alert_meanings().items())
    ]
    address = 'http://${__value.raw}/runbooks/${__data.fields["Alert"]}'
    runbook = core.DataLink("Open the runbook", address, isNewTab=True)
    return {
        "Summary": {"mappings": [core.StatValueMappings(*meanings)]},
        "Runbook": {"links": [runbook], "mappings": [any_text_as("open")]},
    }


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
    size: Size = (12, 9),
) -> core.Table:
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
    options: Json = {}
    if explained:
        labels = {**labels, "summary": "Summary"}
    expr = f"max by ({', '.join(labels)}) ({ranked})"
    if explained:
        expr = f"{expr} * on () group_left (agent) {AGENT}"
        labels = {**labels, "agent": "Runbook"}
        options = {"properties": _explained(), "rest": "Summary"}
    rank = TableColumn("Severity", expr, "short", mapped=SEVERITIES, first=True)
    none = "no alert is reported"
    return table(title, [rank], good, labels=labels, what=what, none=none, sort="Severity", size=size, **options)
