"""What is shipped is read, recognised and met by its machine; a site's mistakes; and what the agent tells of them."""

import logging
import re
from pathlib import Path

import pytest

from agent.backends.synthetic.machines import TOPOLOGIES as MACHINES
from agent.catalogue import BY_NAME
from agent.health.examination import (
    CHECKS,
    FACTS,
    FIRST_SECONDS,
    SETTLED_SECONDS,
    ExpectationChoice,
    ExpectationSeries,
    expectations_from_node,
    expected_of,
    format_expectations,
    run_checks,
    view_of,
)
from agent.health.expectations import (
    GENERIC,
    SHIPPED,
    ExpectationError,
    Expected,
    NodeExpectations,
    load_expectations,
    recognise,
    shipped_names,
)
from agent.health.verdicts import Verdict
from agent.model import IbPort, Instant, Node, Reading, Series, Snapshot
from tests.frames import snapshot_of

ALL = {check.name for check in CHECKS}
OF_MACHINE = {
    "dgx-a100": "dgx-a100",
    "dgx-h100": "dgx-h100",
    "dgx-h200": "dgx-h200",
    "dgx-b200": "hgx-b200",
    "gb200-tray": "gb200-tray",
    "dgx-h100-optics": "dgx-h100",
    "nvl72-tray": "gb200-tray",
    "nvl72-rack": "gb200-tray",
    "l40s-pcie": "generic",
}


def test_every_shipped_file_names_its_sources_says_what_it_is_for() -> None:
    for path in SHIPPED.glob("*.yaml"):
        assert re.match(r"# .*(NVIDIA|User Guide|As dgx)", path.read_text()), path
    assert set(shipped_names()) == set(OF_MACHINE.values()) - {"generic"}
    assert {load_expectations(name).node.description for name in shipped_names()}.__len__() == len(shipped_names())


@pytest.mark.parametrize("topology", MACHINES)
def test_a_healthy_machine_of_each_kind_is_recognised_and_meets_everything(machine, topology: str) -> None:
    view = view_of(machine(topology))
    expected = expected_of(view)
    assert expected.name == OF_MACHINE[topology]
    findings = run_checks(view, expected, ALL)
    assert [each for each in findings if each.is_met is False] == []
    assert [each for each in findings if each.verdict is Verdict.UNKNOWN] == []
    met = {each.name for each in findings if each.is_met}
    if topology == "dgx-h100":
        assert met == ALL - {"rack-nodes"}


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
    assert recognise(models, gpus).name == name


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("description: x\ngpu: 8\n", "gpu: unknown key; did you mean 'gpus'?"),
        ("description: x\ngpus: eight\n", "e.yaml:2: gpus: must be a whole number, found text; write gpus: 5"),
        ("description: x\ngpus: -1\n", "e.yaml:2: gpus: expected `int` >= 0"),
        ("gpus: 8\n", "e.yaml:1: description: is missing"),
        ("- 8\n", "e.yaml:1: must be a mapping, found a list"),
        ("description: x\ntopology: nvl72\n", "topology: unknown name 'nvl72'; did you mean 'gb200-nvl72'?"),
        ("description: x\nhca_distances: [near]\n", "hca_distances: 'near' is not a distance; give some of PIX, PXB"),
        ("description: [x\n", "e.yaml:1:"),
    ],
)
def test_a_mistake_names_file_key_and_remedy(tmp_path: Path, content: str, told: str) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(content)
    with pytest.raises(ExpectationError) as caught:
        load_expectations(str(path))
    assert str(path) in str(caught.value)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(ExpectationError, match=r"none\.yaml: "):
        load_expectations(str(tmp_path / "none.yaml"))


def test_what_was_learned_is_read_back_and_met(machine, tmp_path: Path) -> None:
    view = view_of(machine("gb200-tray"))
    node = expectations_from_node(view, "a tray that's ours: #1")
    path = tmp_path / "learned.yaml"
    path.write_text(format_expectations(node))
    assert load_expectations(str(path)).node == node
    assert node.nearest_hcas is not None
    assert len(node.nearest_hcas) == 4
    findings = run_checks(view, load_expectations(str(path)), ALL)
    assert [each for each in findings if each.is_met is False] == []
    assert {"ecc", "nearest-hca", "fabric", "gpu-memory"} <= {each.name for each in findings if each.is_met}


def test_a_rack_is_held_against_its_topology() -> None:
    series = Series(BY_NAME["coldplate_rack_nodes_expected"], Node())
    view = view_of(snapshot_of(1, Instant(1.0, 1.0), [Reading(series, 16)]))
    (finding,) = run_checks(view, load_expectations("gb200-tray"), {"rack-nodes"})
    assert (finding.verdict, finding.found) == (Verdict.WARNING, "16 configured")
    assert run_checks(view, load_expectations("dgx-h100"), {"rack-nodes"}) == []


