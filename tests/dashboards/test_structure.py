"""What every dashboard must be for Grafana to show it as it was meant."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from agent.catalogue import BY_NAME
from agent.model import Node, Unit
from alerts.promql.syntax import parse
from alerts.promql.syntax.tree import VectorSelector
from dashboards.rulebook import FLEET, PACK, recorded
from tests.dashboards.conftest import NAMES, Dashboard, filled, load

DASHBOARDS = load()
KNOWN = {"up", "ALERTS"}
MODERN = {"timeseries", "stat", "bargauge", "gauge", "heatmap", "state-timeline", "table", "text", "row"}
ANY = dict.fromkeys(("cluster", "rack", "node", "gpu", "job"), "x")

every = pytest.mark.parametrize("board", DASHBOARDS.values(), ids=NAMES)


def _names(tree: Any) -> Iterator[str]:
    """Every series that a query reads, from its syntax tree."""
    if isinstance(tree, VectorSelector):
        yield tree.name
    elif isinstance(tree, tuple):
        for each in tree:
            yield from _names(each)
    elif is_dataclass(tree):
        for each in fields(tree):
            yield from _names(getattr(tree, each.name))


@every
def test_ids_are_unique_and_panels_have_places_of_their_own(board: Dashboard) -> None:
    panels = list(board.panels(rows=True))
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: dict[tuple[int, int], int] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["id"]) == panel["id"], f"{panel['title']} overlaps"


@every
def test_lines_of_panels_fill_the_width(board: Dashboard) -> None:
    """A line that ends early, but for the last of a row, looks like a panel that failed to load."""
    widths: dict[int, int] = {}
    for panel in board.panels():
        widths[panel["gridPos"]["y"]] = widths.get(panel["gridPos"]["y"], 0) + panel["gridPos"]["w"]
    assert {y: width for y, width in widths.items() if width != 24} == {}


@every
def test_no_panel_is_of_a_kind_that_grafana_has_dropped(board: Dashboard) -> None:
    assert {panel["type"] for panel in board.panels(rows=True)} <= MODERN
    assert board.json["schemaVersion"] >= 39


@every
def test_every_panel_has_title_unit_and_says_what_good_looks_like(board: Dashboard) -> None:
    for panel in board.panels():
        assert panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        meaning, _, good = panel["description"].partition("**Good:** ")
        assert len(meaning.strip()) > 10, panel["title"]
        assert re.fullmatch(r"\S.*\.", good), panel["title"]


@every
def test_every_column_of_a_table_has_a_unit(board: Dashboard) -> None:
    for panel in board.panels():
        if panel["type"] == "table":
            organize = next(each for each in panel["transformations"] if each["id"] == "organize")
            shown = {header for name, header in organize["options"]["renameByName"].items() if name.startswith("Value")}
            with_unit = {
                each["matcher"]["options"]
                for each in panel["fieldConfig"]["overrides"]
                if any(one["id"] == "unit" for one in each["properties"])
            }
            assert shown == with_unit, panel["title"]


@every
def test_titles_are_distinct(board: Dashboard) -> None:
    titles = [(panel["title"], panel["type"]) for panel in board.panels()]
    assert len(set(titles)) == len(titles)


@every
def test_targets_name_their_source_and_have_ids_of_their_own(board: Dashboard) -> None:
    for panel in board.panels():
        ids = [target["refId"] for target in panel["targets"]]
        assert "" not in ids
        assert len(set(ids)) == len(ids)
        for each in (panel, *panel["targets"]):
            assert each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        for target in panel["targets"]:
            assert target["instant"] != target["range"]


@every
def test_the_first_threshold_has_no_value_and_the_others_rise(board: Dashboard) -> None:
    def all_steps(value: Any) -> Iterator[list[dict[str, Any]]]:
        if isinstance(value, dict):
            if "steps" in value and "mode" in value and isinstance(value["steps"], list):
                yield value["steps"]
            for inner in value.values():
                yield from all_steps(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from all_steps(inner)

    found = list(all_steps(board.json))
    assert len(found) > 10
    for steps in found:
        assert steps[0]["value"] is None
        rest = [step["value"] for step in steps[1:]]
        assert rest == sorted(rest)


@every
def test_every_query_parses_and_reads_series_that_exist(board: Dashboard) -> None:
    for where, expr in board.queries():
        read = set(_names(parse(filled(expr, ANY))))
        assert read, where
        unknown = {each for each in read if each not in BY_NAME and each not in recorded() and each not in KNOWN}
        assert not unknown, where


@every
def test_every_series_is_narrowed_by_the_variables_of_the_board(board: Dashboard) -> None:
    """A board for one node, rack or job never shows another's series: each query names that variable."""
    single = [name for name, each in board.variables().items() if each["type"] == "query" and not each["multi"]]
    for where, expr in board.queries():
        for name in single:
            assert f'"${name}"' in expr, where


