"""Which HCA is nearest to which GPU."""

import errno
import os
import resource
import shutil
import socket
from pathlib import Path

import pytest

from agent.backends.infiniband import InfinibandBackend
from agent.backends.topology import OF_GPU, TopologyBackend
from agent.model import LANES, Gpu, GpuIdentity, Instant, Lane, Reading, Reason
from tests import warm
from tests.fakes.trees import KINDS

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


def test_each_gpu_of_a_dgx_has_its_own_rail_and_a_series_that_is_made_once(tree, tmp_path) -> None:
    gpus = [gpu(i, f"0000:{slot}:00.0") for i, slot in enumerate(SLOTS)]
    readings = nearest_hcas(tree("dgx-h100"), gpus)
    assert pairs(readings) == [(str(index), rail, "PIX") for index, rail in enumerate(RAILS)]
    assert {each.value for each in readings} == {1}
    assert readings[0].series.all_labels == (("gpu", "0"), ("uuid", "GPU-0"), ("device", "mlx5_0"), ("distance", "PIX"))
    assert nearest_hcas(tree("dgx-h100"), gpus)[0].series is readings[0].series
    assert nearest_hcas(tmp_path, gpus) == [], "without HCAs"


@pytest.mark.parametrize("slot", ["0000:ff:00.0", "", "..", "/", "pci0000:15"])
def test_a_gpu_that_is_not_in_sysfs_is_left_out_and_the_others_stay(tree, slot) -> None:
    readings = nearest_hcas(tree("dgx-h100"), [gpu(0, slot), gpu(1, "0000:43:00.0")])
    assert pairs(readings) == [("1", "mlx5_3", "PIX")]


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
    own = "0" if numa.isdigit() else numa  # a node that is unknown is not another unknown one
    slot = add(tmp_path, "pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0/0000:1b:00.0", own)
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


@pytest.fixture
def backend(tree, tmp_path):
    """A backend over a tree of the test's own, without the ports, which it does not read."""
    gpus = [gpu(index, f"0000:{slot}:00.0") for index, slot in enumerate(SLOTS)]
    sysfs = tmp_path / "dgx-h100"
    shutil.copytree(tree("dgx-h100"), sysfs, symlinks=True, ignore=shutil.ignore_patterns("ports"))
    made = TopologyBackend(sysfs, lambda: gpus)
    yield made
    made.close()


def devices(sysfs: Path) -> Path:
    return sysfs / "class/infiniband"


@pytest.mark.parametrize("known", [True, False], ids=["later", "from the start"])
def test_a_device_that_hangs_keeps_its_place_or_is_unknown_and_the_others_are_shown(
    backend, tmp_path, odd, known: bool
) -> None:
    sysfs = tmp_path / "dgx-h100"
    if known:
        backend.read(Lane.COLD, Instant(0.0, 0.0))
    odd.hang((devices(sysfs) / "mlx5_3/device").resolve() / "numa_node")
    for second in (1.0, 2.0):
        sample = backend.read(Lane.COLD, Instant(second, 0.0))
        rails = {(index, rail) for index, rail, _ in pairs(sample.readings)}
        assert rails >= {(str(index), rail) for index, rail in enumerate(RAILS) if known or rail != "mlx5_3"}
        assert {gap.reason for gap in sample.gaps} == (set() if known else {Reason.TIMEOUT})
        assert all("mlx5_3/device: no answer for" in gap.detail for gap in sample.gaps)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_whatever_is_in_the_place_of_a_device_affects_only_that_device(backend, tmp_path, odd, kind: str) -> None:
    sysfs = tmp_path / "dgx-h100"
    odd.spoil(devices(sysfs) / "mlx5_0/device", kind)
    odd.spoil((devices(sysfs) / "mlx5_4/device").resolve() / "numa_node", kind)
    odd.spoil(devices(sysfs) / "zz", kind)
    sample = backend.read(Lane.COLD, Instant(0.0, 0.0))
    told = {(index, rail) for index, rail, _ in pairs(sample.readings)}
    assert told >= {(str(index), rail) for index, rail in enumerate(RAILS) if index}


def test_more_adapters_than_are_shown_for_a_gpu_are_counted(backend, tmp_path) -> None:
    folder = devices(tmp_path / "dgx-h100")
    for number in range(OF_GPU + 4):
        (folder / f"mlx5_v{number}").mkdir()
        (folder / f"mlx5_v{number}/device").symlink_to((folder / "mlx5_0/device").resolve())
    sample = backend.read(Lane.COLD, Instant(0.0, 0.0))
    assert sample.left_out == 5
    assert len([pair for pair in pairs(sample.readings) if pair[0] == "0"]) == OF_GPU


