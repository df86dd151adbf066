"""What is shipped is read, recognised and met by the machine that it is for; a site's mistakes are told in one line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.backends.synthetic.machines import TOPOLOGIES as MACHINES
from agent.catalogue import BY_NAME
from agent.health.examination import CHECKS, FACTS, examined, expected_of, view_of
from agent.health.expectations import (
    GENERIC,
    SHIPPED,
    TOPOLOGIES,
    ExpectationError,
    Expected,
    NodeExpectations,
    load_expectations,
    recognised,
    shipped_names,
    shipped_topologies,
)
from agent.health.learned_node import learned, written
from agent.health.verdicts import Verdict
from agent.model import IbPort, Instant, Node, Reading, Series
from tests.frames import snapshot_of

ROOT = Path(__file__).resolve().parents[2]
ALL = {check.name for check in CHECKS}
OF_MACHINE = {"dgx-a100": "dgx-a100", "dgx-h100": "dgx-h100", "dgx-h200": "dgx-h200", "dgx-b200": "hgx-b200",
              "gb200-tray": "gb200-tray", "dgx-h100-optics": "dgx-h100",
              "nvl72-tray": "gb200-tray", "nvl72-rack": "gb200-tray", "l40s-pcie": "generic"}  # fmt: skip


def test_every_shipped_file_names_its_sources_and_says_what_it_is_for() -> None:
    for path in (*SHIPPED.glob("*.yaml"), *TOPOLOGIES.glob("*.yaml")):
        assert re.match(r"# .*(NVIDIA|User Guide|As dgx)", path.read_text()), path
    assert set(shipped_names()) == set(OF_MACHINE.values()) - {"generic"}
    assert {load_expectations(name).node.description for name in shipped_names()}.__len__() == len(shipped_names())


def test_topologies_add_up() -> None:
    topologies = shipped_topologies()
    nvl72, pod = topologies["gb200-nvl72"], topologies["dgx-superpod"]
    tray, node = load_expectations("gb200-tray"), load_expectations("dgx-h100")
    assert (nvl72.nodes, nvl72.gpus, nvl72.links_per_gpu, nvl72.nvlink_domains) == (18, 72, 18, 1)
    assert (tray.topology, tray.node.nvlinks) == (nvl72, nvl72.links_per_gpu)
    assert nvl72.nodes * (tray.node.gpus or 0) == nvl72.gpus
    assert (pod.nodes, pod.unit_nodes) == (4, 32)
    assert pod.nodes * (node.node.gpus or 0) == pod.gpus


OF_HOST = {"fabric-manager", "mounts", "memory-errors"}
"""What is read of the host, which a synthetic machine does not have."""


@pytest.mark.parametrize("topology", MACHINES)
def test_a_healthy_machine_of_each_kind_is_recognised_and_meets_everything(machine, topology: str) -> None:
    view = view_of(machine(topology))
    expected = expected_of(view)
    assert expected.name == OF_MACHINE[topology]
    findings = examined(view, expected, ALL)
    assert [each for each in findings if each.is_met is False] == []
    assert [each for each in findings if each.verdict is Verdict.UNKNOWN] == []
    met = {each.name for each in findings if each.is_met}
    if topology == "dgx-h100":
        assert met == ALL - {"rack-nodes", *OF_HOST}


@pytest.mark.parametrize(
    ("models", "gpus", "name"),
    [
        (["NVIDIA H100 80GB HBM3"] * 7, 8, "dgx-h100"),
        (["NVIDIA H100 80GB HBM3"] * 5, 5, "dgx-h100"),
        (["NVIDIA H100 80GB HBM3"] * 4, 4, "generic"),
        (["NVIDIA H100 80GB HBM3"] * 9, 9, "generic"),
        (["NVIDIA H100 PCIe"] * 8, 8, "generic"),
        (["NVIDIA H100 80GB HBM3"] * 7 + ["NVIDIA H200"], 8, "generic"),
        (["NVIDIA GB200"] * 3, 3, "gb200-tray"),
        ([], 0, "generic"),
    ],
)
def test_a_node_is_recognised_by_its_gpus(models: list[str], gpus: int, name: str) -> None:
    assert recognised(models, gpus).name == name


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("description: x\ngpu: 8\n", "gpu: unknown key; did you mean 'gpus'?"),
        ("description: x\ngpus: eight\n", "Expected `int | null`, got `str` - at `$.gpus`; see docs/terminal.md"),
        ("description: x\ngpus: -1\n", "Expected `int` >= 0 - at `$.gpus`"),
        ("gpus: 8\n", "Object missing required field `description`"),
        ("- 8\n", "expected a mapping of keys, found"),
        ("description: x\ntopology: nvl72\n", "topology: unknown name 'nvl72'; did you mean 'gb200-nvl72'?"),
        ("description: x\nhca_distances: [near]\n", "hca_distances: 'near' is not a distance; give some of PIX, PXB"),
        ("description: [x\n", "e.yaml:1:"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_key_and_remedy(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(content)
    with pytest.raises(ExpectationError) as caught:
        load_expectations(str(path))
    assert str(path) in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_not_shipped_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(ExpectationError, match=r"'dgx-h10'; did you mean 'dgx-h\w+'\?.*needs a slash"):
        load_expectations("dgx-h10")
    with pytest.raises(ExpectationError, match=r"none\.yaml: "):
        load_expectations(str(tmp_path / "none.yaml"))


def test_what_was_learned_is_read_back_and_met(machine, tmp_path: Path) -> None:
    view = view_of(machine("gb200-tray"))
    node = learned(view, "a tray that's ours: #1", 5.0)
    path = tmp_path / "learned.yaml"
    path.write_text(written(node))
    assert load_expectations(str(path)).node == node
    assert node.nearest_hcas is not None
    assert len(node.nearest_hcas) == 4
    findings = examined(view, load_expectations(str(path)), ALL)
    assert [each for each in findings if each.is_met is False] == []
    assert {"ecc", "nearest-hca", "fabric", "gpu-memory"} <= {each.name for each in findings if each.is_met}


def test_a_rack_is_held_against_its_topology() -> None:
    series = Series(BY_NAME["coldplate_rack_nodes_expected"], Node())
    view = view_of(snapshot_of(1, Instant(1.0, 1.0), [Reading(series, 16)]))
    (finding,) = examined(view, load_expectations("gb200-tray"), {"rack-nodes"})
    assert (finding.verdict, finding.found) == (Verdict.WARNING, "16 nodes configured")
    assert examined(view, load_expectations("dgx-h100"), {"rack-nodes"}) == []


def test_the_agent_watches_what_a_node_is_and_leaves_how_it_does_to_alerts() -> None:
    states = {"gpus-present", "temperature", "throttling", "row-remaps", "recovery-action", *OF_HOST}
    assert states == ALL - FACTS


def test_nothing_is_expected_of_a_node_without_gpus_but_no_reading_passes_for_well() -> None:
    view = view_of(snapshot_of(1, Instant(1.0, 1.0), []))
    for expected in (GENERIC, load_expectations("dgx-h100")):
        findings = {each.name: each.verdict for each in examined(view, expected, ALL)}
        assert Verdict.OK not in findings.values()
    assert findings["gpu-count"] is Verdict.CRITICAL
    assert findings["infiniband-ports"] is Verdict.UNKNOWN


def test_a_generic_node_minds_a_port_that_has_a_link_and_is_not_active_but_not_one_without_a_cable() -> None:
    def judged(state: float) -> Verdict:
        port = IbPort("mlx5_0", "1")
        readings = [Reading(Series(BY_NAME["coldplate_infiniband_port_up"], port), 0),
                    Reading(Series(BY_NAME["coldplate_infiniband_physical_state_id"], port), state)]  # fmt: skip
        view = view_of(snapshot_of(1, Instant(1.0, 1.0), readings))
        (finding,) = examined(view, GENERIC, {"infiniband-ports"})
        return finding.verdict

    assert judged(5) is Verdict.WARNING
    assert judged(2) is Verdict.OK


def test_an_expectation_of_one_fact_leaves_all_others_alone(machine) -> None:
    view = view_of(machine("dgx-h100"))
    expected = Expected("mine", NodeExpectations("mine", ports=12))
    short = [each for each in examined(view, expected, FACTS) if each.is_met is False]
    assert [(each.name, each.verdict) for each in short] == [("infiniband-ports", Verdict.CRITICAL)]
