"""A dashboard: place panels on the grid, narrow their queries by the board's variables, and link boards.

`to_json_data` is all that grafanalib's own commands need of a dashboard.
"""

from grafanalib import core

from dashboards import grafana_json
from dashboards.grafana_json import NATURAL_ORDER, SCHEMA_VERSION, SOURCE, Json, override
from dashboards.queries import ACTIVE_ALERTS, alerts_of_job, legend_for, narrowed

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


def _variable(name: str, title: str, query: str, *, many: bool) -> core.Template:
    return core.Template(
        name=name,
        label=title,
        query=query,
        dataSource=SOURCE,
        multi=many,
        includeAll=many,
        allValue=".*" if many else None,
        refresh=core.REFRESH_ON_TIME_RANGE_CHANGE,
        sort=NATURAL_ORDER,
    )


RACKS_QUERY = 'label_values(coldplate_rack_nodes_expected{cluster=~"$cluster"}, rack)'
NODES_QUERY = 'label_values(coldplate_build_info{cluster=~"$cluster"}, instance)'
JOBS_QUERY = 'label_values(coldplate_gpu_job_info{cluster=~"$cluster", job_id!=""}, job_id)'
SOURCES = core.Template(name="datasource", type="datasource", query="prometheus", label="Data source")
CLUSTERS = _variable("cluster", "Cluster", "label_values(coldplate_build_info, cluster)", many=True)
RACKS = _variable("rack", "Rack", RACKS_QUERY, many=True)
RACK = _variable("rack", "Rack", RACKS_QUERY, many=False)
NODES = _variable("node", "Node", NODES_QUERY, many=True)
NODE = _variable("node", "Node", NODES_QUERY, many=False)
GPUS = _variable("gpu", "GPU", 'label_values(coldplate_gpu_up{instance="$node"}, gpu)', many=True)
JOB = _variable("job", "Job", JOBS_QUERY, many=False)

VARIABLES = {
    "fleet": {"cluster": CLUSTERS, "rack": RACKS},
    "rack": {"cluster": CLUSTERS, "rack": RACK},
    "node": {"cluster": CLUSTERS, "instance": NODE, "gpu": GPUS},
    "job": {"cluster": CLUSTERS, "job_id": JOB},
    "fabric": {"cluster": CLUSTERS, "instance": NODES},
    "agents": {"cluster": CLUSTERS, "instance": NODES},
}
"""The variables of each board, by the label that each narrows."""


def link(source: str, target: str, **values: str) -> str:
    """Return the address of a board with the variables of both, never many values to a board that takes one.

    `values` take a variable's place.
    """
    takes_many = {each.name: each.multi for each in VARIABLES[target].values() if each.name not in values}
    own = [each for each in VARIABLES[source].values() if each.name in takes_many]
    kept = [each.name for each in own if takes_many[each.name] or not each.multi]
    parts = ["${datasource:queryparam}", *(f"${{{name}:queryparam}}" for name in kept)]
    parts += [f"var-{name}={value}" for name, value in values.items()]
    return f"/d/{UID.format(target)}?{'&'.join(parts)}"


COLUMNS = 24


class Board:
    """One dashboard. Panels flow from left to right; `row` begins a new line under a heading.

    `profile` is the smallest `metrics.profile` whose pages have everything that it shows.
    """

    def __init__(self, name: str, description: str, *, profile: str = "default") -> None:
        self.name = name
        self.profile = profile
        self._description = f"{description} Needs metrics.profile {profile}, or more, on every node."
        self._variables = VARIABLES[name]
        self._matchers = {
            label: f'{label}=~"${variable.name}"' if variable.multi else f'{label}="${variable.name}"'
            for label, variable in self._variables.items()
        }
        single = (label for label, variable in self._variables.items() if not variable.multi)
        self._pinned = frozenset(("cluster", *single))
        self._panels: list[core.Panel] = []
        """Rows and panels. Those of a collapsed row are inside it: Grafana asks nothing for them."""
        self._beside = self._panels
        self._x = self._y = self._tallest = 0

    def row(self, title: str, *, collapsed: bool = False) -> None:
        """Begin a new row under a heading; a collapsed one is for what most sites do not have."""
        self._break()
        row = core.RowPanel(title=title, collapsed=collapsed, gridPos=core.GridPos(w=COLUMNS, h=1, x=0, y=self._y))
        self._panels.append(row)
        self._beside = row.panels if collapsed else self._panels
        self._y += 1

    def add(self, *panels: core.Panel) -> None:
        """Put panels beside each other, and on the next line when a line is full."""
        for panel in panels:
            place = panel.gridPos
            if self._x + place.w > COLUMNS:
                self._break()
            place.x, place.y = self._x, self._y
            self._x += place.w
            self._tallest = max(self._tallest, place.h)
            for target in panel.targets:
                if target.legendFormat is None:
                    target.legendFormat = legend_for(target.expr, panel.title, self._pinned)
                target.expr = narrowed(target.expr, self._matchers)
            if isinstance(panel, core.Table):
                panel.overrides += self._links(panel)
            self._beside.append(panel)

    def _break(self) -> None:
        self._y += self._tallest
        self._x = self._tallest = 0

    def to_json_data(self) -> Json:
        """Return the finished dashboard."""
        dashboard = core.Dashboard(
            title=f"coldplate / {BOARDS[self.name]}",
            uid=UID.format(self.name),
            description=self._description,
            schemaVersion=SCHEMA_VERSION,
            tags=["coldplate", "gpu"],
            timezone="browser",
            time=core.Time("now-1h", "now"),
            refresh="30s",
            graphTooltip=core.GRAPH_TOOLTIP_MODE_SHARED_CROSSHAIR,
            templating=core.Templating([SOURCES, *self._variables.values()]),
            annotations=core.Annotations([grafana_json.GRAFANA_ANNOTATIONS, *self._alert_annotations()]),
            links=[
                core.DashboardLink(type="link", title=title, uri=link(self.name, board), icon="dashboard")
                for board, title in BOARDS.items()
                if board != self.name
            ],
            panels=self._panels,
        )
        return grafana_json.finished(dashboard.auto_panel_ids())

    def _links(self, panel: core.Table) -> list[Json]:
        """Return links of the columns of a table: a node, rack or job links to its board."""
        headers = panel.transformations[-1]["options"]["renameByName"]
        links = []
        for label, board in BOARD_OF.items():
            if label not in headers or board == self.name:
                continue
            values = {
                variable.name: f'${{__data.fields["{headers[known]}"]}}'
                for known, variable in VARIABLES[board].items()
                if known in headers and not variable.multi  # an alert without a GPU would select none
            }
            url = link(self.name, board, **values) + "&${__url_time_range}"
            links.append(override(headers[label], {"links": [core.DataLink(f"Open {BOARDS[board]}", url)]}))
        return links

    def _alert_annotations(self) -> list[Json]:
        active, pending = ACTIVE_ALERTS, 'coldplate_alert{alertstate="pending"}'
        if self.name == "rack":
            active, pending = f"{ACTIVE_ALERTS}{{{self._matchers['rack']}}}", ""
        if self.name == "job":
            active, pending = alerts_of_job("15m"), ""
        annotations = [grafana_json.alert_annotation("Alerts", narrowed(active, self._matchers), shown=True)]
        if pending:
            annotations.append(
                grafana_json.alert_annotation("Pending alerts", narrowed(pending, self._matchers), shown=False)
            )
        return annotations
