"""What every dashboard must be for Grafana to show it as it was meant, and what its harder queries answer."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from agent.catalogue import BY_NAME
from agent.model import Node, Rack, Unit
from alerts.promql.syntax import parse
from alerts.promql.syntax.tree import VectorSelector
from dashboards.alert_thresholds import PACK, alerts, recorded_series
from dashboards.queries import ACTIVE_ALERTS, BREACH, FORECAST, THROTTLED
from tests.dashboards.conftest import NAMES, Dashboard, filled, load
from tests.dashboards.rig import promtool

KNOWN = {"up"}
MODERN = {"timeseries", "stat", "bargauge", "gauge", "heatmap", "state-timeline", "table", "row"}
ANY = dict.fromkeys(("cluster", "rack", "node", "gpu", "job"), "x")

every = pytest.mark.parametrize("board", NAMES, indirect=True)


@pytest.fixture
def board(request: pytest.FixtureRequest) -> Dashboard:
    return load()[request.param]


def _names(tree: Any) -> Iterator[str]:
    """Every series that a query reads, from its syntax tree."""
    if isinstance(tree, VectorSelector):
        yield tree.name
    elif isinstance(tree, tuple):
        for each in tree:
            yield from _names(each)
    elif isinstance(tree, Struct):
        for name in tree.__struct_fields__:
            yield from _names(getattr(tree, name))


def dicts(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping of a JSON document."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from dicts(inner)


@every
def test_panels_have_places_of_their_own_and_fill_the_width(board: Dashboard) -> None:
    """A line that ends early, but for the last of a row, looks like a panel that failed to load."""
    panels = list(board.panels(rows=True))
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], int] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"], f"{panel['title']} overlaps"
    widths: dict[int, int] = {}
    for panel in board.panels():
        widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert {y: width for y, width in widths.items() if width != 24} == {}


@every
def test_every_panel_is_one_that_grafana_shows_and_says_what_good_looks_like(board: Dashboard) -> None:
    assert {panel["type"] for panel in board.panels(rows=True)} <= MODERN
    assert board.json["schemaVersion"] >= 39
    titles = [(panel["title"], panel["type"]) for panel in board.panels()]
    assert len(set(titles)) == len(titles)
    for panel in board.panels():
        title, defaults = panel["title"], panel["fieldConfig"]["defaults"]
        assert title
        assert defaults["unit"], title
        assert len(defaults.get("noValue", "")) > 5, f"{title}: Grafana's own words are No data, good news or not"
        meaning, _, good = panel["description"].partition("**Good:** ")
        assert len(meaning.strip()) > 10, title
        assert re.fullmatch(r"\S.*\.", good), title
        if panel["type"] == "timeseries":
            stacked = defaults["custom"]["stacking"]["mode"] == "normal"
            assert defaults["custom"]["fillOpacity"] == 0 or stacked, f"{title}: lines that lie on each other"


@every
def test_a_legend_has_every_label_by_which_the_series_of_a_metric_differ(board: Dashboard) -> None:
    """A query may add series up instead: two lines of one name cannot be told apart."""
    single = {"node": "instance", "rack": "rack"}.get(board.uid.removeprefix("coldplate-"), "")
    for panel in board.panels():
        for target in panel["targets"]:
            alone = re.fullmatch(r"(?:topk\(\d+, )?(coldplate_\w+)\{[^}]*\}\)?", target["expr"])
            if alone is not None and panel["type"] not in ("stat", "table"):
                labels = {"instance", *BY_NAME[alone[1]].label_names} - {"uuid", "mig_uuid", single}
                if BY_NAME[alone[1]].entity is Rack:
                    labels -= {"instance"}
                assert labels <= set(re.findall(r"\w+", target["legendFormat"])), panel["title"]


@every
def test_targets_read_series_that_exist_narrowed_by_the_boards_variables(board: Dashboard) -> None:
    """A board for one node, rack or job never shows another's series: each query names that variable."""
    for panel in board.panels():
        ids = [target["refId"] for target in panel["targets"]]
        assert "" not in ids
        assert len(set(ids)) == len(ids)
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert target["instant"] != target["range"]
            assert "{{device}} {{port}}" not in target["legendFormat"], f"{panel['title']}: a port is mlx5_0/1"
            found = (
                re.findall(r"increase\((coldplate_\w+)", target["expr"]) if panel["type"] in ("stat", "table") else ()
            )
            for name in found:  # increase() reckons beyond the samples: 12 errors are 12.1
                assert BY_NAME[name].unit is not Unit.NONE or "round(" in target["expr"], panel["title"]
    single = [name for name, each in board.variables().items() if each["type"] == "query" and not each["multi"]]
    for where, expr in board.queries():
        read = set(_names(parse(filled(expr, ANY))))
        assert read, where
        assert not {
            each for each in read if each not in BY_NAME and each not in recorded_series() and each not in KNOWN
        }, where
        assert all(f'"${name}"' in expr for name in single), where
        assert "_timestamp_seconds" not in expr or "* 1000" in expr, f"{where}: Grafana reads milliseconds"
    exprs = [each["expr"] for each in board.json["annotations"]["list"] if "expr" in each]
    assert any(f"{ACTIVE_ALERTS}{{" in expr for expr in exprs)
    assert board.uid in {"coldplate-rack", "coldplate-job"} or any("coldplate_alert{" in expr for expr in exprs)


