"""The site's pages: the nodes for Prometheus's discovery, each node's metrics, and what a browser is shown."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import pytest

from agent.commands.simulate.site_pages import SitePages
from exporters.http_messages import Request, Response
from tests.asking import ask
from tests.servers import need
from tests.simulate.played_site import PlayedSite

SITE = """
cluster: east
nodes_per_job: 2
racks: [{count: 2, nodes: 2, power_budget: 25kW}]
faults: [{kind: power-loss, rack: r2, at: 30s, duration: 30s}]
"""


class AskedSite:
    def __init__(self, profile: str = "default") -> None:
        self.now = 10.0
        site = PlayedSite(SITE)
        self.pages = SitePages(site.site, list(site.nodes.values()), lambda: self.now, profile)

    def ask(self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> Response:
        return ask(self.pages, Request(method, path, headers=headers or {}))

    def json(self, path: str, headers: Mapping[str, str] | None = None) -> Any:
        response = self.ask(path, headers=headers)
        assert response.content_type == "application/json"
        return json.loads(response.body)


@pytest.fixture
def site() -> AskedSite:
    return AskedSite()


def test_discovery_lists_a_target_group_for_each_node_where_it_was_asked(site: AskedSite) -> None:
    groups = site.json("/sd", {"host": "sim.example:8080"})
    assert [group["targets"] for group in groups] == [["sim.example:8080"]] * 4
    assert groups[2]["labels"] == {
        "__metrics_path__": "/nodes/node3/metrics", "instance": "node3", "cluster": "east", "rack": "r2",
        "topology": "dgx-h100",
    }  # fmt: skip
    assert site.json("/sd", {"host": "[::1]:19500"})[0]["targets"] == ["[::1]:19500"]
    site.pages.address = "127.0.0.1:19500"
    for strange in ("", 'a"b', "a b:1", "a:123456"):
        assert site.json("/sd", {"host": strange})[0]["targets"] == ["127.0.0.1:19500"]


def test_every_listed_path_is_served(site: AskedSite) -> None:
    for group in site.json("/sd"):
        assert site.ask(group["labels"]["__metrics_path__"]).status is HTTPStatus.OK


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


def test_promtool_finds_nothing_wrong_with_a_page(site: AskedSite) -> None:
    page = site.ask("/nodes/node1/metrics").body
    done = subprocess.run([need("promtool"), "check", "metrics"], input=page, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
