"""The trays of a rack tell each other which NVLink domain their GPUs are in: what is told, believed and shown."""

import json
from pathlib import Path

import pytest

from agent.backends.synthetic import SyntheticSource, load_scenario
from agent.catalogue import BY_NAME
from agent.catalogue.links import FABRIC_STATES
from agent.config.reading import parse
from agent.model import Gpu, Instant, Lane, Reading, Series
from agent.rack.nvlink_domain import DomainShare
from agent.rack.peer_messages import GarbageError, decode
from agent.rack.rack_options import RackOptions
from agent.wiring.peering import load_rack
from tests.frames import snapshot_of
from tests.rack.conftest import PEER, Rig, report_at

INFO, STATE = BY_NAME["coldplate_gpu_fabric_info"], BY_NAME["coldplate_gpu_fabric_state"]
CLUSTER = "9a6f1c52-3d0b-4e8e-9a41-5f27c0d1be64"


def joined(number: int, clique: str = "0", cluster: str = CLUSTER) -> list[Reading]:
    labels = (("cluster_uuid", cluster), ("clique", clique))
    return [Reading(Series(INFO, gpu(number), labels), 1.0), *registration(number, "completed")]


def registration(number: int, now: str) -> list[Reading]:
    return [Reading(Series(STATE, gpu(number), (("state", each),)), float(each == now)) for each in FABRIC_STATES]


def gpu(number: int) -> Gpu:
    return Gpu(str(number), f"GPU-{number}")


class Tray(Rig):
    """An agent of a rack of two, whose samples are of its GPUs."""

    def __init__(self, options: RackOptions = RackOptions("r1", entries=(PEER,))) -> None:  # noqa: B008  # frozen
        super().__init__(options)
        self.watch._finder.refresh()

    def see(self, *readings: Reading) -> None:
        self.watch.observe(snapshot_of(1, self.now, readings))

    def domains(self) -> tuple[DomainShare, ...]:
        return self.told().domains

    def shown(self, name: str) -> dict[tuple[str, ...], float]:
        found = self.watch.frame(self.now).readings
        return {
            tuple(value for _, value in each.labels): each.value
            for each in found
            if each.metric.name == f"coldplate_rack_nvlink_{name}"
        }


@pytest.fixture
def tray() -> Tray:
    return Tray()


def test_the_gpus_of_a_tray_are_counted_by_domain(tray: Tray) -> None:
    tray.see(*joined(0), *joined(1), *joined(2, clique="7"), *registration(3, "in_progress"))
    assert tray.domains() == (("", "", 1), (CLUSTER, "0", 2), (CLUSTER, "7", 1))
    tray.see(*joined(0), *joined(1), *joined(2), *joined(3))
    assert tray.domains() == ((CLUSTER, "0", 4),)


def test_nodes_whose_nvlinks_end_at_their_own_switches_tell_no_domain(tray: Tray) -> None:
    for cluster in ("", "00000000-0000-0000-0000-000000000000"):
        tray.see(*joined(0, cluster=cluster))
        assert tray.domains() == ()
    tray.see(*registration(0, "not_supported"))
    assert tray.domains() == ()
    assert tray.shown("gpus") == tray.shown("unregistered_gpus") == {}


def test_domains_of_all_trays_are_shown_under_their_own_names(tray: Tray) -> None:
    tray.see(*joined(0), *joined(1))
    tray.answer(None, domains=[[CLUSTER, "0", 3], ["", "", 1]])
    assert tray.shown("gpus") == {("n1:19400", CLUSTER, "0"): 2, ("n2:1", CLUSTER, "0"): 3}
    assert tray.shown("unregistered_gpus") == {("n1:19400",): 0, ("n2:1",): 1}
    tray.answer(None, domains=[[CLUSTER, "1", 4]])
    assert tray.shown("gpus") == {("n1:19400", CLUSTER, "0"): 2, ("n2:1", CLUSTER, "1"): 4}
    tray.see(*joined(0))
    tray.answer(None)
    assert tray.shown("gpus") == {("n1:19400", CLUSTER, "0"): 1}
    tray.answer(None, instance="n1:19400", domains=[[CLUSTER, "0", 4]])
    assert tray.shown("gpus") == {("n1:19400", CLUSTER, "0"): 5}


@pytest.mark.parametrize(
    "domains",
    [
        [[CLUSTER, "0", -1]],
        [[CLUSTER, "0", 1e9]],
        [[CLUSTER, "0"]],
        [["c" * 65, "0", 4]],
        [[CLUSTER, 0, 4]],
        [["c\n", "0", 4]],
        [[CLUSTER, "\x1b[2J", 4]],
        [[CLUSTER, str(each), 1] for each in range(17)],
        7,
    ],
)
def test_domains_that_cannot_be_are_refused_with_the_whole_report(tray: Tray, domains: object) -> None:
    tray.answer(None, domains=domains)
    assert tray.shown("gpus") == {}
    with pytest.raises(GarbageError):
        decode(json.dumps({**report_at(1_000.5), "domains": domains}).encode())


def test_a_rack_that_is_partitioned_on_purpose_says_so(tmp_path: Path) -> None:
    config = parse("rack: {name: r1, nvlink_domains: 2}", "test.yaml")
    assert Tray(load_rack(config, tmp_path)).shown("domains_expected") == {(): 2}


def test_a_synthetic_gpu_leaves_its_clique_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "split.yaml"
    path.write_text(
        "description: A GPU leaves its clique.\ntopology: gb200-tray\n"
        "faults: [{kind: clique, gpu: 2, at: 60s, duration: 60s, clique: 3}]\n"
    )
    tray = Tray()
    channels = list(SyntheticSource(load_scenario(str(path)), 0.0).open(Instant(0.0, 0.0)))
    for second, told in (
        (30.0, ((CLUSTER, "0", 4),)),
        (90.0, ((CLUSTER, "0", 3), (CLUSTER, "3", 1))),
        (150.0, ((CLUSTER, "0", 4),)),
    ):
        at = Instant(second, second)
        readings = [each for channel in channels for each in channel.read(Lane.COLD, at).readings]
        tray.see(*readings)
        assert tray.domains() == told