@every
def test_tables_have_units_and_links_and_alerts_are_ordered_by_severity(board: Dashboard) -> None:
    """Grafana joins rows by what all queries tell: each has to tell of every row, also where its metric is absent."""
    for panel in board.panels():
        if panel["type"] != "table":
            continue
        title, overrides = panel["title"], panel["fieldConfig"]["overrides"]
        names = organized(panel)["renameByName"]
        shown = set(names.values())
        values = {header for name, header in names.items() if name.startswith("Value")}
        assert values == with_property(overrides, "unit").keys(), title
        assert {each["matcher"]["options"] for each in overrides} <= shown, title
        assert set(re.findall(r'__data\.fields\[\\"([^"\\]+)\\"\]', json.dumps(panel))) <= shown, title
        if len(panel["targets"]) > 1:
            assert all(re.search(r" or (.+) \* (NaN|0)$", target["expr"]) for target in panel["targets"]), title
        # On a screen of 1600 pixels every column has room for its header, and the columns for all of the panel.
        fixed = with_property(overrides, "custom.width")
        room = panel["gridPos"]["w"] / 24 * 1600 - 16
        assert sum(fixed.values()) <= room, title
        share = (room - sum(fixed.values())) / max(1, len(shown - set(fixed)))
        for header in shown:
            assert fixed.get(header, share) >= 8 * len(header) + 20, f"{title}: {header}"
    for panel in board.panels():
        exprs = " ".join(target["expr"] for target in panel["targets"])
        if panel["type"] == "table" and (ACTIVE_ALERTS in exprs or "coldplate_alert{" in exprs):
            assert panel["options"]["sortBy"] == [{"desc": True, "displayName": "Severity"}], panel["title"]
            options = organized(panel)
            assert "severity" not in options["renameByName"], panel["title"]
            assert options["renameByName"]["Value"] == "Severity"
            # As a number: by its name, critical comes before info and after warning, or the other way round.
            assert options["indexByName"]["Value"] == 0
            ranks = re.findall(r'severity(=|!~)"([\w|]+)"} \* (\d)', exprs)
            assert ranks == [("=", "critical", "3"), ("=", "warning", "2"), ("!~", "critical|warning", "1")]


def organized(panel: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = next(each for each in panel["transformations"] if each["id"] == "organize")["options"]
    return options


def with_property(overrides: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return a property's value by column."""
    return {
        each["matcher"]["options"]: one["value"]
        for each in overrides
        for one in each["properties"]
        if one["id"] == name
    }


def test_an_explained_alert_has_its_meaning_and_a_link_to_its_runbook() -> None:
    (panel,) = (each for each in load()["fleet"].panels() if each["title"] == "Firing alerts")
    overrides = panel["fieldConfig"]["overrides"]
    texts = with_property(overrides, "mappings")["Summary"][0]["options"]
    assert texts["GpuLost"]["text"].startswith("The GPU does not answer")
    assert texts.keys() == alerts()
    (link,) = with_property(overrides, "links")["Runbook"]
    assert link["url"] == 'http://${__value.raw}/runbooks/${__data.fields["Alert"]}'


@every
def test_the_first_threshold_has_no_value_and_the_others_rise(board: Dashboard) -> None:
    found = [each["steps"] for each in dicts(board.json) if "mode" in each and isinstance(each.get("steps"), list)]
    assert len(found) > 10
    for steps in found:
        assert steps[0]["value"] is None
        rest = [step["value"] for step in steps[1:]]
        assert rest == sorted(rest)


@every
def test_grafana_chooses_the_resolution_and_only_threshold_bases_are_null(board: Dashboard) -> None:
    """grafanalib's panels ask for 100 points, and its targets for half of the points that there are."""
    for panel in board.panels():
        assert not {"maxDataPoints", "interval"} & panel.keys(), panel["title"]
        for target in panel["targets"]:
            assert not {"intervalFactor", "interval", "step"} & target.keys(), panel["title"]
    assert {key for each in dicts(board.json) for key, value in each.items() if value is None} == {"value"}


@every
def test_every_variable_that_is_used_is_defined(board: Dashboard) -> None:
    ours = set(board.variables())
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(board.json)))
    assert used <= ours
    assert ours <= used | {"datasource"}
    for name, variable in board.variables().items():
        if variable["type"] == "query":
            matched = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert matched, name
            assert variable["query"]["query"] == variable["definition"]
            assert set(_names(parse(filled(matched[1], ANY)))) <= set(BY_NAME)


