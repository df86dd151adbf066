"""Every query of every dashboard, asked of a real Prometheus: of two nodes on which things go wrong, and of a fleet."""

import math
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboards.conftest import NAMES, filled, load
from tests.dashboards.rig import Server, scraped, values

pytestmark = pytest.mark.release
"""It runs two agents and a Prometheus for half a minute."""

WAIT = 22.0
EMPTY = {
    ("agents", "Worker restarts in 10 minutes"): "no worker restarted",
    ("agents", "Rule failures"): "no rule fails",
    ("agents", "Readings rejected"): "the synthetic devices here say nothing that cannot be",
    ("fabric", "Fabric problems of GPUs"): "the fabric of synthetic GPUs has nothing against them",
    ("node", "Where the time of instances goes"): "no GPU of these nodes is divided into instances",
    ("node", "SM active by instance"): "no GPU of these nodes is divided into instances",
    ("node", "Memory by instance"): "no GPU of these nodes is divided into instances",
    ("node", "SM time by job"): "no GPU of these nodes is shared",
}
"""What is legitimately empty on these scenarios, and why."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, list[str]]]:
    """A server that has scraped two nodes and missed a third for a while; and their addresses."""
    with scraped(tmp_path_factory.mktemp("live")) as (server, nodes):
        time.sleep(WAIT)
        yield server, nodes


@pytest.mark.parametrize("name", NAMES)
def test_every_query_of_every_panel_has_an_answer(server: tuple[Server, list[str]], name: str) -> None:
    """Within some seconds: a forecast, such as when a rack reaches its budget, is there only while power rises."""
    prometheus, nodes = server

    def is_silent(target: Any) -> bool:
        expr = filled(target["expr"], values(nodes, name)).replace(":1m]", ":1s]")  # no minute may have begun yet
        return not (prometheus.instant(expr) if target["instant"] else prometheus.range(expr))

    panels = [panel for panel in load()[name].panels() if (name, panel["title"]) not in EMPTY]
    silent = [(panel["title"], target) for panel in panels for target in panel["targets"] if is_silent(target)]
    until = time.monotonic() + WAIT
    while silent and time.monotonic() < until:
        time.sleep(0.5)
        silent = [(title, target) for title, target in silent if is_silent(target)]
    assert silent == []


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_has_values_and_every_annotation_finds_alerts(
    server: tuple[Server, list[str]], name: str
) -> None:
    prometheus, nodes = server
    board = load()[name]
    for variable in board.variables().values():
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"]).groups()
            found = prometheus.get(f"label/{label}/values", **{"match[]": filled(series, values(nodes, "node"))})
            assert found, variable["name"]
    for annotation in board.json["annotations"]["list"]:
        if "expr" in annotation:
            assert prometheus.range(filled(annotation["expr"], values(nodes, name))), annotation["name"]


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_a_table_are_distinguished_only_by_its_columns(server: tuple[Server, list[str]], name: str) -> None:
    """A label that one query has and another has not (such as the name of the series) would tear rows apart."""
    prometheus, nodes = server
    for panel in load()[name].panels():
        if panel["type"] == "table":
            organize = next(each for each in panel["transformations"] if each["id"] == "organize")
            shown = {each for each in organize["options"]["renameByName"] if not each.startswith("Value")}
            for target in panel["targets"]:
                for series in prometheus.instant(filled(target["expr"], values(nodes, name))):
                    assert set(series["metric"]) <= shown, f"{panel['title']} {target['refId']}"


def rows(server: tuple[Server, list[str]], name: str, title: str) -> dict[str, dict[tuple[str, ...], float]]:
    """What the columns of a table show, by header and by the labels of the row."""
    prometheus, nodes = server
    (panel,) = (each for each in load()[name].panels() if (each["title"], each["type"]) == (title, "table"))
    organize = next(each for each in panel["transformations"] if each["id"] == "organize")["options"]
    names = organize["renameByName"]
    labels = sorted((each for each in names if not each.startswith("Value")), key=organize["indexByName"].__getitem__)
    return {
        names.get(f"Value #{target['refId']}", names.get("Value", "")): {
            tuple(series["metric"].get(each, "") for each in labels): float(series["value"][1])
            for series in prometheus.instant(filled(target["expr"], values(nodes, name)))
        }
        for target in panel["targets"]
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_column_of_a_table_has_every_row(server: tuple[Server, list[str]], name: str) -> None:
    """Else Grafana joins nothing: it takes the labels that all columns have, and an empty one has none."""
    for panel in load()[name].panels():
        if panel["type"] == "table":
            columns = rows(server, name, panel["title"])
            missing = {row for column in columns.values() for row in column} - set[Any].intersection(
                *map(set, columns.values())
            )
            assert not missing, f"{panel['title']}: {columns}"


def test_a_lost_gpu_stays_in_the_tables_and_its_unknown_values_are_dashes(server: tuple[Server, list[str]]) -> None:
    node = rows(server, "node", "GPUs")
    straggler, lost = 3, 7
    states = {straggler: 0.5, lost: 0.0}
    assert node["State"] == {(str(gpu),): states.get(gpu, 1.0) for gpu in range(8)}
    assert math.isnan(node["Power"]["7",])
    assert not math.isnan(node["Power"]["6",])
    cause = rows(server, "job", "Cause")
    assert {gpu for (_, gpu), state in cause["State"].items() if state == 0} == {"7"}
    assert len(cause["State"]) == 8
    behind = {gpu for (_, gpu), share in cause["Power/median"].items() if share < 0.7}
    assert "3" in behind


def test_tables_show_what_is_in_trouble_and_no_more_and_zeros_as_what_they_are(
    server: tuple[Server, list[str]],
) -> None:
    """A dash is for what nobody knows: a port that only flaps has no symbol errors, which is known."""
    _, nodes = server
    links = rows(server, "fabric", "Links below their rate")
    assert links["Expected"] == {(nodes[0], "mlx5_5", "1"): 400e9}
    assert links["Rate"] == {(nodes[0], "mlx5_5", "1"): 200e9}
    table = rows(server, "fabric", "Ports with trouble")
    assert {device for _, device, _ in table["Flaps, 1 h"]} == {"mlx5_3", "mlx5_6"}
    assert table["Symbol errors, 1 h"][nodes[0], "mlx5_3", "1"] == 0
    assert table["Flaps, 1 h"][nodes[0], "mlx5_6", "1"] == 0
    table = rows(server, "rack", "Nodes")
    assert table["State"] == {(nodes[0],): 1.0, (nodes[1],): 1.0, (nodes[2],): 0.0}
    assert math.isnan(table["Power"][nodes[2],])
    assert set(rows(server, "node", "Requested recovery action")["Requested"]) == {("4", "gpu_reset")}
    alerts = rows(server, "job", "Firing alerts")["Severity"]
    assert {(alert, gpu) for (alert, _, gpu, *_) in alerts} >= {("GpuLost", "7"), ("NvLinkDown", "2")}
    (xid,) = (summary for (alert, _, gpu, summary, _) in alerts if (alert, gpu) == ("GpuXid", "6"))
    assert "XID 95" in xid


def test_what_is_listed_as_empty_is_empty(server: tuple[Server, list[str]]) -> None:
    """A list of excuses that nobody needs any more is out of date."""
    prometheus, nodes = server
    for (name, title), reason in EMPTY.items():
        panels = [panel for panel in load()[name].panels() if panel["title"] == title]
        assert panels, title
        exprs = [filled(target["expr"], values(nodes, name)) for panel in panels for target in panel["targets"]]
        assert not all(prometheus.instant(expr) for expr in exprs), f"{title} has data: {reason}"


def test_the_boards_show_what_is_wrong(server: tuple[Server, list[str]]) -> None:
    """The answer row of Fleet and Node on these scenarios: one node down, one GPU lost, alerts that fire."""
    prometheus, nodes = server

    def answer(name: str, title: str) -> float:
        panel = next(each for each in load()[name].panels() if each["title"] == title)
        expr = filled(panel["targets"][0]["expr"], values(nodes, name))
        return float(prometheus.instant(expr)[0]["value"][1])

    assert answer("fleet", "Nodes up") == 2
    assert answer("fleet", "GPUs up") == 11
    assert 0 <= answer("fleet", "GPUs of jobs that compute") < 1
    assert answer("fleet", "Critical alerts") >= 3
    assert answer("fleet", "Racks incomplete") == 1
    assert answer("rack", "Parts of the equipment that are not ok") > 0
    assert answer("job", "GPUs lost") == 1
    assert answer("job", "Spread of utilization") > 0.5
    assert answer("fabric", "NVLinks down") >= 1
    assert answer("agents", "Agents down") == 1
    assert answer("agents", "Missing but supported") == 2
