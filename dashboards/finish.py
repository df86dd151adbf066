"""Corrects what grafanalib 0.7.1 writes, so that current Grafana reads it as intended.

grafanalib writes schema version 12, options of panels from before Grafana 9, empty refIds, texts where null is
meant, and keys that nothing reads any more. This is the only place that knows about it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from string import ascii_uppercase
from typing import Any

from grafanalib._gen import DashboardEncoder

from dashboards.panel_options import PLUGIN_VERSION, Json

SCHEMA_VERSION = 41
_TOP = ("annotations", "description", "editable", "graphTooltip", "links", "panels", "refresh", "schemaVersion",
        "tags", "templating", "time", "timepicker", "timezone", "title", "uid", "version")  # fmt: skip
_PANEL = ("datasource", "description", "gridPos", "id", "targets", "title", "transformations", "transparent", "type")
_ROW = ("collapsed", "gridPos", "id", "panels", "title", "type")
_TARGET = ("expr", "format", "instant", "legendFormat")
_VARIABLE = ("allValue", "datasource", "hide", "includeAll", "label", "multi", "name", "query", "refresh", "regex",
             "sort", "type")  # fmt: skip


def finished(dashboard: Any, dressed: Mapping[int, Json]) -> Json:
    """The dashboard as JSON; `dressed` has options and field configuration of each panel by its id."""
    raw = json.loads(json.dumps(dashboard.to_json_data(), cls=DashboardEncoder))
    made = {key: raw[key] for key in _TOP}
    made["schemaVersion"] = SCHEMA_VERSION
    made["timepicker"] = {}
    made["panels"] = [_panel(each, dressed) for each in raw["panels"]]
    made["templating"] = {"list": [_variable(each) for each in raw["templating"]["list"]]}
    return made


def _panel(raw: Json, dressed: Mapping[int, Json]) -> Json:
    if raw["type"] == "row":
        return _only(raw, _ROW)
    made = _only(raw, _PANEL)
    made.update(dressed[raw["id"]])
    made["pluginVersion"] = PLUGIN_VERSION
    made["targets"] = [_target(letter, each) for letter, each in zip(ascii_uppercase, raw["targets"], strict=False)]
    if not made["targets"]:
        del made["targets"], made["datasource"]
    else:
        for target in made["targets"]:
            target["datasource"] = made["datasource"]
    return made


def _target(letter: str, raw: Json) -> Json:
    made = _only(raw, _TARGET)
    return {**made, "refId": letter, "range": not raw["instant"], "editorMode": "code"}


def _variable(raw: Json) -> Json:
    made = _only(raw, _VARIABLE)
    if raw["type"] == "query":
        made["definition"] = raw["query"]
        made["query"] = {"query": raw["query"], "refId": "PrometheusVariableQueryEditor-VariableQuery", "qryType": 5}
    made["options"] = []
    made["current"] = {"text": ["All"], "value": ["$__all"]} if raw["includeAll"] else {}
    made["regex"] = raw["regex"] or ""
    return made


def _only(raw: Json, keys: tuple[str, ...]) -> Json:
    return {key: raw[key] for key in keys if raw.get(key) is not None}