@every
def test_links_lead_to_boards_that_exist_and_carry_variables_that_these_have(board: Dashboard) -> None:
    by_uid = {each.uid: each for each in load().values()}
    urls = [each["url"] for each in dicts(board.json) if str(each.get("url", "")).startswith("/d/")]
    assert {url.split("?")[0] for url in urls} >= {f"/d/{uid}" for uid in by_uid if uid != board.uid}
    for url in urls:
        assert not re.search(r"var-(gpu|cluster|datasource)=", url), "in a row about a whole node it would be empty"
        target = by_uid[url.split("?")[0].removeprefix("/d/")]
        carried = re.findall(r"\$\{(\w+):queryparam\}", url)
        assert {*carried, *re.findall(r"var-(\w+)=", url)} <= set(target.variables())
        for name in carried:
            several = board.variables()[name].get("multi", False) and not target.variables()[name].get("multi", False)
            assert not several, f"{url}: {name} may have many values here, and has one there"


def test_a_rack_over_budget_is_red_and_every_drawn_limit_is_of_the_rules() -> None:
    """The rack's dashed lines are the levels of RackPowerHigh, whatever the rule file says they are."""
    rules = (PACK / "rack.yml").read_text()
    drawn = re.findall(
        r'rack:power_budget_watts:min\{rack="\$rack"\} \* ([\d.]+)',
        "".join(expr + "\n" for _, expr in load()["rack"].queries()),
    )
    assert sorted(map(float, drawn)) == [0.8, 0.9, 1.0, 1.35]
    assert all(re.search(rf"> {number}\b", rules) for number in drawn)
    (table,) = (each for each in load()["fleet"].panels() if (each["title"], each["type"]) == ("Racks", "table"))
    (stat,) = (each for each in load()["rack"].panels() if each["title"] == "Time to breach")
    column = with_property(table["fieldConfig"]["overrides"], "mappings")["Breach in"]
    for mappings in (column, stat["fieldConfig"]["defaults"]["mappings"]):
        assert mappings[0]["options"]["0"] == {"text": "already over", "color": "red", "index": 0}
    assert with_property(table["fieldConfig"]["overrides"], "unit")["Breach in"] == "s"
    graphs = [panel for panel in load()["rack"].panels() if panel["title"].startswith("Time to breach")]
    assert [panel["fieldConfig"]["defaults"]["unit"] for panel in graphs] == ["s", "s"]


def test_the_fleet_board_reads_recorded_series_over_time() -> None:
    """Over time one series of each node is read at most: those of every GPU are read for one moment."""
    for panel in load()["fleet"].panels():
        for target in panel["targets"]:
            read = [BY_NAME[each] for each in _names(parse(filled(target["expr"], ANY))) if each in BY_NAME]
            raw = [row.name for row in read if row.entity is not Node]
            assert not raw or target["instant"], panel["title"]


@pytest.mark.parametrize(("name", "title"), [("node", "GPUs"), ("job", "Cause")])
def test_all_eight_gpus_fit_and_a_lost_one_is_first(name: str, title: str) -> None:
    (panel,) = (each for each in load()[name].panels() if each["title"] == title)
    assert panel["options"]["sortBy"][0] == {"desc": False, "displayName": "State"}
    rows = 1 + 8
    assert panel["gridPos"]["h"] * 38 - 8 - 40 >= rows * 36
    assert "footer" not in panel["options"], "its pagination hides what does not fit"


