"""Panels of grafanalib as a board writes them: one line each, with what the catalogue and the rules know filled in.

A panel has its size and queries from here; the board gives it a place, narrows the queries, and makes the legends that
are missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from string import ascii_uppercase
from typing import Any, Union

from grafanalib import core

from agent.catalogue import BY_NAME
from dashboards import grafana_json
from dashboards.alert_thresholds import Steps, recorded_series
from dashboards.grafana_json import Json, extra, override
from dashboards.queries import names_in, title_of, unit_of_query

About = Union[str, Sequence[Union[str, "tuple[str, str]"]]]
"""A query, or several; a pair is a query and its legend."""
Mapped = tuple[tuple[float, str, str], ...]
"""Values that are shown as a text and a colour."""
Lines = Sequence[Union[str, "tuple[str, str]"]]
"""Series that are limits, by regular expressions, each with its colour if it is not red."""
Size = tuple[int, int]
"""Width and height on the grid."""

YES_NO: Mapped = ((1, "yes", "orange"), (0, "no", "green"))
UP_DOWN: Mapped = ((1, "up", "green"), (0, "down", "red"))
NONE: Steps = (("green", None), ("red", 1))
FEW: Steps = (("green", None), ("orange", 1))
"""Limits of what should be 0."""


def subject_of(expr: str) -> str:
    """Return the series that the query is about. Raises ValueError if it reads none that is known."""
    names = names_in(expr)
    if not names:
        raise ValueError(f"no known series in {expr!r}")
    known = [name for name in names if name in BY_NAME or name in recorded_series()]
    return known[0] if known else names[0]


def heading(title: str, subject: str, what: str | None, good: str, size: Size) -> Json:
    """Return what a panel of any kind begins with. Without `what`, the catalogue says what it shows."""
    if what is None:
        what = BY_NAME[subject].help if subject in BY_NAME else ""
    description = f"{what}\n\n**Good:** {good}".strip()
    place = core.GridPos(w=size[0], h=size[1], x=0, y=0)
    return {"title": title, "description": description, "gridPos": place, "dataSource": grafana_json.SOURCE}


def targets(queries: Sequence[str | tuple[str, str]], **options: Any) -> list[core.Target]:
    """Return a target for each query, with its legend if it is a pair."""
    pairs = [(query, None) if isinstance(query, str) else query for query in queries]
    return [
        core.Target(refId=letter, datasource=grafana_json.SOURCE, expr=expr, legendFormat=legend, **options)
        for letter, (expr, legend) in zip(ascii_uppercase, pairs, strict=False)
    ]


def no_series(good: str) -> str:
    """Return the text of a panel without any series. Silence is no proof that all is well."""
    if good.startswith(("empty", "no value")):
        return "no series: nothing of this kind is reported"
    return "no series: this hardware, its driver or the configuration does not offer it"


def decimals_of(unit: str, *, axis: bool = False) -> int | None:
    """Return how many decimals values of a unit have, None if Grafana shall choose.

    Of shares it would show four digits, of which no sensor knows more than two; an axis needs one more.
    """
    if unit == "percentunit":
        return 1 if axis else 0
    return 0 if unit == "celsius" else None


def mappings(mapped: Mapped) -> list[core.StatValueMappings]:
    """Return the mapping of values to texts in a list, which is empty without values."""
    items = [
        core.StatValueMappingItem(text, f"{value:g}", color, index) for index, (value, text, color) in enumerate(mapped)
    ]
    return [core.StatValueMappings(*items)] if items else []


@dataclass(frozen=True)
class PanelFacts:
    """What the board, the catalogue and the rules say of a panel; `shared` is what panels of all kinds have."""

    unit: str
    decimals: int | None
    min: float | None
    max: float | None
    limits: Steps
    none: str
    shared: Json


def _facts(
    about: About,
    good: str,
    *,
    size: Size = (12, 8),
    title: str = "",
    what: str | None = None,
    unit: str = "",
    limits: Steps = (),
    span: tuple[float | None, float | None] | None = None,
    decimals: int | None = None,
    none: str = "",
    instant: bool = False,
    axis: bool = False,
) -> PanelFacts:
    queries = targets([about] if isinstance(about, str) else about, instant=instant)
    expr = queries[0].expr
    subject = subject_of(expr)
    unit = unit or unit_of_query(expr, subject)
    if decimals is None:
        decimals = decimals_of(unit, axis=axis)
    if span is None:
        span = (0, 1) if unit == "percentunit" and not axis else (None, None)
    shared = heading(title or title_of(subject), subject, what, good, size)
    shared |= {"targets": queries, "thresholds": grafana_json.threshold_steps(limits)}
    return PanelFacts(unit, decimals, span[0], span[1], limits, none or no_series(good), shared)


_LEGENDS = {"table": ("right", ["lastNotNull", "max"]), "list": ("bottom", []), "hidden": ("bottom", [])}
"""Where a legend is and what it shows of each series, by grafanalib's legendDisplayMode."""
_AXIS_ENDS = {"percentunit": 0.01, "short": 1, "cps": 1, "Bps": 1}
"""The end of the axis if all values are 0: without it Grafana draws 0 in a range up to 100, or 10,000%."""