def test_nothing_is_expected_of_a_node_without_gpus_but_no_reading_passes_for_well() -> None:
    view = view_of(snapshot_of(1, Instant(1.0, 1.0), []))
    for expected in (GENERIC, load_expectations("dgx-h100")):
        findings = {each.name: each.verdict for each in run_checks(view, expected, ALL)}
        assert Verdict.OK not in findings.values()
    assert findings["gpu-count"] is Verdict.CRITICAL
    assert findings["infiniband-ports"] is Verdict.UNKNOWN


def test_a_generic_node_minds_an_inactive_port_with_a_link_not_one_without_cable() -> None:
    def judged(state: float) -> Verdict:
        port = IbPort("mlx5_0", "1")
        readings = [
            Reading(Series(BY_NAME["coldplate_infiniband_port_up"], port), 0),
            Reading(Series(BY_NAME["coldplate_infiniband_physical_state_id"], port), state),
        ]
        view = view_of(snapshot_of(1, Instant(1.0, 1.0), readings))
        (finding,) = run_checks(view, GENERIC, {"infiniband-ports"})
        return finding.verdict

    assert judged(5) is Verdict.WARNING
    assert judged(2) is Verdict.OK


def test_an_expectation_of_one_fact_leaves_all_others_alone(machine) -> None:
    view = view_of(machine("dgx-h100"))
    expected = Expected("mine", NodeExpectations("mine", ports=12))
    short = [each for each in run_checks(view, expected, FACTS) if each.is_met is False]
    assert [(each.name, each.verdict) for each in short] == [("infiniband-ports", Verdict.CRITICAL)]


class Watched:
    """The series of a node whose latest snapshot the test sets."""

    def __init__(self, choice: ExpectationChoice) -> None:
        self.latest: Snapshot | None = None
        self.series = ExpectationSeries(lambda: self.latest, choice)
        self.now = 0.0

    def told(self, after: float = SETTLED_SECONDS) -> dict[str, float]:
        """By expectation, and by `=` and the name of all of them, what is told so many seconds later."""
        self.now += after
        frame = self.series.frame(Instant(self.now, self.now))
        return {
            ("=" if reading.metric.name.endswith("_info") else "") + reading.series.all_labels[0][1]: reading.value
            for reading in frame.readings
        }


def test_every_fact_that_is_known_has_a_series_unless_nothing_is_to_be_expected(look) -> None:
    watched = Watched(ExpectationChoice())
    assert watched.told() == {}
    watched.latest = look("healthy-training")
    assert watched.told() == {"=dgx-h100": 1.0, **dict.fromkeys(FACTS - {"rack-nodes"}, 1.0)}
    watched = Watched(ExpectationChoice(by_gpus=False))
    watched.latest = look("nvlink-down")
    assert watched.told() == {}


def test_a_fact_that_is_not_met_is_0_and_told_once_and_so_is_its_end(look, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "coldplate.expectations")
    watched = Watched(ExpectationChoice())
    for name, met in (("idle", 1.0), ("nvlink-down", 0.0), ("nvlink-down", 0.0), ("idle", 1.0), ("idle", 1.0)):
        watched.latest = look(name)
        told = watched.told()
        assert told["nvlinks"] == met
        assert told["gpu-count"] == 1.0
    assert [each.getMessage() for each in caplog.records] == [
        "expectation is not met",
        "expectation is met again: nvlinks",
    ]
    facts = vars(caplog.records[0])["facts"]
    assert (facts["expectation"], facts["found"]) == ("nvlinks", "GPU 2: 17 up, 1 down")


def test_the_facts_are_looked_at_now_and_then_and_at_once_after_a_change(look) -> None:
    watched = Watched(ExpectationChoice())
    watched.latest = look("idle")
    first = watched.series.frame(Instant(0.0, 0.0))
    watched.latest = look("nvlink-down")
    assert watched.told(after=FIRST_SECONDS - 1)["nvlinks"] == 1.0
    assert watched.told(after=1)["nvlinks"] == 0.0
    assert watched.series.frame(Instant(15.0, 15.0)).layout is first.layout
    watched.latest = look("idle")
    assert watched.told(after=FIRST_SECONDS)["nvlinks"] == 1.0
    assert watched.told(after=FIRST_SECONDS)["nvlinks"] == 1.0, "the same once more: settled"
    watched.latest = look("nvlink-down")
    assert watched.told(after=SETTLED_SECONDS - 1)["nvlinks"] == 1.0
    assert watched.told(after=1)["nvlinks"] == 0.0
    watched.series.reconfigure(ExpectationChoice(named=load_expectations("gb200-tray")))
    told = watched.told(after=0)
    assert told["=gb200-tray"] == 1.0
    assert told["gpu-count"] == 0.0