SERIES = {
    'rack:time_to_breach_seconds:linear5m{rack="rises"}': "300x8",
    'rack:power_ratio:max{rack="rises"}': "0.9x8",
    'rack:power_watts:mean5s{rack="rises"}': "9000+40x8",
    'rack:time_to_breach_seconds:linear5m{rack="steady"}': "9000x8",
    'rack:power_ratio:max{rack="steady"}': "0.75x8",
    'rack:power_watts:mean5s{rack="steady"}': "7500 7560 7440 7530 7430 7570 7450 7520 7540",
    'rack:power_ratio:max{rack="over"}': "1.12x8",
    'rack:power_ratio:max{rack="falls"}': "0.7x8",
    'rack:time_to_breach_seconds:linear5m{rack="low"}': "40000x8",
    'rack:power_ratio:max{rack="low"}': "0.69x8",
    'rack:power_watts:mean5s{rack="low"}': "6900+40x8",
    'cluster:nodes_up:sum{cluster="quiet"}': "2x8",
    'cluster:nodes_up:sum{cluster="dark"}': "0x8",
    'cluster:job_gpu_seconds:rate5m{cluster="hung",state="waiting"}': "8x8",
    'coldplate_job_gpu_seconds_total{job_id="hung",instance="a",state="waiting"}': "0+60x8",
    'coldplate_job_gpu_seconds_total{job_id="hung",instance="b",state="waiting"}': "0+60x8",
    'coldplate_job_gpu_seconds_total{job_id="well",instance="c",state="computing"}': "0+60x8",
    'coldplate_nvlink_up{instance="well",gpu="0",link="0"}': "1x8",
    'rack:power_watts:max{rack="whole"}': "9000x8",
    'rack:power_watts:max{rack="dark"}': "9000x4 stale",
    'rack:power_watts:max{rack="removed"}': "9000x4 stale",
    'node:gpus_expected:max{rack="whole",instance="c"}': "8x8",
    'node:gpus_expected:max{rack="dark",instance="a"}': "8x8",
    'rack:nodes_missing:max{rack="whole"}': "0x8",
    'rack:nodes_missing:max{rack="dark"}': "0x4 stale",
    'coldplate_rack_nodes_expected{rack="dark",instance="a"}': "2x4 stale",
    'coldplate_rack_nodes_expected{rack="dark",instance="b"}': "2x4 stale",
    'up{instance="a"}': "1x4 0x4",
    'up{instance="b"}': "1x4 0x4",
    'coldplate_gpu_throttle_seconds_total{gpu="0",reason="hw_power_brake"}': "0+16x8",
    'coldplate_gpu_throttle_seconds_total{gpu="1",reason="hw_power_brake"}': "0+3x8",
    'coldplate_gpu_throttle_seconds_total{gpu="1",reason="gpu_idle"}': "0+15x8",
}


def query_of(board: str, title: str, look: str = "stat", place: int = 0) -> str:
    """A query of the board's panel of that look with that title."""
    panels = [each for each in load()[board].panels() if (each["title"], each["type"]) == (title, look)]
    return str(panels[0]["targets"][place]["expr"])


LEAST = query_of("fleet", "Ten jobs that compute least", "table", place=1).partition(" or bottomk")[0]


ANSWERS: dict[str, dict[str, float]] = {
    BREACH: {'{rack="rises"}': 300, '{rack="over"}': 0},
    THROTTLED: {'{gpu="0",reason="hw_power_brake"}': 1, '{gpu="1",reason="hw_power_brake"}': 0.2},
    query_of("fleet", "Racks incomplete"): {"{}": 1},
    query_of("rack", "Nodes"): {"{}": 2},
    FORECAST: {'{rack="rises"}': 300},
    LEAST: {'{job_id="hung"}': 0, '{job_id="well"}': 1},
}


CHOSEN = {"__rate_interval": "1m", "__range": "1h", "cluster": ".*", "rack": "dark"}


@pytest.mark.parametrize(
    ("board", "title", "chosen", "answer"),
    [
        ("fleet", "Critical alerts", {"cluster": "quiet"}, 0),
        ("fleet", "Critical alerts", {"cluster": "dark"}, None),
        ("fleet", "Critical alerts", {"cluster": "of another name"}, None),
        ("fleet", "Racks incomplete", {"cluster": ".*", "rack": "unknown"}, None),
        ("fleet", "GPUs of jobs that compute", {"cluster": "hung"}, 0),
        ("fleet", "GPUs of jobs that compute", {"cluster": "quiet"}, None),
        ("fabric", "NVLinks down", {"node": "well"}, 0),
        ("fabric", "NVLinks down", {"node": "without links"}, None),
        ("fabric", "Ports down", {"node": "well"}, None),
        ("fabric", "GPUs not in the fabric", {"node": "well"}, None),
        ("job", "GPUs lost", {"job": "unknown"}, None),
    ],
)
def test_a_count_is_0_only_where_something_says_so(
    board: str, title: str, chosen: dict[str, str], answer: float | None, tmp_path: Path
) -> None:
    expr = filled(query_of(board, title), {"__range": "1h", "cluster": ".*", "rack": ".*", "node": ".*", **chosen})
    samples = [] if answer is None else [{"labels": "{}", "value": answer}]
    _ask(tmp_path, {"expr": expr, "eval_time": "2m", "exp_samples": samples})


