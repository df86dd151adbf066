"""What the nodes of a site show, each like an agent; and the program that simulates them."""

import contextlib
import gc
import io
import signal
import sys
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import mean
from urllib.error import HTTPError

import bcrypt
import pytest

from agent import cli
from agent.backends.synthetic import load_scenario
from agent.commands.simulate import site_service
from exporters.encoder import Format
from tests import warm
from tests.lab.bench.processes import Program
from tests.servers import fetch, free_port, program, prometheus, query
from tests.simulate.played_site import PlayedSite
from tests.waiting import wait_until

JOINED = "nodes_per_job: 2\nracks: [{nodes: 4, power_budget: 40.8kW}]\n"
LATE = [7, 22, 37, 52, 67, 82]


def test_the_same_site_gives_the_same_pages_at_the_same_seconds() -> None:
    one, two = PlayedSite(JOINED), PlayedSite(JOINED)
    for t in LATE:
        assert one.page("node2", t) == two.page("node2", t)
    other = PlayedSite(f"seed: 2\n{JOINED}")
    assert other.page("node2", 82) != two.page("node2", 82)


def test_what_is_read_does_not_depend_on_earlier_scrapes() -> None:
    """Only what is made of several samples does: rolling statistics, busy seconds, and the agent's own counters."""
    often, once = PlayedSite(JOINED, stride=1), PlayedSite(JOINED)
    for t in range(90):
        often.sample("node1", t)
    for name in (
        "gpu_power_watts",
        "gpu_pcie_transmit_bytes_total",
        "gpu_temperature_celsius",
        "node_power_watts",
        "infiniband_port_data_transmitted_bytes_total",
        "rack_power_watts",
    ):
        assert often.values("node1", 90, name) == once.values("node1", 90, name)


def test_a_node_that_is_scraped_seldom_is_sampled_in_between() -> None:
    site = PlayedSite("racks: [{nodes: 1}]")
    before = site.one("node1", 10, "ticks_total")
    assert site.one("node1", 70, "ticks_total") - before == 4
    assert site.one("node1", 70 + 24 * 3600, "ticks_total") - before <= 9, "only the last minute counts"


def test_rolling_statistics_are_those_of_the_samples() -> None:
    site = PlayedSite("racks: [{nodes: 1}]")
    watts = [site.values("node1", t, "gpu_power_watts")[0] for t in (15, 30, 45)]
    assert site.values("node1", 45, "gpu_power_max_watts")[0] == max(watts)
    assert site.values("node1", 45, "gpu_power_min_watts")[0] == min(watts)


def test_a_job_has_one_name_on_all_its_nodes_and_another_job_another() -> None:
    site = PlayedSite(JOINED)

    def job(name: str) -> set[str]:
        snapshot = site.sample(name, 5)
        return {dict(each.labels)["job_id"] for each, _ in snapshot if each.metric.name == "coldplate_gpu_job_info"}

    assert job("node1") == job("node2") == {"4711_1"}
    assert job("node3") == job("node4") == {"4711_2"}


def test_the_phases_of_a_job_are_in_step_on_all_its_nodes() -> None:
    site = PlayedSite(
        "racks: [{nodes: 2}]\njobs: [{id: a, nodes: all, gpus: all, phases: [{kind: power-swing, high: 7s, low: 9s}]}]"
    )
    means = [[mean(site.values(name, t, "gpu_power_instant_watts")) for name in ("node1", "node2")] for t in range(40)]
    computing = [[watts > 400.0 for watts in means_of_second] for means_of_second in means]
    assert all(one == two for one, two in computing)
    assert {one for one, _ in computing} == {True, False}


@pytest.mark.parametrize("kind", ["straggler", "lost", "checkpoint-stall"])
def test_the_gpus_of_other_nodes_wait_for_a_fault_of_one(kind: str) -> None:
    """They show full utilization at a quarter of their power; a job beside it goes on."""
    site = PlayedSite(f"{JOINED}faults: [{{kind: {kind}, node: node1, gpu: 5, at: 30s, duration: 60s}}]")

    def load(name: str, t: int) -> tuple[float, float]:
        return mean(site.values(name, t, "gpu_utilization_ratio")), mean(site.values(name, t, "gpu_power_watts"))

    loads = {(name, t): load(name, t) for t in (20, 40, 100) for name in ("node2", "node3")}
    assert min(busy for busy, _ in loads.values()) > 0.9
    assert [place for place, (_, watts) in loads.items() if watts < 600.0] == [("node2", 40)]
    assert loads["node2", 40][1] < 200.0


