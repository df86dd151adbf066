"""A file that blocks costs exactly itself, and an adapter whose firmware does not answer costs its own ports."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.backends.infiniband import InfinibandBackend
from agent.backends.protocol import BackendSample, DeviceError
from agent.catalogue.infiniband import INFO, PORT_UP, STATE_ID
from agent.model import LANES, Gap, Instant, Lane, Reason
from tests.infiniband.conftest import of
from tests.waiting import wait_until

PORT = "class/infiniband/{}/ports/1"


class Firmware:
    """A pread that hangs, for as long as it is told to, in files whose path has one of these words in it."""

    def __init__(self) -> None:
        self.stuck: set[str] = set()
        self.inside: list[str] = []
        self._released = threading.Event()

    def __call__(self, fd: int, size: int, offset: int) -> bytes:
        path = os.readlink(f"/proc/self/fd/{fd}")
        content = os.pread(fd, size, offset)
        if any(word in path for word in self.stuck):
            self.inside.append(path)
            self._released.wait(60)
            self.inside.remove(path)
        return content

    def cure(self) -> None:
        self.stuck.clear()
        self._released.set()
        wait_until(lambda: not self.inside)


def readers() -> int:
    return sum(thread.name == "infiniband-reader" for thread in threading.enumerate())


class Node:
    """A node of three ports whose firmware the test holds; each read is a second after the one before."""

    def __init__(self, sysfs: Path, opened: Callable[..., InfinibandBackend]) -> None:
        self.sysfs = sysfs
        self.firmware = Firmware()
        self.before = readers()
        self.backend = opened(sysfs, pread=self.firmware)
        self.mono = 0.0

    def read(self, lane: Lane) -> BackendSample:
        self.mono += 1.0
        return self.backend.read(lane, Instant(self.mono, 0.0))

    def write(self, device: str, file: str, content: object) -> None:
        (self.sysfs / PORT.format(device) / file).write_text(f"{content}\n")


def missing(sample: BackendSample) -> dict[tuple[str, str], Gap]:
    gaps = {
        (dict(each.entity.labels)["device"], each.metric.name.removeprefix("coldplate_infiniband_")): each
        for each in sample.gaps
    }
    assert len(gaps) == len(sample.gaps)
    return gaps


@pytest.fixture
def node(unpack, opened) -> Iterator[Node]:
    made = Node(unpack("dgx-h100", "mlx5_0", "mlx5_3", "mlx5_4"), opened)
    yield made
    made.firmware.cure()


@pytest.mark.parametrize(
    ("lane", "file", "row"),
    [
        (Lane.FAST, "counters/port_xmit_data", "port_data_transmitted_bytes_total"),
        (Lane.SLOW, "counters/VL15_dropped", "vl15_dropped_total"),
        (Lane.SLOW, "hw_counters/out_of_buffer", "out_of_buffer_drops_total"),
    ],
)
@pytest.mark.parametrize("known", [True, False], ids=["later", "from the start"])
def test_one_file_that_hangs_is_one_gap_and_all_else_is_fresh(node, lane, file, row, known: bool) -> None:
    if known:
        for each in LANES:
            node.read(each)
    whole = len(node.read(lane).readings) if known else None
    node.firmware.stuck.add(f"mlx5_3/ports/1/{file}")
    for count in range(3):
        for device in ("mlx5_0", "mlx5_3", "mlx5_4"):
            node.write(device, "counters/port_rcv_data", count)
            node.write(device, "counters/unicast_rcv_packets", count)
        sample = node.read(lane)
        ((place, gap),) = missing(sample).items()
        assert place == ("mlx5_3", row)
        assert gap.reason is Reason.TIMEOUT
        assert f"mlx5_3/ports/1/{file}: no answer for" in gap.detail
        fresh = ("port_data_received_bytes_total", 4) if lane is Lane.FAST else ("unicast_packets_received_total", 1)
        for device in ("mlx5_0", "mlx5_3", "mlx5_4"):
            assert of(sample, device)[fresh[0]] == count * fresh[1]
        assert whole in (None, len(sample.readings) + 1)
        whole = len(sample.readings) + 1
    assert len(node.firmware.inside) == 1
    assert readers() - node.before <= 2
    node.firmware.cure()
    again = node.read(lane)
    assert not again.gaps
    assert len(again.readings) == whole


def test_a_hanging_file_leaves_other_lanes_fresh_and_its_late_answer_is_not_shown(node) -> None:
    """It was read before the adapter went silent, and tells nothing about now."""
    well = {lane: len(node.read(lane).readings) for lane in LANES}
    node.write("mlx5_0", "counters/link_downed", 1)
    node.firmware.stuck.add("mlx5_0/ports/1/counters/link_downed")
    assert of(node.read(Lane.SLOW))["link_downed_total"] is Reason.TIMEOUT
    for lane in (Lane.FAST, Lane.COLD):
        sample = node.read(lane)
        assert (len(sample.readings), sample.gaps) == (well[lane], [])
    node.write("mlx5_0", "counters/link_downed", 9)
    node.firmware.cure()
    assert of(node.read(Lane.SLOW), "mlx5_0")["link_downed_total"] == 9


def test_a_state_that_hangs_leaves_link_up_unknown_and_keeps_the_count(node) -> None:
    for state in ("4: ACTIVE", "1: DOWN", "4: ACTIVE"):
        node.write("mlx5_0", "state", state)
        node.read(Lane.FAST)
    node.firmware.stuck.add("mlx5_0/ports/1/state")
    sample = node.read(Lane.FAST)
    assert {(gap.metric, gap.reason) for gap in sample.gaps} == {(STATE_ID, Reason.TIMEOUT), (PORT_UP, Reason.TIMEOUT)}
    assert of(sample, "mlx5_0")["link_down_events_total"] == 1
    assert of(sample, "mlx5_3")["port_up"] == 1


def test_an_adapter_whose_firmware_hangs_costs_its_ports_and_two_threads(node) -> None:
    well = {lane: node.read(lane) for lane in LANES}
    node.firmware.stuck.add("/mlx5_3/")
    for _ in range(2):
        for lane in LANES:
            sample = node.read(lane)
            gone = [each for each in well[lane].readings if each.entity.device == "mlx5_3"]
            told = {each.metric for each in sample.gaps} | {
                each.metric for each in sample.readings if each.entity.device == "mlx5_3"
            }
            assert told == {each.metric for each in gone}
            # What the adapter is stays; what it does is unknown.
            assert {(each.entity.device, each.reason) for each in sample.gaps} == (
                set() if lane is Lane.COLD else {("mlx5_3", Reason.TIMEOUT)}
            )
            assert all("mlx5_3" in each.detail for each in sample.gaps)
            for device in ("mlx5_0", "mlx5_4"):
                assert len(of(sample, device)) == len(of(well[lane], device))
    assert readers() - node.before <= 3
    assert len(node.firmware.inside) == 2
    node.firmware.cure()
    for lane in LANES:
        sample = node.read(lane)
        assert (sample.readings, sample.gaps) == (well[lane].readings, [])


@pytest.mark.parametrize("known", [True, False], ids=["known", "from the start"])
def test_a_fact_whose_file_hangs_stays_if_known_and_else_is_a_gap(node, opened, known: bool) -> None:
    well = (node.backend if known else opened(node.sysfs)).read(Lane.COLD, Instant(0.0, 0.0)).readings
    node.firmware.stuck.add("mlx5_3/fw_ver")
    for _ in range(2):
        sample = node.read(Lane.COLD)
        assert sample.readings == [each for each in well if known or each.entity.device != "mlx5_3"]
        told = [(gap.metric, gap.entity.device, gap.reason) for gap in sample.gaps]
        assert told == ([] if known else [(INFO, "mlx5_3", Reason.TIMEOUT)])
        assert all("mlx5_3/fw_ver: no answer for" in gap.detail for gap in sample.gaps)
    node.firmware.cure()
    (node.sysfs / "class/infiniband/mlx5_3/fw_ver").write_text("28.43.1014\n")
    again = [each for each in node.read(Lane.COLD).readings if each.entity.device == "mlx5_3"]
    assert [dict(each.labels)["firmware_version"] for each in again] == ["28.43.1014"]


def test_a_file_that_hangs_when_it_is_opened_affects_only_itself(node, odd) -> None:
    pipe = node.sysfs / PORT.format("mlx5_0") / "counters/symbol_error"
    odd.hang(pipe)
    for _ in range(2):
        assert set(missing(node.read(Lane.SLOW))) == {("mlx5_0", "symbol_error_total")}
    odd.release()
    pipe.unlink()
    pipe.write_text("5\n")
    wait_until(lambda: not node.read(Lane.SLOW).gaps)
    assert of(node.read(Lane.SLOW), "mlx5_0")["symbol_error_total"] == 5


def test_a_file_that_must_be_read_to_know_its_row_may_hang_as_well(unpack, opened, page, odd) -> None:
    """bnxt_re has its bytes twice; which of the two files feeds the standard row is decided by reading one."""
    sysfs = unpack("odd-drivers", "bnxt_re0", "mlx4_0")
    odd.hang(sysfs / PORT.format("bnxt_re0") / "counters/port_rcv_data")
    shows = page(opened(sysfs))
    assert shows.value("port_data_received_bytes_total", device="bnxt_re0") == 4321, "the driver's own file"
    assert shows.gap("port_rcv_data_total", "bnxt_re0").reason is Reason.TIMEOUT
    assert shows.value("port_up", device="mlx4_0", port="1") == 1


def test_where_not_even_the_list_of_devices_answers_the_read_fails_with_the_reason(
    tmp_path, opened, monkeypatch
) -> None:
    gate = threading.Event()
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: (gate.wait(60), scandir(path))[1])
    backend = opened(tmp_path)
    for lane in (Lane.FAST, Lane.SLOW):
        with pytest.raises(DeviceError, match="class/infiniband: no answer for") as told:
            backend.read(lane, Instant(1.0, 0.0))
        assert told.value.reason is Reason.TIMEOUT
    gate.set()


def test_a_device_with_a_silent_folder_is_a_gap_and_its_known_files_are_still_read(node, monkeypatch) -> None:
    scandir = os.scandir
    gate = threading.Event()

    def hang(path: str) -> Any:
        if "mlx5_3" in os.fspath(path):
            gate.wait(60)
        return scandir(path)

    with monkeypatch.context() as driver:
        driver.setattr(os, "scandir", hang)
        first = node.read(Lane.SLOW)
        assert {(gap.metric, gap.entity.device, gap.reason) for gap in first.gaps} == {(INFO, "mlx5_3", Reason.TIMEOUT)}
        assert of(first, "mlx5_0")
        gate.set()
        wait_until(lambda: not node.read(Lane.SLOW).gaps)
        gate.clear()
        known = node.read(Lane.SLOW)
        assert (known.gaps, len(of(known, "mlx5_3"))) == ([], len(of(known, "mlx5_0")))
        gate.set()


def test_a_file_that_is_removed_while_it_hangs_is_closed_only_by_its_reader(node, held) -> None:
    """Its number could be another file's by then."""
    for lane in LANES:
        node.read(lane)
    file = node.sysfs / PORT.format("mlx5_0") / "hw_counters/out_of_buffer"
    before = len(held(node.sysfs))
    node.firmware.stuck.add("hw_counters/out_of_buffer")
    node.read(Lane.SLOW)
    file.unlink()
    node.read(Lane.SLOW)
    assert any("out_of_buffer" in each and "mlx5_0" in each for each in held(node.sysfs))
    node.firmware.cure()
    node.read(Lane.SLOW)
    node.read(Lane.SLOW)
    assert not any("out_of_buffer" in each and "mlx5_0" in each for each in held(node.sysfs))
    assert len(held(node.sysfs)) == before - 1
