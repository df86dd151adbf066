"""A dashboard: place panels on the grid, narrow their queries by the board's variables, and make what Grafana reads.

Panels are written as current Grafana reads them. grafanalib makes the rest of the JSON, and `dashboards.grafana_json`
corrects it. `to_json_data` is all that grafanalib's own commands need of a dashboard.
"""

from string import ascii_uppercase
from typing import Any

from grafanalib import core
from msgspec import Struct

from dashboards import grafana_json
from dashboards.grafana_json import Json, override
from dashboards.panels import DashboardPanel, Mapped
from dashboards.queries import ACTIVE_ALERTS, PanelQuery, alerts_of_job, legend_for, narrowed

BOARDS = {
    "fleet": "Fleet",
    "rack": "Rack",
    "node": "Node",
    "job": "Job",
    "fabric": "Fabric",
    "agents": "coldplate itself",
}
"""The boards in the order in which they are linked, with their titles."""
BOARD_OF = {"instance": "node", "rack": "rack", "job_id": "job"}
"""The board about the value of a label."""
UID = "coldplate-{}"


class BoardVariable(Struct, frozen=True):
    """A variable that is filled by a query about one label."""

    name: str
    label: str
    title: str
    query: str
    many: bool

    @property
    def matcher(self) -> str:
        return f'{self.label}=~"${self.name}"' if self.many else f'{self.label}="${self.name}"'


CLUSTER = BoardVariable("cluster", "cluster", "Cluster", "label_values(coldplate_build_info, cluster)", many=True)
RACKS_QUERY = 'label_values(coldplate_rack_nodes_expected{cluster=~"$cluster"}, rack)'
RACKS = BoardVariable("rack", "rack", "Rack", RACKS_QUERY, many=True)
RACK = BoardVariable("rack", "rack", "Rack", RACKS_QUERY, many=False)
NODES_QUERY = 'label_values(coldplate_build_info{cluster=~"$cluster"}, instance)'
NODES = BoardVariable("node", "instance", "Node", NODES_QUERY, many=True)
NODE = BoardVariable("node", "instance", "Node", NODES_QUERY, many=False)
GPU = BoardVariable("gpu", "gpu", "GPU", 'label_values(coldplate_gpu_up{instance="$node"}, gpu)', many=True)
JOB_QUERY = 'label_values(coldplate_gpu_job_info{cluster=~"$cluster", job_id!=""}, job_id)'
JOB = BoardVariable("job", "job_id", "Job", JOB_QUERY, many=False)

VARIABLES = {
    "fleet": (CLUSTER, RACKS),
    "rack": (CLUSTER, RACK),
    "node": (CLUSTER, NODE, GPU),
    "job": (CLUSTER, JOB),
    "fabric": (CLUSTER, NODES),
    "agents": (CLUSTER, NODES),
}


def link(source: str, target: str, **values: str) -> str:
    """Return the address of a board with the variables of both, never many values to a board that takes one.

    `values` take a variable's place.
    """
    takes_many = {each.name: each.many for each in VARIABLES[target] if each.name not in values}
    own = [each for each in VARIABLES[source] if each.name in takes_many]
    kept = [each.name for each in own if takes_many[each.name] or not each.many]
    parts = ["${datasource:queryparam}", *(f"${{{name}:queryparam}}" for name in kept)]
    parts += [f"var-{name}={value}" for name, value in values.items()]
    return f"/d/{UID.format(target)}?{'&'.join(parts)}"


COLUMNS = 24
NATURAL_ORDER = 7  # node2 before node10; grafanalib has no name for it
SOURCE: Json = {"type": "prometheus", "uid": "${datasource}"}
_ALERT_TEXT = "{{severity}} {{instance}} {{rack}} {{gpu}} {{device}} {{job_id}}"