def test_the_neighbours_of_a_straggler_in_a_job_of_several_nodes_wait_too() -> None:
    site = PlayedSite(f"{JOINED}faults: [{{kind: straggler, node: node1, gpu: 5, at: 30s}}]")
    busy, watts = (site.values("node1", 45, name) for name in ("gpu_utilization_ratio", "gpu_power_watts"))
    assert busy[5] < 0.1 < 0.9 < min(busy[:5] + busy[6:])
    assert max(watts) < 200.0
    alone = PlayedSite("racks: [{nodes: 1}]\nfaults: [{kind: straggler, node: node1, gpu: 5, at: 30s}]")
    assert min(alone.values("node1", 45, "gpu_power_watts")[:5]) > 600.0


def test_a_rack_shows_the_sum_of_its_nodes_in_the_same_second() -> None:
    site = PlayedSite(
        "racks: [{count: 2, nodes: 3, power_budget: 40.8kW}]\n"
        "scenario: [{scenario: idle}, {scenario: thermal-throttle}]"
    )
    for t in (0, 31, 77):
        nodes = [site.one(f"node{number}", t, "node_power_watts") for number in (4, 5, 6)]
        for number in (4, 5, 6):
            assert site.one(f"node{number}", t, "rack_power_watts") == sum(nodes)
            assert site.one(f"node{number}", t, "rack_power_timestamp_seconds") == 1_700_000_000 + t
            assert site.one(f"node{number}", t, "rack_nodes_reporting") == 3
            assert site.one(f"node{number}", t, "rack_power_budget_watts") == 40_800.0


def test_a_rack_without_power_is_gone_and_comes_back() -> None:
    site = PlayedSite(
        "nodes_per_job: 8\nracks: [{count: 2, nodes: 4}]\n"
        "faults: [{kind: power-loss, rack: r2, at: 30s, duration: 60s}]"
    )
    counted = site.one("node5", 29, "ticks_total"), site.values("node5", 29, "gpu_energy_joules_total")[0]
    assert [name for name, node in site.nodes.items() if node.is_down(60)] == ["node5", "node6", "node7", "node8"]
    assert mean(site.values("node1", 60, "gpu_power_watts")) < 200.0, "its job waits for the nodes that are gone"
    assert site.one("node5", 91, "ticks_total") == 1 < counted[0] + 1, "another agent"
    assert site.values("node5", 91, "gpu_energy_joules_total")[0] > counted[1]
    assert mean(site.values("node1", 100, "gpu_power_watts")) > 600.0


def test_the_agent_of_a_node_that_comes_back_leaves_nothing_behind() -> None:
    """The collector passes over the nodes of a site: what held itself in a circle would stay for good."""
    site = PlayedSite("racks: [{nodes: 1}]\nfaults: [{kind: agent-down, node: node1, at: 30s, duration: 60s}]")
    site.page("node1", 10)
    before = weakref.ref(site.nodes["node1"].agent)
    gc.disable()
    try:
        site.page("node1", 95)
        assert before() is None
    finally:
        gc.enable()


def test_a_node_whose_agent_is_down_is_not_in_the_sum_of_its_rack() -> None:
    site = PlayedSite(
        "nodes_per_job: 4\nracks: [{nodes: 4}]\nfaults: [{kind: agent-down, node: node2, at: 30s, duration: 90s}]"
    )
    assert site.nodes["node2"].is_down(40)
    assert site.one("node1", 40, "rack_nodes_reporting") == 3
    assert site.values("node1", 40, "rack_peer_up") == [0.0, 1.0, 1.0]
    nodes = [site.one(f"node{number}", 40, "node_power_watts") for number in (1, 3, 4)]
    assert site.one("node1", 40, "rack_power_watts") == sum(nodes)
    assert site.values("node1", 40, "rack_power_conservative_watts") == [], "nobody knows what the silent one draws"
    assert [site.one("node1", t, "rack_nodes_missing") for t in (45, 65, 130)] == [0, 1, 0]
    assert mean(site.values("node1", 45, "gpu_power_watts")) > 600.0, "its job goes on"


def test_a_driver_that_hangs_or_is_gone_stops_nobody() -> None:
    site = PlayedSite(
        "racks: [{nodes: 2}]\nfaults:\n- {kind: hang, node: node1, gpu: 3, at: 20s, duration: 100s}\n"
        "- {kind: driver-unloaded, node: node2, at: 20s, duration: 100s}"
    )
    for t in (10, 25, 40, 55, 70):
        both = [site.values(name, t, "gpu_up") for name in ("node1", "node2")]
    assert both == [[1, 1, 1, 0, 1, 1, 1, 1], [0] * 8]
    site.sample("node1", 130)
    assert [site.values(name, 140, "gpu_up") for name in ("node1", "node2")] == [[1] * 8, [1] * 8]


def test_xid_errors_from_before_the_first_scrape_are_told() -> None:
    site = PlayedSite("racks: [{nodes: 1}]\nfaults: [{kind: xid, node: node1, gpu: 2, code: 94, at: 10s}]")
    assert sum(site.values("node1", 50, "gpu_xid_errors_total")) == 1