@every
def test_times_are_in_milliseconds_as_grafana_reads_them(board: Dashboard) -> None:
    for where, expr in board.queries():
        assert "_timestamp_seconds" not in expr or "* 1000" in expr, where


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


def links_of(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if str(value.get("url", "")).startswith("/d/"):
            yield value["url"]
        for inner in value.values():
            yield from links_of(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links_of(inner)


@every
def test_links_lead_to_boards_that_exist_and_carry_variables_that_these_have(board: Dashboard) -> None:
    by_uid = {each.uid: each for each in DASHBOARDS.values()}
    urls = list(links_of(board.json))
    assert {url.split("?")[0] for url in urls} >= {f"/d/{uid}" for uid in by_uid if uid != board.uid}
    for url in urls:
        target = by_uid[url.split("?")[0].removeprefix("/d/")]
        carried = re.findall(r"\$\{(\w+):queryparam\}", url)
        assert {*carried, *re.findall(r"var-(\w+)=", url)} <= set(target.variables())
        for name in carried:
            several = board.variables()[name].get("multi", False) and not target.variables()[name].get("multi", False)
            assert not several, f"{url}: {name} may have many values here, and has one there"


@every
def test_links_in_tables_point_at_columns_that_are_shown(board: Dashboard) -> None:
    for panel in board.panels():
        if panel["type"] == "table":
            organize = next(each for each in panel["transformations"] if each["id"] == "organize")
            shown = set(organize["options"]["renameByName"].values())
            for override in panel["fieldConfig"]["overrides"]:
                assert override["matcher"]["options"] in shown, panel["title"]
            for field in re.findall(r'__data\.fields\[\\"([^"\\]+)\\"\]', json.dumps(panel)):
                assert field in shown, panel["title"]


@every
def test_a_link_from_a_table_never_narrows_to_an_empty_cell(board: Dashboard) -> None:
    """A row about a whole node has no GPU: carried along, its empty cell would leave the next board empty."""
    for url in links_of(board.json):
        assert not re.search(r"var-(gpu|cluster|datasource)=", url)


@every
def test_alerts_are_marked_in_the_graphs(board: Dashboard) -> None:
    exprs = [each["expr"] for each in board.json["annotations"]["list"] if "expr" in each]
    assert any("ALERTS{" in expr for expr in exprs)
    assert board.uid in {"coldplate-rack", "coldplate-job"} or any("coldplate_alert{" in expr for expr in exprs)


def test_every_limit_that_is_drawn_is_one_of_the_rules() -> None:
    """The rack's dashed lines are the levels of RackPower, whatever the rule file says they are."""
    rules = (PACK / "rack.yml").read_text()
    drawn = re.findall(r'rack:power_budget_watts:min\{rack="\$rack"\} \* ([\d.]+)', "".join(
        expr + "\n" for _, expr in DASHBOARDS["rack"].queries()))  # fmt: skip
    assert sorted(map(float, drawn)) == [0.8, 0.9, 1.0, 1.35]
    assert all(re.search(rf"> {number}\b", rules) for number in drawn)


def test_the_fleet_board_reads_recorded_series_over_time() -> None:
    """Over time one series of each node is read at most: those of every GPU are read for one moment."""
    for panel in DASHBOARDS["fleet"].panels():
        for target in panel["targets"]:
            read = [BY_NAME[each] for each in _names(parse(filled(target["expr"], ANY))) if each in BY_NAME]
            raw = [row.name for row in read if row.entity is not Node]
            assert not raw or target["instant"], panel["title"]


def test_the_fleet_rules_are_where_the_dashboards_look() -> None:
    assert FLEET.is_file()


@every
def test_what_is_empty_says_why(board: Dashboard) -> None:
    """Grafana's own words are "No data", which may be the best news or a scrape that failed."""
    for panel in board.panels():
        assert len(panel["fieldConfig"]["defaults"].get("noValue", "")) > 5, panel["title"]


@every
def test_alerts_are_in_the_order_of_their_severity(board: Dashboard) -> None:
    """As a number: by its name, critical comes before info and after warning, or the other way round."""
    for panel in board.panels():
        exprs = " ".join(target["expr"] for target in panel["targets"])
        if panel["type"] == "table" and ("ALERTS" in exprs or "coldplate_alert{" in exprs):
            assert panel["options"]["sortBy"] == [{"desc": True, "displayName": "Severity"}], panel["title"]
            organize = next(each for each in panel["transformations"] if each["id"] == "organize")["options"]
            assert "severity" not in organize["renameByName"], panel["title"]
            assert organize["renameByName"]["Value"] == "Severity"
            assert organize["indexByName"]["Value"] == 0
            ranks = re.findall(r'severity(=|!~)"([\w|]+)"} \* (\d)', exprs)
            assert ranks == [("=", "critical", "3"), ("=", "warning", "2"), ("!~", "critical|warning", "1")]


@every
def test_no_column_tears_the_rows_of_a_table(board: Dashboard) -> None:
    """Grafana joins rows by what all queries tell: each has to tell of every row, also where its metric is absent."""
    for panel in board.panels():
        if panel["type"] == "table" and len(panel["targets"]) > 1:
            filling = [re.search(r" or (.+) \* (NaN|0)$", target["expr"]) for target in panel["targets"]]
            assert all(filling), panel["title"]


@every
def test_headers_are_not_cut(board: Dashboard) -> None:
    """On a screen of 1600 pixels every column has room for its header, and the columns for all of the panel."""
    for panel in board.panels():
        if panel["type"] != "table":
            continue
        organize = next(each for each in panel["transformations"] if each["id"] == "organize")["options"]
        shown = set(organize["renameByName"].values())
        fixed = {
            each["matcher"]["options"]: one["value"]
            for each in panel["fieldConfig"]["overrides"]
            for one in each["properties"]
            if one["id"] == "custom.width"
        }
        room = panel["gridPos"]["w"] / 24 * 1600 - 16
        left = shown - set(fixed)
        share = (room - sum(fixed.values())) / max(1, len(left))
        for header in shown:
            assert fixed.get(header, share) >= 8 * len(header) + 20, f"{panel['title']}: {header}"
        assert sum(fixed.values()) <= room, panel["title"]


@every
def test_lines_are_not_filled_where_they_lie_on_each_other(board: Dashboard) -> None:
    for panel in board.panels():
        if panel["type"] == "timeseries":
            custom = panel["fieldConfig"]["defaults"]["custom"]
            assert custom["fillOpacity"] == 0 or custom["stacking"]["mode"] == "normal", panel["title"]


@every
def test_counts_of_events_are_whole(board: Dashboard) -> None:
    """increase() reckons beyond the samples: 12 errors are 12.1."""
    for panel in board.panels():
        if panel["type"] in ("stat", "table"):
            for target in panel["targets"]:
                for found in re.finditer(r"increase\((coldplate_\w+)", target["expr"]):
                    if BY_NAME[found[1]].unit is Unit.NONE:
                        assert "round(" in target["expr"], panel["title"]


@pytest.mark.parametrize(("name", "title"), [("node", "GPUs"), ("job", "Cause")])
def test_all_eight_gpus_fit_and_a_lost_one_is_first(name: str, title: str) -> None:
    (panel,) = (each for each in DASHBOARDS[name].panels() if each["title"] == title)
    assert panel["options"]["sortBy"][0] == {"desc": False, "displayName": "State"}
    rows = 1 + 8
    assert panel["gridPos"]["h"] * 38 - 8 - 40 >= rows * 36
    assert not panel["options"]["footer"]["enablePagination"], "it hides what does not fit"
