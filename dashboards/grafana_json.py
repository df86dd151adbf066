"""The options of panels in current Grafana, and the corrections of what grafanalib 0.7.1 writes.

grafanalib writes schema version 12, variables without an identity, and keys that Grafana no longer reads. Its panels,
with options from before Grafana 9, are not used. No other module handles this.
"""

import json
from typing import Any

from grafanalib._gen import DashboardEncoder

Json = dict[str, Any]
PLUGIN_VERSION = "12.0.0"

_LAST: Json = {"calcs": ["lastNotNull"], "fields": "", "values": False}
_LEGEND: Json = {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "right", "showLegend": True}
_SOFT = {"percentunit": 0.01, "short": 1, "cps": 1, "Bps": 1}
"""The end of the axis if all values are 0: without it Grafana draws 0 in a range up to 100, or 10,000%."""


def _timeseries(extra: Json) -> tuple[Json, Json]:
    legend = {**_LEGEND, **({"displayMode": "list", "placement": "bottom", "calcs": []} if extra.get("few") else {})}
    if extra.get("quiet"):
        legend = {"calcs": [], "displayMode": "hidden", "placement": "bottom", "showLegend": False}
    custom = {
        "drawStyle": "line",
        "lineWidth": 1,
        "lineInterpolation": "linear",
        "fillOpacity": 30 if extra.get("stack") else 0,  # overlapping fills of lines would blur into each other
        "gradientMode": "none",
        "showPoints": "never",
        "spanNulls": False,
        "axisPlacement": "auto",
        "stacking": {"group": "A", "mode": "normal" if extra.get("stack") else "none"},
        "thresholdsStyle": {"mode": "dashed" if extra.get("limits") else "off"},
    }
    if extra.get("stack"):
        custom["axisSoftMin"] = 0  # else the area that is drawn is no share of the sum
    if extra["unit"] in _SOFT:
        custom |= {"axisSoftMin": 0, "axisSoftMax": _SOFT[extra["unit"]]}
    return {"legend": legend, "tooltip": {"mode": "multi", "sort": "desc"}}, custom


def _stat(extra: Json) -> tuple[Json, Json]:
    return {
        "colorMode": "background" if extra.get("limits") else "value",
        "graphMode": "area" if extra.get("trend") else "none",
        "justifyMode": "auto",
        "orientation": "auto",
        "reduceOptions": _LAST,
        "textMode": "auto",
        "wideLayout": True,
    }, {}


def _bargauge(_: Json) -> tuple[Json, Json]:
    return {
        "displayMode": "basic",
        "orientation": "horizontal",
        "reduceOptions": _LAST,
        "showUnfilled": True,
        "valueMode": "color",
        "namePlacement": "auto",
        "sizing": "auto",
        "maxVizHeight": 40,
        "minVizHeight": 12,
        "minVizWidth": 8,
    }, {}


def _gauge(_: Json) -> tuple[Json, Json]:
    return {
        "minVizHeight": 75,
        "minVizWidth": 75,
        "orientation": "auto",
        "reduceOptions": _LAST,
        "showThresholdLabels": False,
        "showThresholdMarkers": True,
        "sizing": "auto",
    }, {}


def _heatmap(extra: Json) -> tuple[Json, Json]:
    custom = {"hideFrom": {"legend": False, "tooltip": False, "viz": False}, "scaleDistribution": {"type": "linear"}}
    return {
        "calculate": False,
        "cellGap": 1,
        "cellValues": {"unit": extra["unit"]},
        "color": {
            "mode": "scheme", "scheme": "Viridis", "fill": "dark-orange", "reverse": False,
            "steps": 64, "exponent": 0.5, "scale": "exponential",
            "min": 0, **({"max": extra["max"]} if "max" in extra else {}),
        },
        "exemplars": {"color": "rgba(255,0,255,0.7)"},
        "filterValues": {"le": -1e9},
        "legend": {"show": True},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "tooltip": {"mode": "single", "showColorScale": False, "yHistogram": False},
        "yAxis": {"axisPlacement": "left", "reverse": True},
    }, custom  # fmt: skip