class Board:
    """One dashboard. Panels flow from left to right; `row` begins a new line under a heading.

    `profile` is the smallest `metrics.profile` whose pages have everything that it shows.
    """

    def __init__(self, name: str, description: str, *, profile: str = "default") -> None:
        self.name = name
        self.profile = profile
        self._description = f"{description} Needs metrics.profile {profile}, or more, on every node."
        self._variables = VARIABLES[name]
        self._matchers = {each.label: each.matcher for each in self._variables}
        self._pinned = frozenset(each.label for each in self._variables if not each.many) | {"cluster"}
        self._panels: list[Json] = []
        """Rows and panels. Those of a collapsed row are inside it: Grafana asks nothing for them."""
        self._beside = self._panels
        self._count = 0
        self._x = self._y = self._tallest = 0

    def row(self, title: str, *, collapsed: bool = False) -> None:
        """Begin a new row under a heading; a collapsed one is for what most sites do not have."""
        self._break()
        row: Json = {"type": "row", "title": title, "panels": [], "collapsed": collapsed}
        self._place(row, self._panels, width=COLUMNS, height=1)
        self._beside = row["panels"] if collapsed else self._panels
        self._y += 1

    def add(self, *panels: DashboardPanel) -> None:
        """Put panels beside each other, and on the next line when a line is full."""
        for panel in panels:
            if self._x + panel.width > COLUMNS:
                self._break()
            self._place(self._panel(panel), self._beside, panel.width, panel.height)
            self._x += panel.width
            self._tallest = max(self._tallest, panel.height)

    def _place(self, made: Json, beside: list[Json], width: int, height: int) -> None:
        self._count += 1
        place = {"h": height, "w": width, "x": self._x, "y": self._y}
        beside.append({**made, "id": self._count, "gridPos": place})

    def _break(self) -> None:
        self._y += self._tallest
        self._x = self._tallest = 0

    def to_json_data(self) -> Json:
        """Return the finished dashboard."""
        made = core.Dashboard(
            title=f"coldplate / {BOARDS[self.name]}",
            uid=UID.format(self.name),
            description=self._description,
            tags=["coldplate", "gpu"],
            timezone="browser",
            time=core.Time("now-1h", "now"),
            refresh="30s",
            graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
            templating=core.Templating([_SOURCE_VARIABLE, *map(_variable, self._variables)]),
            annotations=core.Annotations([_GRAFANA_ANNOTATIONS, *self._alert_annotations()]),
            links=[self._board_link(each) for each in BOARDS if each != self.name],
            panels=self._panels,
        )
        return grafana_json.fix_dashboard(made)

    def _panel(self, panel: DashboardPanel) -> Json:
        return {
            "type": panel.look,
            "title": panel.title,
            "description": panel.description,
            "datasource": SOURCE,
            "transparent": False,
            "pluginVersion": grafana_json.PLUGIN_VERSION,
            "targets": [self._target(panel, *each) for each in zip(ascii_uppercase, panel.queries, strict=False)],
            "transformations": _transformations(panel),
            **self._panel_options(panel),
        }

    def _target(self, panel: DashboardPanel, letter: str, query: PanelQuery) -> Json:
        return {
            "refId": letter,
            "datasource": SOURCE,
            "editorMode": "code",
            "expr": narrowed(query.expr, self._matchers),
            "legendFormat": legend_for(query, panel.title, self._pinned),
            "instant": panel.instant,
            "range": not panel.instant,
            "format": "table" if panel.look == "table" else "time_series",
        }

    def _panel_options(self, panel: DashboardPanel) -> Json:
        """Return the panel's options and field configuration."""
        extra = {**panel.extra, "limits": bool(panel.limits), "unit": panel.unit}
        options, custom = grafana_json.LOOKS[panel.look](extra)
        defaults: Json = {
            "unit": panel.unit,
            "color": grafana_json.coloring(panel.look, bool(panel.limits)),
            "thresholds": grafana_json.thresholds(panel.limits or (("green", None),)),
            "mappings": [*_mappings(panel.mapped), *_absence(panel)],
            "custom": custom,
        }
        if panel.none:
            defaults["noValue"] = panel.none
        ends = zip(("min", "max"), panel.span, strict=True)
        defaults.update({key: value for key, value in ends if value is not None})
        if panel.decimals is not None:
            defaults["decimals"] = panel.decimals
        overrides = [*_column_overrides(panel), *self._label_links(panel), *_line_overrides(panel)]
        return {"options": options, "fieldConfig": {"defaults": defaults, "overrides": overrides}}

    def _label_links(self, panel: DashboardPanel) -> list[Json]:
        """Return widths and links of the columns of a table: a node, rack or job links to its board."""
        if panel.look != "table":
            return []
        made = [override(header, {"custom.width": width}) for header, width in _widths(panel).items()]
        for label, header in panel.labels:
            target = BOARD_OF.get(label, self.name)
            if target == self.name:
                continue
            values = {
                each.name: f'${{__data.fields["{shown}"]}}'
                for name, shown in panel.labels
                for each in VARIABLES[target]
                if each.label == name and not each.many  # an alert without a GPU would select none
            }
            url = link(self.name, target, **values) + "&${__url_time_range}"
            made.append(override(header, {"links": [grafana_json.data_link(f"Open {BOARDS[target]}", url)]}))
        for header, texts in panel.texts:
            made.append(override(header, {"mappings": [grafana_json.texts_of(texts)]}))
        if panel.runbook:
            alert = dict(panel.labels)["alertname"]
            address = f'http://${{__value.raw}}/runbooks/${{__data.fields["{alert}"]}}'
            opened = {**grafana_json.data_link("Open the runbook", address), "targetBlank": True}
            made.append(override(panel.runbook, {"links": [opened]}))
            made.append(override(panel.runbook, {"mappings": [grafana_json.OPEN]}))
        return made

    def _board_link(self, target: str) -> Any:
        url = link(self.name, target)
        return core.DashboardLink(type="link", title=BOARDS[target], uri=url, icon="dashboard", keepTime=True)

    def _alert_annotations(self) -> list[Json]:
        active, pending = ACTIVE_ALERTS, 'coldplate_alert{alertstate="pending"}'
        if self.name == "rack":
            active, pending = f"{ACTIVE_ALERTS}{{{self._matchers['rack']}}}", ""
        if self.name == "job":
            active, pending = alerts_of_job("15m"), ""
        made = [_annotation("Alerts", narrowed(active, self._matchers), shown=True)]
        if pending:
            made.append(_annotation("Pending alerts", narrowed(pending, self._matchers), shown=False))
        return made


