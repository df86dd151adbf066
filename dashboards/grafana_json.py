"""What current Grafana reads and grafanalib 0.7.1 does not write.

Boards are made of grafanalib's classes. Here is what its panels lack, for their `extraJson`; what it has no class for:
thresholds with a base, field overrides, mappings of absent values, annotations; and `finished`, which leaves out the
keys that Grafana no longer reads. No other module handles this.
"""

import json
from typing import Any

from grafanalib import core
from grafanalib._gen import DashboardEncoder

from dashboards.alert_thresholds import Steps

Json = dict[str, Any]
PLUGIN_VERSION = "12.0.0"
SCHEMA_VERSION = 41
NATURAL_ORDER = 7
"""The order of a variable's values in which node2 is before node10."""
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}

LAST: Json = {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
BY_THRESHOLDS: Json = {"mode": "thresholds"}


def extra(no_value: str, options: Json | None = None, **defaults: Any) -> Json:
    """Return the `extraJson` of a panel: the text in place of series, further options and defaults of its fields."""
    fields = {"noValue": no_value, **defaults}
    return {"pluginVersion": PLUGIN_VERSION, "options": options or {}, "fieldConfig": {"defaults": fields}}


def heatmap_options(unit: str, limit: float | None) -> Json:
    """Return the options of a heatmap, which grafanalib knows only as they were before Grafana 9."""
    return {
        "calculate": False,
        "cellValues": {"unit": unit},
        "color": {
            "mode": "scheme",
            "scheme": "Viridis",
            "fill": "dark-orange",
            "steps": 64,
            "scale": "exponential",
            "exponent": 0.5,
            "min": 0,
            "max": limit,
        },
        "filterValues": {"le": -1e9},
        "rowsFrame": {"layout": "auto"},
        "showValue": "never",
        "yAxis": {"axisPlacement": "left", "reverse": True},
    }


def threshold_steps(limits: Steps) -> list[Json]:
    """Return steps of thresholds. The base has the value null; grafanalib's Threshold writes the text "null"."""
    return [{"color": color, "value": value} for color, value in limits or (("green", None),)]


def override(of: str, properties: Json, by: str = "byName") -> Json:
    """Return properties of the columns or series of this name, which is a column's header."""
    listed = [{"id": key, "value": value} for key, value in properties.items()]
    return {"matcher": {"id": by, "options": of}, "properties": listed}


def absent_as(text: str, color: str) -> Json:
    """Return the mapping of absent values to a text. Mappings are ordered by their index: it is the last."""
    result = {"text": text, "color": color, "index": 9}
    return {"type": "special", "options": {"match": "null+nan", "result": result}}


def any_text_as(text: str) -> Json:
    """Return the mapping of every text to this one."""
    return {"type": "regex", "options": {"pattern": ".+", "result": {"text": text, "index": 0}}}


GRAFANA_ANNOTATIONS: Json = {
    "builtIn": 1,
    "datasource": {"type": "grafana", "uid": "-- Grafana --"},
    "enable": True,
    "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)",
    "name": "Annotations & Alerts",
    "type": "dashboard",
}
"""Grafana's own annotations, which it would add itself to a board without them."""


def alert_annotation(name: str, expr: str, *, shown: bool) -> Json:
    """Return annotations with the time of alerts."""
    return {
        "name": name,
        "datasource": SOURCE,
        "enable": shown,
        "hide": False,
        "iconColor": "red",
        "expr": expr,
        "step": "60s",
        "titleFormat": "{{alertname}}",
        "textFormat": "{{severity}} {{instance}} {{rack}} {{gpu}} {{device}} {{job_id}}",
        "tagKeys": "severity",
        "useValueForTime": False,
    }


_DASHBOARD = (
    "annotations description editable graphTooltip links refresh schemaVersion tags time timezone title uid version"
)
_ROW = "collapsed gridPos id title type"
_PANEL = "datasource description gridPos id options pluginVersion title transformations transparent type"
_FIELDS = "color custom decimals mappings max min noValue thresholds unit"
_TARGET = "datasource expr format instant legendFormat refId"
_VARIABLE = "allValue datasource hide includeAll label multi name options query refresh sort type"
_OLD_OPTIONS = ("fieldOptions", "showThresholdLabels", "showThresholdMarkers")
"""Options of grafanalib's BarGauge as they were before Grafana 7."""


def finished(dashboard: core.Dashboard) -> Json:
    """Return the dashboard as JSON, with the keys that Grafana reads."""
    raw = _without_absent(json.loads(json.dumps(dashboard, cls=DashboardEncoder)))
    return {
        **_only(_DASHBOARD, raw),
        "panels": [_panel(panel) for panel in raw["panels"]],
        "templating": {"list": [_variable(variable) for variable in raw["templating"]["list"]]},
        "timepicker": {},
    }


def _only(names: str, raw: Json) -> Json:
    return {name: raw[name] for name in names.split() if name in raw}


def _without_absent(value: Any) -> Any:
    """Return the value without nulls, but for the value of a threshold's base, and without colours that are ""."""
    if isinstance(value, list):
        return [_without_absent(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_absent(inner)
        for key, inner in value.items()
        if (inner is not None or key == "value") and (key, inner) != ("color", "")
    }


def _panel(raw: Json) -> Json:
    if raw["type"] == "row":
        return {**_only(_ROW, raw), "panels": [_panel(panel) for panel in raw["panels"]]}
    panel = _only(_PANEL, raw)
    for option in _OLD_OPTIONS:
        panel["options"].pop(option, None)
    fields = _only(_FIELDS, raw["fieldConfig"]["defaults"])
    if raw["type"] == "table":
        del fields["custom"]["displayMode"]
    panel["fieldConfig"] = {"defaults": fields, "overrides": raw["fieldConfig"].get("overrides", [])}
    panel["targets"] = [
        {**_only(_TARGET, target), "range": not target["instant"], "editorMode": "code"} for target in raw["targets"]
    ]
    return panel


def _variable(raw: Json) -> Json:
    variable = _only(_VARIABLE, raw) | {"current": {}, "regex": ""}
    if raw["includeAll"]:
        variable["current"] = {"text": ["All"], "value": ["$__all"]}
    if raw["type"] == "query":
        variable["definition"] = raw["query"]
        variable["query"] = {
            "query": raw["query"],
            "refId": "PrometheusVariableQueryEditor-VariableQuery",
            "qryType": 5,
        }
    return variable