@pytest.mark.parametrize("expr", ANSWERS, ids=("breach", "throttled", "dark racks", "nodes", "forecast", "jobs"))
def test_a_piece_of_a_query_answers(expr: str, tmp_path: Path) -> None:
    asked = {
        "expr": f"round({filled(expr, CHOSEN)}, 0.001)",
        "eval_time": "2m",
        "exp_samples": [{"labels": labels, "value": value} for labels, value in ANSWERS[expr].items()],
    }
    _ask(tmp_path, asked)


def _ask(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Let promtool compare one query's answer over SERIES."""
    series = [{"series": name, "values": values} for name, values in SERIES.items()]
    file = tmp_path / "shares.test.yml"
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [asked]}
    file.write_text(json.dumps({"evaluation_interval": "15s", "tests": [test]}))
    promtool("test", "rules", str(file))


@every
def test_nothing_is_0_or_well_because_no_series_says_otherwise(board: Dashboard) -> None:
    for panel in board.panels():
        assert "vector(0)" not in " ".join(target["expr"] for target in panel["targets"]), panel["title"]
        assert "as it should be" not in panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


@every
def test_shares_and_temperatures_have_no_decimals_that_nobody_can_know(board: Dashboard) -> None:
    """Grafana itself would show 45.65%."""
    for panel in board.panels():
        defaults = panel["fieldConfig"]["defaults"]
        units = with_property(panel["fieldConfig"]["overrides"], "unit")
        decimals = with_property(panel["fieldConfig"]["overrides"], "decimals")
        values = [(defaults["unit"], defaults.get("decimals"))] if panel["type"] != "table" else []
        values += [(unit, decimals.get(header)) for header, unit in units.items()]
        for unit, count in values:
            if unit in ("percentunit", "celsius"):
                assert count is not None, panel["title"]
                assert count <= 2, panel["title"]


def test_no_share_of_time_is_more_than_all_of_it() -> None:
    """rate() reckons beyond the samples: a GPU that is throttled all the time would be so for 105%."""
    for board in load().values():
        for where, expr in board.queries():
            for name in ("coldplate_gpu_throttle_seconds_total", "coldplate_node_pressure_waiting_seconds_total"):
                assert expr.count(f"rate({name}") == expr.count(f"clamp_max(rate({name}"), where


HISTORY = """
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="0", uuid="G0", job_id="7", mig="0"}}', values: '1x60'}}
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="1", uuid="G1", job_id="7", mig="0"}}', values: '1x20 _x40'}}
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="2", uuid="G2", job_id="7", mig="0"}}', values: '1x20 _x40'}}
  - {{series: 'coldplate_gpu_job_info{{{a}, gpu="3", uuid="G3", job_id="8", mig="0"}}', values: '1x20 _x40'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="0", uuid="G0"}}', values: '1x60'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="1", uuid="G1"}}', values: '1x20 0x40'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="2", uuid="G2"}}', values: '1x60'}}
  - {{series: 'coldplate_gpu_up{{{a}, gpu="3", uuid="G3"}}', values: '1x20 0x40'}}
  promql_expr_test:
  - expr: '{state}'
    eval_time: 50m
    exp_samples:
    - {{labels: '{{{a}, gpu="0"}}', value: 1}}
    - {{labels: '{{{a}, gpu="1"}}', value: 0}}
"""
"""GPU 1 was lost while job 7 held it, GPU 2 was given back, GPU 3 was another job's."""


def test_a_lost_gpu_stays_with_its_job_and_a_returned_one_does_not(tmp_path: Path) -> None:
    (panel,) = (each for each in load()["job"].panels() if each["title"] == "Cause")
    chosen = {"cluster": ".*", "node": ".*", "gpu": ".*", "job": "7", "__range": "1h"}
    expr = filled(panel["targets"][0]["expr"], chosen)
    path = tmp_path / "members.yml"
    path.write_text(HISTORY.format(a='instance="n"', state=expr.replace("'", "''")))
    promtool("test", "rules", str(path))