_SOURCE_VARIABLE = core.Template(name="datasource", type="datasource", query="prometheus", label="Data source")
_GRAFANA_ANNOTATIONS: Json = {
    "builtIn": 1, "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "enable": True, "hide": True,
    "iconColor": "rgba(0, 211, 255, 1)", "name": "Annotations & Alerts", "type": "dashboard",
}  # fmt: skip
"""Grafana's own annotations, which it would add itself to a board without them."""


def _annotation(name: str, expr: str, *, shown: bool) -> Json:
    return {
        "name": name, "datasource": SOURCE, "enable": shown, "hide": False, "iconColor": "red", "expr": expr,
        "step": "60s", "titleFormat": "{{alertname}}", "textFormat": _ALERT_TEXT, "tagKeys": "severity",
        "useValueForTime": False,
    }  # fmt: skip


def _variable(variable: BoardVariable) -> Any:
    return core.Template(
        name=variable.name,
        label=variable.title,
        query=variable.query,
        dataSource=SOURCE,
        multi=variable.many,
        includeAll=variable.many,
        allValue=".*" if variable.many else None,
        refresh=core.REFRESH_ON_TIME_RANGE_CHANGE,
        sort=NATURAL_ORDER,
    )


_WIDE = {"alertname": 210, "metric": 340, "cluster_uuid": 320, "instance": 150, "equipment": 150, "part": 150}
"""Columns with longer texts than the rest, and their widths in pixels."""


_SCREEN = 1600
"""The width of screen in pixels for which columns are laid out."""
_LEAST = {"dateTimeFromNow": 150}
"""Pixels that values need, by unit, if that is more than headers need."""


