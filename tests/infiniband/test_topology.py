"""Which HCA is nearest to which GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.topology import OF_GPU, PciDistance, PciPath, TopologyBackend, distance
from agent.model import Backend, Gpu, GpuIdentity, Instant, Lane, Reading, Reason
from tests.fakes.trees import KINDS, OddTree

SLOTS = ("1b", "43", "52", "61", "9d", "c3", "d1", "df")
RAILS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11")


def gpu(index: int, slot: str) -> GpuIdentity:
    return GpuIdentity(Gpu(str(index), f"GPU-{index}"), slot, "", "")


def nearest_hcas(sysfs: Path, gpus: list[GpuIdentity]) -> list[Reading]:
    backend = TopologyBackend(sysfs, lambda: gpus)
    try:
        return list(backend.read(Lane.COLD, Instant(0.0, 0.0)).readings)
    finally:
        backend.close()


def pairs(readings: list[Reading]) -> list[tuple[str, ...]]:
    return [tuple(dict(each.series.all_labels)[name] for name in ("gpu", "device", "distance")) for each in readings]


def test_each_gpu_of_a_dgx_has_its_own_rail(tree) -> None:
    readings = nearest_hcas(tree("dgx-h100"), [gpu(i, f"0000:{slot}:00.0") for i, slot in enumerate(SLOTS)])
    assert pairs(readings) == [(str(index), rail, "PIX") for index, rail in enumerate(RAILS)]
    assert {each.value for each in readings} == {1}
    assert readings[0].series.all_labels == (
        ("gpu", "0"), ("uuid", "GPU-0"), ("device", "mlx5_0"), ("distance", "PIX"))  # fmt: skip


def test_a_series_is_made_once(tree) -> None:
    sysfs, gpus = tree("dgx-h100"), [gpu(0, "0000:1b:00.0")]
    assert nearest_hcas(sysfs, gpus)[0].series is nearest_hcas(sysfs, gpus)[0].series


@pytest.mark.parametrize("slot", ["0000:ff:00.0", "", "..", "/", "pci0000:15"])
def test_a_gpu_that_is_not_in_sysfs_is_left_out_and_the_others_stay(tree, slot) -> None:
    readings = nearest_hcas(tree("dgx-h100"), [gpu(0, slot), gpu(1, "0000:43:00.0")])
    assert pairs(readings) == [("1", "mlx5_3", "PIX")]


def test_without_hcas_there_is_nothing_to_say(tmp_path) -> None:
    assert nearest_hcas(tmp_path, [gpu(0, "0000:1b:00.0")]) == []


def add(sysfs: Path, path: str, numa: str, hca: str | None = None) -> str:
    """Put a PCI device at `path` below /sys/devices, and an HCA on it."""
    device = sysfs / "devices" / path
    device.mkdir(parents=True)
    (device / "numa_node").write_text(f"{numa}\n")
    slots = sysfs / "bus/pci/devices"
    slots.mkdir(parents=True, exist_ok=True)
    (slots / device.name).symlink_to(device)
    if hca is not None:
        (sysfs / "class/infiniband" / hca).mkdir(parents=True)
        (sysfs / "class/infiniband" / hca / "device").symlink_to(device)
    return device.name


@pytest.mark.parametrize(
    ("path", "numa", "expected"),
    [
        ("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:13:00.0", "0", "PIX"),
        ("pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:01.0/0000:13:00.0/0000:14:00.0/0000:15:00.0", "0", "PXB"),
        ("pci0000:10/0000:10:02.0/0000:20:00.0", "0", "PHB"),
        ("pci0000:30/0000:30:01.0/0000:31:00.0", "0", "NODE"),
        ("pci0000:30/0000:30:01.0/0000:31:00.0", "1", "SYS"),
        ("pci0000:30/0000:30:01.0/0000:31:00.0", "-1", "SYS"),
        ("pci0000:30/0000:30:01.0/0000:31:00.0", "none", "SYS"),
        ("pci0001:10/0001:10:01.0/0001:11:00.0", "0", "NODE"),
    ],
)
def test_distances_have_the_names_of_nvidia_smi_topo(tmp_path, path, numa, expected) -> None:
    slot = add(tmp_path, "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:1b:00.0", "0")
    add(tmp_path, path, numa, hca="mlx5_0")
    assert pairs(nearest_hcas(tmp_path, [gpu(0, slot)])) == [("0", "mlx5_0", expected)]


def test_all_hcas_at_the_least_distance_are_shown_and_no_other(tmp_path) -> None:
    slot = add(tmp_path, "pci0000:10/0000:10:01.0/0000:1b:00.0", "0")
    for name, path in (
        ("mlx5_0", "pci0000:20/0000:20:01.0/0000:21:00.0"),
        ("mlx5_1", "pci0000:20/0000:20:02.0/0000:22:00.0"),
    ):
        add(tmp_path, path, "0", hca=name)
    add(tmp_path, "pci0000:80/0000:80:01.0/0000:81:00.0", "1", hca="mlx5_2")
    assert pairs(nearest_hcas(tmp_path, [gpu(0, slot)])) == [("0", "mlx5_0", "NODE"), ("0", "mlx5_1", "NODE")]


def test_an_hca_that_is_not_on_pci_has_no_distance(unpack) -> None:
    sysfs = unpack("odd-drivers")
    slot = add(sysfs, "pci0000:00/0000:00:05.0/0000:09:00.0", "0")
    assert pairs(nearest_hcas(sysfs, [gpu(0, slot)])) == [("0", "mlx4_0", "PHB"), ("0", "rdmap0s29", "PHB")]


def test_an_unknown_numa_node_is_not_taken_for_the_same_one() -> None:
    assert distance(PciPath(("pci0000:10", "a"), -1), PciPath(("pci0000:20", "b"), -1)) is PciDistance.SYS


places = st.builds(PciPath, st.lists(st.sampled_from("abcd"), min_size=2, max_size=6).map(tuple), st.integers(-1, 1))


@given(places, places)
def test_distance_is_the_same_in_both_directions(one: PciPath, other: PciPath) -> None:
    assert distance(one, other) is distance(other, one)


@given(places)
def test_nothing_is_nearer_than_a_neighbour_below_the_same_port(place: PciPath) -> None:
    assert distance(place, place._replace(path=(*place.path[:-1], "neighbour"))) is (
        PciDistance.PIX if len(place.path) > 2 else PciDistance.PHB
    )


@pytest.fixture
def backend(unpack):
    """A backend over a tree of the test's own: `sysfs` is its root."""
    gpus = [gpu(index, f"0000:{slot}:00.0") for index, slot in enumerate(SLOTS)]
    made = TopologyBackend(unpack("dgx-h100"), lambda: gpus)
    yield made
    made.close()