def graph(
    about: About, good: str, *, lines: Lines = (), stack: bool = False, legend: str = "table", **options: Any
) -> core.TimeSeries:
    """Return values over time; `lines` are drawn dashed beside what they limit."""
    facts = _facts(about, good, axis=True, **options)
    placement, calcs = _LEGENDS[legend]
    return core.TimeSeries(
        **facts.shared,
        unit=facts.unit,
        valueMin=facts.min,
        valueMax=facts.max,
        valueDecimals=facts.decimals,
        fillOpacity=30 if stack else 0,  # overlapping fills of lines would blur into each other
        stacking={"group": "A", "mode": "normal" if stack else "none"},
        showPoints="never",
        thresholdsStyleMode="dashed" if facts.limits else "off",
        axisSoftMin=0 if stack or facts.unit in _AXIS_ENDS else None,  # else a stack's area is no share of the sum
        legendDisplayMode=legend,
        legendPlacement=placement,
        legendCalcs=calcs,
        tooltipMode="multi",
        tooltipSort="desc",
        overrides=[_limit_line(line) for line in lines],
        extraJson=extra(
            facts.none,
            {"legend": {"showLegend": legend != "hidden"}},
            custom={"axisSoftMax": _AXIS_ENDS.get(facts.unit)},  # grafanalib takes whole numbers only
        ),
    )


def _limit_line(line: str | tuple[str, str]) -> Json:
    name, color = (line, "red") if isinstance(line, str) else line
    style = {
        "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
        "custom.fillOpacity": 0,
        "custom.stacking": {"group": "limits", "mode": "none"},
        "color": {"mode": "fixed", "fixedColor": color},
    }
    return override(f"/{name}/", style, by="byRegexp")


small_graph = partial(graph, size=(8, 8), legend="list")
"""The same on a third of a line, with its legend in a list below."""


def stat(
    about: About, good: str, *, mapped: Mapped = (), trend: bool = False, size: Size = (4, 4), **options: Any
) -> core.Stat:
    """Return one number, large; with a trend, over a small graph of it."""
    facts = _facts(about, good, instant=not trend, size=size, **options)
    return core.Stat(
        **facts.shared,
        format=facts.unit,
        decimals=facts.decimals,
        mappings=mappings(mapped),
        color=grafana_json.BY_THRESHOLDS if facts.limits else {"mode": "fixed", "fixedColor": "text"},
        colorMode="background" if facts.limits else "value",
        graphMode="area" if trend else "none",
        reduceCalc="lastNotNull",
        extraJson=extra(facts.none, min=facts.min, max=facts.max),
    )


def gauge(about: About, good: str, *, size: Size = (6, 6), **options: Any) -> core.GaugePanel:
    """Return a dial for each series, now."""
    facts = _facts(about, good, instant=True, size=size, **options)
    return core.GaugePanel(
        **facts.shared,
        format=facts.unit,
        min=facts.min,
        max=facts.max,
        decimals=facts.decimals,
        extraJson=extra(facts.none, grafana_json.LAST, color=grafana_json.BY_THRESHOLDS),
    )


def bar_gauge(about: About, good: str, *, absent: str = "", **options: Any) -> core.BarGauge:
    """Return a bar for each series, now; `absent` is the text of a series without a value."""
    facts = _facts(about, good, instant=True, **options)
    return core.BarGauge(
        **facts.shared,
        displayMode="basic",
        extraJson=extra(
            facts.none,
            {**grafana_json.LAST, "maxVizHeight": 40, "minVizHeight": 12},
            unit=facts.unit,
            min=facts.min,
            max=facts.max,
            decimals=facts.decimals,
            mappings=[grafana_json.absent_as(absent, "red")] if absent else [],
            color=grafana_json.BY_THRESHOLDS,
        ),
    )


def heatmap(about: About, good: str, **options: Any) -> core.Heatmap:
    """Return a row for each series, coloured by value over time."""
    facts = _facts(about, good, **options)
    return core.Heatmap(
        **facts.shared,
        options=grafana_json.heatmap_options(facts.unit, facts.max),
        extraJson=extra(facts.none, unit=facts.unit, min=facts.min, max=facts.max, decimals=facts.decimals),
    )


def state_timeline(about: About, good: str, *, mapped: Mapped, **options: Any) -> core.StateTimeline:
    """Return a row for each series, coloured by state over time."""
    facts = _facts(about, good, **options)
    return core.StateTimeline(
        **facts.shared,
        mappings=mappings(mapped),
        fillOpacity=80,
        rowHeight=0.85,
        showValue="never",
        extraJson=extra(facts.none, {"legend": {"showLegend": True}}, unit=facts.unit),
    )
