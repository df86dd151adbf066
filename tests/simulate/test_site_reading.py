"""Site files and options, what is said to a mistake, and the pages that a site serves."""

import gzip
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from agent.backends.synthetic.loader import ScenarioError
from agent.cli import make_parser
from agent.commands.simulate.simulated_site import OutageCause, SimulatedSite
from agent.commands.simulate.site_pages import SitePages
from agent.commands.simulate.site_reader import read_site
from agent.commands.simulate.site_service import describe
from agent.lib.wording import UserError
from exporters.http_messages import Request, Response
from tests.asking import ask
from tests.simulate.played_site import PlayedSite, site_of

WHOLE = """
cluster: east
seed: 7
scenario: [{scenario: healthy-training, weight: 8}, {scenario: idle, weight: 2}]
nodes_per_job: 2
racks:
  - {count: 3, nodes: 4, power_budget: 40.8kW}
  - {nodes: 2, name: nvl, topology: gb200-tray, scenario: idle}
jobs:
  - {id: "9001", nodes: ["node[1-3]", node5], gpus: 0-3, phases: [{kind: training}]}
faults:
  - {kind: straggler, node: node3, gpu: 2, at: 2m}
  - {kind: power-loss, rack: r2, at: 5m, duration: 10m}
  - {kind: agent-down, node: "node[10-11]"}
"""


def asked(*words: str) -> SimulatedSite:
    return describe(make_parser("simulate").parse_args(["simulate", *words]))


def test_a_file_says_everything() -> None:
    site = site_of(WHOLE)
    assert [(rack.name, len(rack.nodes), rack.budget) for rack in site.racks] == [
        ("r1", 4, 40_800.0),
        ("r2", 4, 40_800.0),
        ("r3", 4, 40_800.0),
        ("nvl1", 2, None),
    ]
    nodes = {node.name: node for node in site.nodes}
    assert list(nodes) == [f"node{number}" for number in range(1, 15)]
    assert {nodes[name].scenario.topology.name for name in ("node13", "node14")} == {"gb200-tray"}
    assert {nodes[f"node{n}"].scenario.jobs[0].id for n in (1, 2, 3, 5)} == {"9001"}
    assert nodes["node3"].scenario.faults[0].gpus == (2,)
    power, agent = site.outages
    assert (power.loss, power.window.at, power.window.duration) == (OutageCause.POWER, 300.0, 600.0)
    assert power.nodes == {"node5", "node6", "node7", "node8"}
    assert (agent.loss, agent.nodes) == (OutageCause.AGENT, {"node10", "node11"})
    assert len({node.scenario.seed for node in site.nodes}) == len(site.nodes)


def test_options_describe_the_same_site_as_a_file() -> None:
    file = """
    cluster: east
    seed: 3
    topology: dgx-h200
    scenario: [{scenario: healthy-training, weight: 3.0}, {scenario: idle}]
    nodes_per_job: 2
    racks: [{count: 2, nodes: 4, power_budget: 40kW}, {count: 1, nodes: 2, power_budget: 40kW}]
    faults:
    - {kind: straggler, node: node3, gpu: 5, at: 2m, utilization: 10%}
    - {kind: ib-down, rack: "r[1-2]", port: mlx5_2}
    - {kind: power-loss, rack: r3, at: 5m, duration: 1m}
    - {kind: lost, node: node1, gpu: 0}
    """
    words = (
        "--nodes 10 --nodes-per-rack 4 --topology dgx-h200 --scenario healthy-training=3 --scenario idle --seed 3"
        " --nodes-per-job 2 --rack-budget 40kW --cluster east --fault straggler@node3/5,at=2m,utilization=10%"
        " --fault ib-down@r[1-2]/mlx5_2 --fault power-loss@r3,at=5m,duration=1m --fault lost@node1"
    )
    assert asked(*words.split()) == site_of(file)