@pytest.mark.parametrize("scenario", ["healthy-training", "gpu-lost", "sensor-gaps"])
@pytest.mark.parametrize("topology", ["dgx-h100", "dgx-b200"])
def test_every_page_is_marked_as_synthetic(scenario: str, topology: str) -> None:
    site = PlayedSite(f"topology: {topology}\nscenario: {scenario}\nracks: [{{nodes: 1}}]")
    assert f'coldplate_synthetic_info{{scenario="{scenario}"}} 1'.encode() in site.page("node1", 200, Format.TEXT)
    assert site.page("node1", 215, Format.OPENMETRICS).endswith(b"# EOF\n")


def test_a_site_leaves_scenarios_as_they_are() -> None:
    before = load_scenario("straggler")
    PlayedSite("scenario: straggler\nnodes_per_job: 2\nracks: [{nodes: 2}]").sample("node1", 150)
    assert load_scenario("straggler") == before


CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: coldplate
  honor_labels: true
  basic_auth: &login {{username: scraper, password: secret}}
  http_sd_configs: [{{url: "http://127.0.0.1:{port}/sd", basic_auth: *login}}]
"""
SITE = "cluster: east\nnodes_per_job: 2\nracks: [{count: 2, nodes: 2, power_budget: 25kW}]\n"
SECRET = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
LOST = "faults: [{kind: power-loss, node: node4}]\n"


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "agent.cli", "simulate", *map(str, words)]


def site(folder: Path, port: int, *words: object) -> AbstractContextManager[Program]:
    """The program on this port, once it serves; it is ended if nobody else has."""
    words = (*words, "--web.listen-address", f"127.0.0.1:{port}")
    return program(command(*words), f"http://127.0.0.1:{port}/-/healthy", folder / "simulate.log")


def test_prometheus_finds_and_scrapes_every_node(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "site.yaml").write_text(SITE + LOST)
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{scraper: '{SECRET}'}}\n")
    words = [tmp_path / "site.yaml", "--web.config.file", tmp_path / "web.yml"]
    with site(tmp_path, port, *words), prometheus(CONFIG.format(port=port), tmp_path) as server:
        with pytest.raises(HTTPError, match="401"):
            fetch(f"http://127.0.0.1:{port}/sd")
        wait_until(lambda: query(server, "count(up) == 4 and sum(up) == 3"))
        gpus = query(server, 'count by (instance, rack, cluster, topology) (coldplate_gpu_up{job="coldplate"})')
        assert sorted((each["metric"]["instance"], each["metric"]["rack"], each["value"][1]) for each in gpus) == [
            ("node1", "r1", "8"),
            ("node2", "r1", "8"),
            ("node3", "r2", "8"),
        ]
        assert {(each["metric"]["cluster"], each["metric"]["topology"]) for each in gpus} == {("east", "dgx-h100")}
        (down,) = query(server, "up == 0")
        assert down["metric"]["instance"] == "node4"
        assert query(server, 'count({exported_rack!=""})') == []
        reporting = query(server, "max by (rack) (coldplate_rack_nodes_reporting)")
        assert {each["metric"]["rack"]: each["value"][1] for each in reporting} == {"r1": "2", "r2": "1"}


def test_it_ends_when_it_is_told_to(tmp_path: Path) -> None:
    for end in (signal.SIGTERM, signal.SIGINT):
        with site(tmp_path, free_port(), "--nodes", 1) as process:
            process.send_signal(end)
            assert process.wait(20) == 0
        log = (tmp_path / "simulate.log").read_text()
        assert [line.partition("msg=")[2].split()[0] for line in log.splitlines()] == ['"making', "serving", "stopped"]


def simulated(words: list[str]) -> tuple[int, str]:
    """Status and log of a site whose log says after each node how many are made."""
    site_service.NODES_PER_LOG_LINE = 1
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        return cli.main(["simulate", *words]), error.getvalue()


def test_the_log_says_how_many_nodes_are_made() -> None:
    status, log = warm.call(simulated, ["--nodes", "3", "--web.listen-address", "127.0.0.1:0", "--duration", "1ms"])
    lines = [line.partition("msg=")[2] for line in log.splitlines()]
    assert status == 0
    assert [line.partition(" made=")[2] for line in lines] == ["", "1 nodes=3", "2 nodes=3", "", ""]
    assert lines[0].endswith("nodes=3") and lines[3].startswith("serving nodes=3")


def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    port = free_port()
    with site(tmp_path, port, "--nodes", 1):
        second = warm.command(["simulate", "--nodes", "1", "--web.listen-address", f"127.0.0.1:{port}"])
    assert (second.status, second.error.count(b"\n")) == (2, 1)
    assert f"cannot listen on 127.0.0.1:{port}" in second.error.decode()