def _states(_: Json) -> tuple[Json, Json]:
    return {
        "alignValue": "left",
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
        "mergeValues": True,
        "rowHeight": 0.85,
        "showValue": "never",
        "tooltip": {"mode": "single", "sort": "none"},
    }, {"fillOpacity": 80, "lineWidth": 0}


def _table(extra: Json) -> tuple[Json, Json]:
    sort = extra.get("sort", ())
    keys = [sort] if isinstance(sort, str) else sort
    order = [{"desc": not key.startswith("+"), "displayName": key.removeprefix("+")} for key in keys]
    return {
        "cellHeight": "sm",
        "footer": {"countRows": False, "enablePagination": False, "fields": "", "reducer": ["sum"], "show": False},
        "showHeader": True,
        "sortBy": order,
    }, {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": True, "inspect": False, "minWidth": 70}


LOOKS = {
    "timeseries": _timeseries, "stat": _stat, "bargauge": _bargauge, "gauge": _gauge, "heatmap": _heatmap,
    "state-timeline": _states, "table": _table,
}  # fmt: skip


def thresholds(steps: tuple[tuple[str, float | None], ...]) -> Json:
    """Return steps as Grafana reads them: the base has the value null, which is not the text "null"."""
    return {"mode": "absolute", "steps": [{"color": color, "value": value} for color, value in steps]}


def coloring(look: str, limits: bool) -> Json:
    """Return the rule by which values get their colour."""
    if look == "timeseries":
        return {"mode": "palette-classic"}
    return {"mode": "thresholds"} if limits or look != "stat" else {"mode": "fixed", "fixedColor": "text"}


NOTHING: Json = {
    "type": "special",
    "options": {"match": "null+nan", "result": {"text": "-", "color": "transparent", "index": 9}},
}
"""An empty cell of a table has no colour: absent is neither good nor bad."""


OPEN: Json = {"type": "regex", "options": {"pattern": ".+", "result": {"text": "open", "index": 0}}}
"""Any text is shown as `open`: what a link leads to is more than what it is called."""


def texts_of(texts: dict[str, str]) -> Json:
    """Return the texts that are shown in place of values."""
    shown = {value: {"text": text, "index": index} for index, (value, text) in enumerate(texts.items())}
    return {"type": "value", "options": shown}


def override(of: str, properties: Json, by: str = "byName") -> Json:
    """Return properties of the columns or series of this name, which is a column's header."""
    listed = [{"id": key, "value": value} for key, value in properties.items()]
    return {"matcher": {"id": by, "options": of}, "properties": listed}


def data_link(title: str, url: str) -> Json:
    """Return a link of a value."""
    return {"title": title, "url": url, "targetBlank": False}


SCHEMA_VERSION = 41
_TOP = ("annotations", "description", "editable", "graphTooltip", "links", "panels", "refresh", "schemaVersion",
        "tags", "templating", "time", "timepicker", "timezone", "title", "uid", "version")  # fmt: skip
_VARIABLE = ("allValue", "datasource", "hide", "includeAll", "label", "multi", "name", "query", "refresh", "regex",
             "sort", "type")  # fmt: skip


def fix_dashboard(dashboard: Any) -> Json:
    """Return the dashboard as JSON."""
    raw = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
    made = {key: raw[key] for key in _TOP}
    made["schemaVersion"] = SCHEMA_VERSION
    made["timepicker"] = {}
    made["templating"] = {"list": [_variable(each) for each in raw["templating"]["list"]]}
    return made


def _variable(raw: Json) -> Json:
    made = {key: raw[key] for key in _VARIABLE if raw[key] is not None}
    if raw["type"] == "query":
        made["definition"] = raw["query"]
        made["query"] = {"query": raw["query"], "refId": "PrometheusVariableQueryEditor-VariableQuery", "qryType": 5}
    made["options"] = []
    made["current"] = {"text": ["All"], "value": ["$__all"]} if raw["includeAll"] else {}
    made["regex"] = raw["regex"] or ""
    return made