def devices(sysfs: Path) -> Path:
    return sysfs / "class/infiniband"


@pytest.mark.parametrize("known", [True, False], ids=["later", "from the start"])
def test_a_device_that_hangs_keeps_its_place_or_is_unknown_and_the_others_are_shown(
    backend, tmp_path, known: bool
) -> None:
    tree = OddTree(0)
    sysfs = tmp_path / "dgx-h100"
    if known:
        backend.read(Lane.COLD, Instant(0.0, 0.0))
    tree.hang((devices(sysfs) / "mlx5_3/device").resolve() / "numa_node")
    for second in (1.0, 2.0):
        sample = backend.read(Lane.COLD, Instant(second, 0.0))
        rails = {(index, rail) for index, rail, _ in pairs(sample.readings)}
        assert rails >= {(str(index), rail) for index, rail in enumerate(RAILS) if known or rail != "mlx5_3"}
        assert {gap.reason for gap in sample.gaps} == (set() if known else {Reason.TIMEOUT})
        assert all("mlx5_3/device: no answer for" in gap.detail for gap in sample.gaps)
    tree.release()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_is_in_the_place_of_a_device_affects_only_that_device(backend, tmp_path, kind: str) -> None:
    sysfs = tmp_path / "dgx-h100"
    tree = OddTree(0)
    tree.spoil(devices(sysfs) / "mlx5_0/device", kind)
    tree.spoil((devices(sysfs) / "mlx5_4/device").resolve() / "numa_node", kind)
    tree.spoil(devices(sysfs) / "zz", kind)
    sample = backend.read(Lane.COLD, Instant(0.0, 0.0))
    told = {(index, rail) for index, rail, _ in pairs(sample.readings)}
    assert told >= {(str(index), rail) for index, rail in enumerate(RAILS) if index}


def test_more_adapters_than_are_shown_for_a_gpu_are_counted(backend, tmp_path) -> None:
    folder = devices(tmp_path / "dgx-h100")
    for number in range(OF_GPU + 4):
        (folder / f"mlx5_v{number}").mkdir()
        (folder / f"mlx5_v{number}/device").symlink_to((folder / "mlx5_0/device").resolve())
    sample = backend.read(Lane.COLD, Instant(0.0, 0.0))
    *readings, last = sample.readings
    assert (last.entity, last.value) == (Backend("topology"), 5)
    assert len([pair for pair in pairs(readings) if pair[0] == "0"]) == OF_GPU
