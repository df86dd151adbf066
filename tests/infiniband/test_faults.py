"""What goes wrong on real nodes, and that each fault costs exactly itself."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.catalogue import BY_NAME
from agent.model import Lane, Reason
from tests.infiniband.conftest import of

BROKEN = (
    ("vl15_dropped_total", "counters/VL15_dropped", None, Reason.UNSUPPORTED, "Is a directory"),
    ("port_errors_received_total", "counters/port_rcv_errors", "N/A (no PMA)", Reason.UNSUPPORTED, "contains 'N/A"),
    ("port_discards_transmitted_total", "counters/port_xmit_discards", "", Reason.MALFORMED, "is empty"),
    ("symbol_error_total", "counters/symbol_error", "-1", Reason.MALFORMED, "contains '-1'"),
    ("port_transmit_wait_total", "counters/port_xmit_wait", "garbage", Reason.MALFORMED, "contains 'garbage'"),
    ("port_packets_received_total", "counters/port_rcv_packets", str(2**64), Reason.MALFORMED, f"contains '{2**64}'"),
    ("rate_bytes_per_second", "rate", "400 furlongs", Reason.MALFORMED, "contains '400 furlongs'"),
    ("physical_state_id", "phys_state", "5", Reason.MALFORMED, "contains '5'"),
)
"""Row, its file, what it contains (None: it is a directory), and the reason and words of the gap."""


@pytest.fixture
def broken(unpack) -> Path:
    """A node of two adapters, where the files of one are out of order."""
    sysfs = unpack("dgx-h100", "mlx5_0", "mlx5_3")
    for _, file, content, *_ in BROKEN:
        path = sysfs / "class/infiniband/mlx5_0/ports/1" / file
        if content is None:
            path.unlink()
            path.mkdir()
        else:
            path.write_text(content)
    return sysfs


def test_a_malformed_file_is_a_gap_that_names_it_and_affects_only_itself(broken, opened, page) -> None:
    shown = page(opened(broken))
    assert len(shown.gaps) == len(BROKEN)
    for row, file, _, reason, words in BROKEN:
        gap = shown.gap(row, "mlx5_0")
        assert gap.reason is reason
        assert f"/mlx5_0/ports/1/{file}: {words}" in gap.detail
    well = {each.metric for each in shown.readings if each.entity.device == "mlx5_3"}
    ill = {each.metric for each in shown.readings if each.entity.device == "mlx5_0"}
    assert well - ill == {BY_NAME[f"coldplate_infiniband_{row}"] for row, *_ in BROKEN}


ERRORS = (
    (errno.EINVAL, Reason.UNSUPPORTED),
    (errno.EOPNOTSUPP, Reason.UNSUPPORTED),
    (errno.EACCES, Reason.DENIED),
    (errno.EPERM, Reason.DENIED),
    (errno.EMFILE, Reason.DENIED),
    (errno.ETIMEDOUT, Reason.TIMEOUT),
    (errno.ENODATA, Reason.TIMEOUT),
    (errno.EIO, Reason.LOST),
    (errno.ENODEV, Reason.LOST),
    (errno.ESTALE, Reason.LOST),
)


def failing(file: str, code: int) -> Callable[[int, int, int], bytes]:
    """A pread that answers one file with an error, as a driver does."""

    def pread(fd: int, size: int, offset: int) -> bytes:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(file):
            raise OSError(code, os.strerror(code))
        return os.pread(fd, size, offset)

    return pread


@pytest.mark.parametrize(("code", "reason"), ERRORS)
@pytest.mark.parametrize("lane", [Lane.FAST, Lane.SLOW])
def test_what_the_driver_answers_becomes_the_reason(tree, opened, now, lane, code, reason) -> None:
    file = "mlx5_0/ports/1/counters/" + ("port_xmit_data" if lane is Lane.FAST else "VL15_dropped")
    good = len(opened(sysfs := tree("dgx-h100")).read(lane, now).readings)
    sample = opened(sysfs, pread=failing(file, code)).read(lane, now)
    (gap,) = sample.gaps
    assert gap.reason is reason
    assert f"{file}: {os.strerror(code)}" in gap.detail
    assert len(sample.readings) == good - 1


def test_facts_that_may_not_be_read_are_a_gap(tree, opened, now) -> None:
    def pread(fd: int, size: int, offset: int) -> bytes:
        raise PermissionError(errno.EACCES, "Permission denied")

    sample = opened(tree("dgx-h100"), pread=pread).read(Lane.COLD, now)
    assert not sample.readings
    assert [gap.reason for gap in sample.gaps] == [Reason.DENIED] * 9


def test_a_missing_file_is_unsupported_and_a_device_without_ports_a_gap(unpack, opened, now) -> None:
    sysfs = unpack("dgx-h100", "mlx5_0", "mlx5_3")
    (sysfs / "class/infiniband/mlx5_3/ports/1/phys_state").unlink()
    shutil.rmtree((sysfs / "class/infiniband/mlx5_0").resolve() / "ports")
    sample = opened(sysfs).read(Lane.SLOW, now)
    missing, silent = sorted(sample.gaps, key=lambda gap: gap.entity.device, reverse=True)
    assert (missing.metric.name, missing.reason) == ("coldplate_infiniband_physical_state_id", Reason.UNSUPPORTED)
    assert silent.detail.endswith("mlx5_0/ports: No such file or directory")
    assert {each.entity.device for each in sample.readings} == {"mlx5_3"}


class Node:
    def __init__(self, sysfs: Path) -> None:
        self.sysfs = sysfs
        self.links = sysfs / "class" / "infiniband"

    def set_state(self, state: str, device: str = "mlx5_0") -> None:
        (self.links / device / "ports/1/state").write_text(f"{state}\n")

    def unplug(self, device: str = "mlx5_0") -> None:
        home = (self.links / device).resolve()
        (self.links / device).unlink()
        home.rename(home.with_name("gone"))

    def plug(self, device: str = "mlx5_0") -> None:
        """The device is back with new files: what was open on the old ones stays dead."""
        (home,) = self.sysfs.glob("devices/**/gone")
        shutil.copytree(home, home.with_name(device), symlinks=True)
        shutil.rmtree(home)
        (self.links / device).symlink_to(home.with_name(device))


@pytest.fixture
def node(unpack) -> Node:
    return Node(unpack("dgx-h100", "mlx5_0", "mlx5_3"))


def dead(fd: int, size: int, offset: int) -> bytes:
    """A pread as of sysfs: a descriptor of an attribute whose device was removed answers ENODEV."""
    file = os.readlink(f"/proc/self/fd/{fd}")
    if "/gone/" in file or file.endswith(" (deleted)"):
        raise OSError(errno.ENODEV, "No such device")
    return os.pread(fd, size, offset)


def test_a_vanished_device_is_lost_alone_and_is_read_when_it_is_back(node, opened, now) -> None:
    backend = opened(node.sysfs, pread=dead)
    before = of(backend.read(Lane.FAST, now))
    node.unplug()
    for _ in range(2):
        sample = backend.read(Lane.FAST, now)
        after = of(sample)
        assert after.keys() == before.keys()
        assert {value for name, value in after.items() if name != "link_down_events_total"} == {Reason.LOST}
        assert of(sample, "mlx5_3")["port_up"] == 1
        assert set(of(backend.read(Lane.SLOW, now)).values()) == {Reason.LOST}
    backend.read(Lane.FAST, now)
    node.plug()
    assert of(backend.read(Lane.FAST, now)) == before


def test_a_device_that_was_replaced_between_two_reads_leaves_no_gap(node, opened, now) -> None:
    tried: list[str] = []

    def pread(fd: int, size: int, offset: int) -> bytes:
        tried.append(os.readlink(f"/proc/self/fd/{fd}"))
        return dead(fd, size, offset)

    backend = opened(node.sysfs, pread=pread)
    before = backend.read(Lane.FAST, now)
    node.unplug()
    node.plug()
    tried.clear()
    after = backend.read(Lane.FAST, now)
    assert (after.readings, after.gaps, after.calls) == (before.readings, before.gaps, before.calls)
    assert len(tried) == after.calls + 3, "each file of the device is tried, and opened anew"


def test_a_driver_that_is_unloaded_is_lost_not_absent(node, opened, now) -> None:
    backend = opened(node.sysfs, pread=dead)
    backend.read(Lane.FAST, now)
    node.links.rename(node.links.with_name("away"))
    (node.sysfs / "devices").rename(node.sysfs / "gone")
    for lane in (Lane.SLOW, Lane.FAST, Lane.COLD):
        sample = backend.read(lane, now)
        assert {gap.entity.device for gap in sample.gaps if gap.reason is Reason.LOST} >= {"mlx5_0", "mlx5_3"}


def test_files_that_a_driver_adds_or_takes_away_are_followed(node, opened, now, held) -> None:
    backend = opened(node.sysfs)
    first = backend.read(Lane.SLOW, now)
    counters = node.links / "mlx5_0/ports/1/hw_counters"
    (counters / "out_of_buffer").unlink()
    (counters / "brand_new").write_text("5\n")
    second = backend.read(Lane.SLOW, now)
    assert of(first).keys() - of(second).keys() == {"out_of_buffer_drops_total"}
    assert of(second)["brand_new_total"] == 5
    kept = {each.series: each.series for each in first.readings}
    assert [each.series for each in second.readings if kept.get(each.series) is not each.series] == [
        each.series for each in second.readings if each.metric.name.endswith("brand_new_total")
    ]
    assert len(held(node.sysfs)) == len(second.readings)


def test_a_directory_that_may_not_be_listed_is_tried_file_by_file(node, opened, now) -> None:
    counters = (node.links / "mlx5_0/ports/1/counters").resolve()
    shutil.rmtree(counters)
    counters.write_text("a file: listing it fails like a directory without permission\n")
    sample = opened(node.sysfs).read(Lane.FAST, now)
    gaps = [gap for gap in sample.gaps if gap.metric.name.endswith("port_data_received_bytes_total")]
    assert len(gaps) == 1
    assert of(sample)["port_up"] == 1


def test_leaving_the_active_state_counts_once_and_over_a_reload_of_the_driver(node, opened, now) -> None:
    backend = opened(node.sysfs, pread=dead)

    def events(state: str) -> tuple[object, object]:
        node.set_state(state)
        said = of(backend.read(Lane.FAST, now))
        return said["link_down_events_total"], said["port_up"]

    steps = ["1: DOWN", "4: ACTIVE", "1: DOWN", "1: DOWN", "2: INIT", "4: ACTIVE", "5: ACTIVE_DEFER", "4: ACTIVE"]
    assert [events(step) for step in steps] == [(0, 0), (0, 1), (1, 0), (1, 0), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert of(backend.read(Lane.FAST, now), "mlx5_3")["link_down_events_total"] == 0
    node.unplug()
    assert of(backend.read(Lane.FAST, now))["link_down_events_total"] == 2
    node.plug()
    assert events("1: DOWN") == (3, 0)