def test_nodes_are_dealt_scenarios_by_weight_and_seed() -> None:
    def idle(seed: int) -> list[str]:
        site = asked("--nodes", "400", "--scenario", "idle=1", "--scenario", "healthy-training=3", "--seed", str(seed))
        return [node.name for node in site.nodes if node.scenario.name == "idle"]

    assert idle(1) == idle(1) != idle(2)
    assert 70 <= len(idle(1)) <= 130


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("racks: []", "site.yaml:1: racks: they have 0 nodes together; give 1 to 20000"),
        ("cluster: a", "racks: is missing"),
        ("racks: [{nodes: 0}]", "racks[0].nodes: expected a whole number from 1 to 256, found 0"),
        ("racks: [{}]\nracls: 1", "site.yaml:2: racls: unknown key; did you mean 'racks'?"),
        ("racks: [{nods: 1}]", "racks[0].nods: unknown key; did you mean 'nodes'?"),
        ("racks: [{topology: dgx-h10}]", "racks[0].topology: unknown value 'dgx-h10'; did you mean 'dgx-h100'?"),
        ("topology: dgx-h10\nracks: [{}]", "topology: unknown value 'dgx-h10'; did you mean 'dgx-h100'?"),
        ("racks: [{name: r1}]", "racks[0].name: 'r1': give letters; racks are numbered, so no digit may be the last"),
        ("racks: [{power_budget: 40kg}]", "racks[0].power_budget: expected a quantity such as 500W or 2.7kW"),
        ("scenario: strangler\nracks: [{}]", "scenario: there is no shipped scenario 'strangler'; did you mean 'stra"),
        ("scenario: [{weight: 1}]\nracks: [{}]", "site.yaml:1: scenario[0].scenario: is missing"),
        ("scenario: []\nracks: [{}]", "scenario: names no scenario; give the name of one"),
        ("scenario: straggler\nracks: [{topology: gb200-tray}]", "faults[0].gpu: gb200-tray has GPUs 0 to 3"),
        ("cluster: a b\nracks: [{}]", "site.yaml:1: cluster: 'a b' is not a valid name of a cluster; give letters"),
        ("racks: [{}]\njobs: [{id: 1, gpus: all, phases: [{kind: idle}]}]", "jobs[0].nodes: is missing: name the"),
        ("racks: [{}]\nfaults: [{kind: lost, gpu: 0}]", "faults[0]: names no place; give node or rack"),
        ("racks: [{}]\nfaults: [{kind: lost, gpu: 0, node: all, rack: r1}]", "faults[0]: name node or rack, not both"),
        ("racks: [{}]\nfaults: [{kind: lost, gpu: 0, node: nod1}]", "there is no node 'nod1' in this site; did you"),
        ("racks: [{}]\nfaults: [{kind: lost, gpu: 0, node: 'node[1-9]'}]", "is not a range within this site, which"),
        ("racks: [{}]\nfaults: [{kind: lost, gpu: 0, node: 3}]", "expected a name, a range or a list of these"),
        ("racks: [{}]\nfaults: [{kind: power-lost, rack: r1}]", "faults[0].kind: unknown value 'power-lost'; did you"),
        ("racks: [{}]\nfaults: [{kind: power-loss, rack: r1, gpu: 1}]", "faults[0].gpu: unknown key"),
        ("racks: [{}]\nfaults: [{kind: lost, gpu: 9, node: node1}]", "faults[0].gpu: dgx-h100 has GPUs 0 to 7"),
        (
            "racks: [{}]\njobs:\n- &j {id: a, nodes: all, gpus: all, phases: [{kind: idle}]}\n- *j",
            "site.yaml:3: jobs[1].gpus: GPU 0 is held by job a at the same time",
        ),
    ],
)
def test_a_mistake_names_file_key_and_remedy(text: str, told: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(told)):
        site_of(text)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--fault straggler", "--fault: 'straggler' is not KIND@PLACE[/PART][,KEY=VALUE...]; such as straggler@n"),
        ("--fault straggler@node1,at", "--fault: 'at' of 'straggler@node1,at' is not KEY=VALUE; such as at=2m"),
        ("--fault straggler@node99", "the command line: faults[0].node: there is no node 'node99' in this site"),
        ("--topology dgx", "the command line: topology: unknown value 'dgx'; use one of dgx-h100, "),
        ("site.yaml --nodes 3", "--nodes: the site is described by site.yaml; say it there, or leave out the file"),
        ("site.yaml --nodes-per-rack 3", "--nodes-per-rack: the site is described by site.yaml"),
        ("nowhere.yaml", "nowhere.yaml: "),
    ],
)
def test_a_mistake_on_the_command_line_is_a_users_error(words: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        asked(*words.split())


def test_scenarios_that_are_files_are_looked_for_beside_the_site(tmp_path: Path) -> None:
    (tmp_path / "drill.yaml").write_text("description: a drill\ntopology: dgx-h100\n")
    (tmp_path / "site.yaml").write_text("scenario: drill.yaml\nracks: [{nodes: 1}]\n")
    assert read_site(tmp_path / "site.yaml").nodes[0].scenario.name == "drill"


SITE = """
cluster: east
nodes_per_job: 2
racks: [{count: 2, nodes: 2, power_budget: 25kW}]
faults:
  - {kind: power-loss, rack: r2, at: 30s, duration: 30s}
  - {kind: straggler, node: node2, gpu: 3, at: 80s}
"""


class AskedSite:
    def __init__(self, profile: str = "default") -> None:
        self.now = 10.0
        site = PlayedSite(SITE, profile=profile)
        self.pages = SitePages(site.site, list(site.nodes.values()), lambda: self.now)

    def ask(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Response:
        return ask(self.pages, Request(method, path, headers=headers or {}))

    def json(self, path: str, headers: Mapping[str, str] | None = None) -> Any:
        response = self.ask(path, headers=headers)
        assert response.content_type == "application/json"
        return json.loads(response.body)


@pytest.fixture
def site() -> AskedSite:
    return AskedSite()


def test_discovery_lists_and_serves_a_target_group_for_each_node(site: AskedSite) -> None:
    groups = site.json("/sd", {"host": "sim.example:8080"})
    assert all(site.ask(group["labels"]["__metrics_path__"]).status is HTTPStatus.OK for group in groups)
    assert [group["targets"] for group in groups] == [["sim.example:8080"]] * 4
    assert groups[2]["labels"] == {
        "__metrics_path__": "/nodes/node3/metrics",
        "instance": "node3",
        "cluster": "east",
        "rack": "r2",
        "topology": "dgx-h100",
    }
    assert site.json("/sd", {"host": "[::1]:19500"})[0]["targets"] == ["[::1]:19500"]
    site.pages.address = "127.0.0.1:19500"
    for strange in ("", 'a"b', "a b:1", "a:123456"):
        assert site.json("/sd", {"host": strange})[0]["targets"] == ["127.0.0.1:19500"]


def test_nodes_without_power_do_not_answer_but_stay_listed(site: AskedSite) -> None:
    site.now = 45.0
    assert [node["up"] for node in site.json("/api/v1/nodes")["nodes"]] == [True, True, False, False]
    response = site.ask("/nodes/node3/metrics")
    assert (response.status, response.body) == (HTTPStatus.SERVICE_UNAVAILABLE, b"node3 is down in this simulation\n")
    assert len(site.json("/sd")) == 4
    assert b"down" in site.ask("/").body
    site.now = 61.0
    assert site.ask("/nodes/node3/metrics").status is HTTPStatus.OK
    assert b"down" not in site.ask("/").body


def test_the_list_shows_which_node_has_a_fault_now(site: AskedSite) -> None:
    assert [node["faults"] for node in site.json("/api/v1/nodes")["nodes"]] == [[], [], [], []]
    site.now = 90.0
    assert [node["faults"] for node in site.json("/api/v1/nodes")["nodes"]] == [[], ["straggler GPU 3"], [], []]
    page = site.ask("/").body.decode()
    assert page.index("straggler GPU 3") < page.index(">node1<"), "it stands first"


def test_the_list_says_what_a_simulated_node_has_and_what_shows_the_rest(site: AskedSite) -> None:
    page = site.ask("/").body.decode()
    assert "metrics alone" in page and "<code>coldplate run --scenario NAME</code>" in page
    assert site.ask("/api/v1/snapshot").status is HTTPStatus.NOT_FOUND


def test_a_page_is_rendered_once_a_second_in_what_the_client_accepts(site: AskedSite) -> None:
    plain = site.ask("/nodes/node1/metrics")
    assert plain.content_type.startswith("text/plain; version=0.0.4")
    site.now += 0.9
    assert site.ask("/nodes/node1/metrics").body is plain.body
    packed = site.ask("/nodes/node1/metrics", headers={"accept-encoding": "gzip"})
    assert gzip.decompress(packed.body) == plain.body
    site.now += 0.2
    assert site.ask("/nodes/node1/metrics").body != plain.body
    accepted = {"accept": "application/openmetrics-text;version=1.0.0"}
    assert site.ask("/nodes/node1/metrics", headers=accepted).body.endswith(b"# EOF\n")


@pytest.mark.parametrize("path", ["/nodes/node9/metrics", "/nodes/node1", "/metrics", "/nodes//metrics"])
def test_what_is_not_there_says_what_is(site: AskedSite, path: str) -> None:
    response = site.ask(path)
    assert response.status is HTTPStatus.NOT_FOUND
    assert b"/nodes/NAME/metrics" in response.body


def test_the_nodes_show_what_the_profile_has(site: AskedSite) -> None:
    lean = AskedSite("lean")
    sizes = [each.ask("/nodes/node1/metrics").body.count(b"\ncoldplate_") for each in (lean, site)]
    assert sizes[0] <= 500 < sizes[1]


def test_nothing_can_be_changed(site: AskedSite) -> None:
    response = site.ask("/sd", "POST")
    assert (response.status, response.headers) == (HTTPStatus.METHOD_NOT_ALLOWED, (("Allow", "GET, HEAD"),))