# Descriptors: within a budget that follows the process's limit, the fast lane first, and given back.
FAST_FILES = 3
"""Of a port of mlx5."""


def test_descriptors_stay_within_a_changing_budget_fast_lane_first(tree, opened, page, now, held) -> None:
    sysfs, budget = tree("dgx-h100"), 10_000
    backend = opened(sysfs, descriptors=lambda: budget)
    whole = page(backend).readings
    files = sum(len(backend.read(lane, now).readings) for lane in (Lane.FAST, Lane.SLOW)) - 2 * 9
    for budget in (50, 7, 9 * FAST_FILES, 0, 9 * FAST_FILES + 5, 10_000):
        assert page(backend).readings == page(backend).readings == whole
        assert len(held(sysfs)) == min(budget, files)
        if budget == 9 * FAST_FILES:
            assert {Path(file).name for file in held(sysfs)} == {"state", "port_rcv_data", "port_xmit_data"}
    backend.close()
    backend.close()
    assert held(sysfs) == []
    assert backend.read(Lane.FAST, now).readings, "a closed backend opens again"


def test_a_process_out_of_descriptors_loses_that_sample_of_that_file_and_heals(tree, opened, now) -> None:
    backend = opened(tree("dgx-h100"), descriptors=lambda: 9 * FAST_FILES - 1)
    good = backend.read(Lane.FAST, now)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 2, hard))
        while True:
            try:
                taken.append(os.open("/dev/null", os.O_RDONLY))
            except OSError:
                break
        short = backend.read(Lane.FAST, now)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
    (gap,) = short.gaps
    assert gap.reason is Reason.DENIED
    assert "Too many open files: raise LimitNOFILE" in gap.detail
    assert len(short.readings) == len(good.readings) - 1
    assert backend.read(Lane.FAST, now).readings == good.readings


STALE = (errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOENT, errno.EBADF)


@pytest.mark.parametrize("code", STALE)
def test_a_file_that_says_it_is_stale_whenever_it_is_read_is_tried_twice_and_heals(tree, opened, now, code) -> None:
    sick = False
    tries = 0

    def pread(fd: int, size: int, offset: int) -> bytes:
        nonlocal tries
        if sick and os.readlink(f"/proc/self/fd/{fd}").endswith("mlx5_0/ports/1/state"):
            tries += 1
            raise OSError(code, os.strerror(code))
        return os.pread(fd, size, offset)

    backend = opened(tree("dgx-h100"), pread=pread)
    good = backend.read(Lane.FAST, now)
    sick = True
    short = backend.read(Lane.FAST, now)
    assert tries == 2, "through the descriptor, and by the path"
    assert len(short.readings) == len(good.readings) - 2, "its state, and whether it is up"
    sick = False
    assert backend.read(Lane.FAST, now).readings == good.readings


def read_thrice(sysfs: str) -> tuple[list[tuple[str, int, int, int]], int]:
    """Ports, readings and gaps of each lane, with the usual limit and 400 sockets; and how many files are open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    backend, sockets, found = InfinibandBackend(sysfs), [socket.socket() for _ in range(400)], []
    for second in range(3):
        for lane in LANES:
            sample = backend.read(lane, Instant(float(second), 0.0))
            ports = {each.entity for each in sample.readings}
            found.append((lane.value, len(ports), len(sample.readings), len(sample.gaps)))
    return found, len(os.listdir("/proc/self/fd")) - len(sockets)


def test_a_thousand_ports_are_read_with_the_usual_limit(tmp_path: Path) -> None:
    """8 adapters with 127 virtual functions each, in a process that may have 1,024 descriptors and uses 400."""
    files = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)"}
    counters = ("port_rcv_data", "port_xmit_data", "port_rcv_packets", "link_downed", "port_rcv_errors")
    first = tmp_path / "class/infiniband/mlx5_0/ports/1"
    (first / "counters").mkdir(parents=True)
    for name, content in {**files, **{f"counters/{name}": "7" for name in counters}}.items():
        (first / name).write_text(content)
    for number in range(1, 8 * 127):
        shutil.copytree(first, tmp_path / f"class/infiniband/mlx5_{number}/ports/1", copy_function=os.link)
    found, files_open = warm.call(read_thrice, str(tmp_path))
    assert found == [("fast", 1016, 5080, 0), ("slow", 1016, 5080, 0), ("cold", 0, 0, 1016)] * 3
    assert files_open < 512 + 20