def _needed(header: str, unit: str) -> int:
    """Return the pixels of a column whose header is not cut: its letters, the sort sign, and the padding."""
    return max(_LEAST.get(unit, 70), 8 * len(header) + 36)


def _widths(panel: DashboardPanel) -> dict[str, int]:
    """Return widths of the columns that need more than their share, or have longer texts; the others share the rest."""
    needs = {shown: _WIDE.get(label, _needed(shown, "")) for label, shown in panel.labels}
    needs |= {column.header: _needed(column.header, column.unit or "") for column in panel.columns}
    fixed = {shown: _WIDE[label] for label, shown in panel.labels if label in _WIDE}
    fixed |= {column.header: needs[column.header] for column in panel.columns if column.first}
    if panel.runbook:  # a table of alerts: what they mean has all the room that the rest leaves
        return {header: need for header, need in needs.items() if header not in dict(panel.texts)}
    room = panel.width * _SCREEN // COLUMNS - 30
    while True:
        left = {header: need for header, need in needs.items() if header not in fixed}
        share = (room - sum(fixed.values())) / max(1, len(left))
        more = {header: need for header, need in left.items() if need > share}
        if not more:
            return fixed
        fixed |= more


def _absence(panel: DashboardPanel) -> list[Json]:
    """Return how a series without a value is shown."""
    if panel.absent == "-":
        return []
    result = {"text": panel.absent, "color": "red", "index": len(panel.mapped)}
    return [{"type": "special", "options": {"match": "null+nan", "result": result}}]


def _mappings(mapped: Mapped) -> list[Json]:
    if not mapped:
        return []
    options = {
        f"{value:g}": {"text": text, "color": color, "index": index}
        for index, (value, text, color) in enumerate(mapped)
    }
    return [{"type": "value", "options": options}]


def _column_overrides(panel: DashboardPanel) -> list[Json]:
    made = []
    for column in panel.columns:
        properties: Json = {"unit": column.unit}
        if column.first:
            properties["custom.align"] = "left"
        if column.decimals is not None:
            properties["decimals"] = column.decimals
        if column.limits:
            properties["thresholds"] = grafana_json.thresholds(column.limits)
        properties["mappings"] = [*_mappings(column.mapped), grafana_json.NOTHING]
        if column.limits or column.mapped:
            cell: Json = {"type": "color-background", "mode": "basic", **({"applyToRow": True} if column.row else {})}
            properties["custom.cellOptions"] = cell
        made.append(override(column.header, properties))
    return made


def _line_overrides(panel: DashboardPanel) -> list[Json]:
    """Return series that are limits, drawn as dashed lines beside what they limit."""
    style: Json = {
        "custom.lineStyle": {"fill": "dash", "dash": [10, 10]},
        "custom.fillOpacity": 0,
        "custom.stacking": {"group": "limits", "mode": "none"},
    }
    made = []
    for line in panel.lines:
        name, color = (line, "red") if isinstance(line, str) else line
        colored = {"mode": "fixed", "fixedColor": color}
        made.append(override(f"/{name}/", {**style, "color": colored}, by="byRegexp"))
    return made


def _transformations(panel: DashboardPanel) -> list[Json]:
    if panel.look != "table":
        return []
    single = len(panel.columns) == 1
    columns = {f"Value #{letter}": each for letter, each in zip(ascii_uppercase, panel.columns, strict=False)}
    if single:
        columns = {"Value": panel.columns[0], **columns}
    values = {name: each.header for name, each in columns.items()}
    first = [name for name, each in columns.items() if each.first]
    order = [*first, *(label for label, _ in panel.labels), *(name for name in values if name not in first)]
    organize = {
        "excludeByName": {"Time": True},
        "includeByName": {},
        "indexByName": {name: number for number, name in enumerate(order)},
        "renameByName": {**dict(panel.labels), **values},
    }
    # Rows are joined by their labels: the times are removed, since some servers give a different one for each query.
    timeless = {"id": "filterFieldsByName", "options": {"exclude": {"names": ["Time"]}}}
    merge = [] if single else [timeless, {"id": "merge", "options": {}}]
    return [*merge, {"id": "organize", "options": organize}]
