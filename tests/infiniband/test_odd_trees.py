"""Trees that no driver should make: what is odd costs itself, and everything is bounded."""

import os
import shutil
import tracemalloc
from pathlib import Path

import pytest

from agent.backends.infiniband import InfinibandBackend
from agent.backends.infiniband.infiniband_backend import SERIES
from agent.backends.infiniband.infiniband_ports import MAX_DEVICES as LOOKED_INTO
from agent.backends.infiniband.infiniband_ports import MAX_PORTS as PORTS
from agent.backends.infiniband.infiniband_ports import MAX_UNKNOWN_FILES as FILES
from agent.backends.protocol import AbsentError
from agent.catalogue.infiniband import PHYSICAL_STATE_ID, PORT_UP, RATE
from agent.model import LANES, Entity, Gap, Instant, Lane, Metric, Series
from tests.fakes.trees import KINDS


def everything(
    backend: InfinibandBackend, second: float
) -> tuple[dict[Series, float], dict[tuple[Metric, Entity], Gap]]:
    """Values by series and gaps by row and port, from all lanes."""
    readings: dict[Series, float] = {}
    gaps: dict[tuple[Metric, Entity], Gap] = {}
    for lane in LANES:
        sample = backend.read(lane, Instant(second, 0.0))
        for each in sample.readings:
            assert each.series not in readings
            readings[each.series] = each.value
        gaps |= {(each.metric, each.entity): each for each in sample.gaps}
    return readings, gaps


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"missing"}))
def test_every_kind_of_oddness_is_a_gap_that_names_the_file(unpack, opened, odd, kind: str) -> None:
    root = unpack("dgx-h100", "mlx5_0")
    whole, _ = everything(opened(root), 0.0)
    lost: set[Metric] = set()
    for file in ("state", "rate", "counters/link_downed", "counters/VL15_dropped"):
        odd.spoil(root / "class/infiniband/mlx5_0/ports/1" / file, kind)
        readings, gaps = everything(opened(root), 0.0)
        told = {gap.metric for gap in gaps.values() if f"/ports/1/{file}: " in gap.detail}
        assert told
        lost |= told
        assert {gap.metric for gap in gaps.values()} == lost
        assert whole.keys() - readings.keys() == {series for series in whole if series.metric in lost}


NAMES = (b"mlx5\n0", b"mlx5\x1b[31m", b"mlx5_\xff\xfe", b'quo"te\\', b" ", "größe".encode(), b"x" * 200, b"..hidden")


def test_names_of_any_bytes_become_labels_that_a_page_and_a_terminal_can_show(tmp_path, opened, now) -> None:
    at = os.fsencode(tmp_path / "class/infiniband")
    for name in NAMES:
        port = at + b"/" + name + b"/ports/1"
        os.makedirs(port + b"/counters")
        for file in (b"state", b"counters/link_downed", b"counters/odd\nname\xff"):
            with open(port + b"/" + file, "wb") as out:
                out.write(b"4: ACTIVE\n" if file == b"state" else b"3\n")
    backend = opened(tmp_path)
    fast, slow = backend.read(Lane.FAST, now), backend.read(Lane.SLOW, now)
    assert len([each for each in fast.readings if each.metric is PORT_UP and each.value == 1]) == len(NAMES)
    own = [each for each in slow.readings if "odd_name" in each.metric.name]
    assert [each.value for each in own] == [3] * len(NAMES)
    for each in (*fast.readings, *slow.readings):
        for label, value in each.series.all_labels:
            assert value.isprintable(), (label, value)
            value.encode("utf-8")
        assert each.metric.help.isprintable()
    assert len({each.series for each in fast.readings}) == len(fast.readings)
    make_port(tmp_path, "mlx5\\n0")  # it looks like the first of them
    again = opened(tmp_path).read(Lane.FAST, now)
    assert len([each for each in again.readings if each.metric is PORT_UP]) == len(NAMES)


def make_port(root: Path, device: str) -> Path:
    """A port that is up; its folder."""
    port = root / "class/infiniband" / device / "ports/1"
    port.mkdir(parents=True)
    (port / "state").write_text("4: ACTIVE\n")
    return port


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """One port with far more counters than any driver has."""
    port = make_port(tmp_path, "mlx5_0")
    (port / "counters").mkdir()
    (port / "hw_counters").mkdir()
    (port / "counters/port_xmit_data").write_text("3\n")
    (port / "hw_counters/zz").write_text("1\n")
    (port / "hw_counters/out_of_buffer").write_text("2\n")
    for number in range(3 * FILES):
        os.link(port / "hw_counters/zz", port / f"hw_counters/a{number}")
    return tmp_path


def test_of_too_many_counters_the_known_ones_are_shown_and_the_rest_is_counted(crowd, opened, now, caplog) -> None:
    backend = opened(crowd)
    for _ in range(3):
        slow = backend.read(Lane.SLOW, now)
        rows = {each.metric.name for each in slow.readings}
        assert "coldplate_infiniband_out_of_buffer_drops_total" in rows
        assert len(slow.readings) == FILES + 1
        assert slow.left_out == 2 * FILES + 1
        assert {gap.metric for gap in slow.gaps} == {PHYSICAL_STATE_ID, RATE}, "files that this port does not have"
    assert len([record for record in caplog.records if "driver counters over" in record.message]) == 1


def test_the_fast_rows_of_every_port_come_before_the_rest_of_any(crowd, opened, now) -> None:
    devices = crowd / "class/infiniband"
    for number in range(1, 40):
        (devices / f"mlx5_{number}").symlink_to("mlx5_0")
    backend = opened(crowd)
    fast, slow = backend.read(Lane.FAST, now), backend.read(Lane.SLOW, now)
    assert len([each for each in fast.readings if each.metric is PORT_UP]) == 40
    known = [each for each in slow.readings if each.metric.name.endswith("out_of_buffer_drops_total")]
    assert len(known) == 40
    assert SERIES - FILES < len(fast.readings) + len(slow.readings) + len(slow.gaps) < SERIES + 200


def test_ports_beyond_the_bound_are_left_out_and_virtual_functions_first(tmp_path, opened, now) -> None:
    devices = tmp_path / "class/infiniband"
    for name, hardware in (("a_virtual", "virtual"), ("z_card", "card")):
        make_port(tmp_path, name)
        (tmp_path / hardware).mkdir()
        (devices / name / "device").symlink_to(tmp_path / hardware)
    (tmp_path / "virtual/physfn").symlink_to("../card")
    for number in range(PORTS + 50):
        (devices / f"a_virtual{number}").symlink_to("a_virtual")
    backend = opened(tmp_path)
    sample = backend.read(Lane.FAST, now)
    up = {each.entity.device for each in sample.readings if each.metric is PORT_UP}
    assert len(up) == PORTS
    assert "z_card" in up
    assert backend.read(Lane.SLOW, now).left_out > 0


def test_a_folder_of_devices_without_end_is_looked_into_up_to_a_bound(tmp_path, opened, now) -> None:
    devices = tmp_path / "class/infiniband"
    make_port(tmp_path, "a")
    for number in range(5_000):
        (devices / f"z{number}").symlink_to("nowhere")
    backend = opened(tmp_path)
    slow, fast = backend.read(Lane.SLOW, now), backend.read(Lane.FAST, now)
    assert [each.entity.device for each in fast.readings if each.metric is PORT_UP] == ["a"]
    assert slow.left_out == 5_001 - LOOKED_INTO
    assert len(slow.gaps) < LOOKED_INTO + 10
    (devices / "zz").symlink_to("nowhere")
    assert backend.read(Lane.SLOW, now).left_out == 5_002 - LOOKED_INTO


def test_what_comes_and_goes_leaves_nothing_behind_but_hardware_does(tmp_path, opened, now, held) -> None:
    devices = tmp_path / "class/infiniband"
    (tmp_path / "card").mkdir()
    backend = opened(tmp_path)
    make_port(tmp_path, "rxe0")
    backend.read(Lane.FAST, now)
    assert held(tmp_path)
    shutil.rmtree(devices / "rxe0")
    with pytest.raises(AbsentError):
        backend.read(Lane.SLOW, now)
    assert not held(tmp_path)
    for name in ("mlx5_0", "mlx5_gone"):
        make_port(tmp_path, name)
        (devices / name / "device").symlink_to(tmp_path / "card")
    for number in range(30):
        make_port(tmp_path, f"rxe{number}")
        backend.read(Lane.SLOW, now)
        shutil.rmtree(devices / f"rxe{number}")
    shutil.rmtree(devices / "mlx5_gone")
    slow, fast = backend.read(Lane.SLOW, now), backend.read(Lane.FAST, now)
    assert {gap.entity.device for gap in (*slow.gaps, *fast.gaps) if gap.entity.device != "mlx5_0"} == {"mlx5_gone"}
    assert [each.entity.device for each in fast.readings if each.metric is PORT_UP] == ["mlx5_0"]


def test_no_tree_takes_much_memory(tmp_path, opened, now, odd) -> None:
    port = make_port(tmp_path, "mlx5_0")
    (port / "counters").mkdir()
    for number in range(20):
        odd.spoil(port / f"counters/huge{number}", "huge")
    odd.spoil(port / "link_layer", "huge")
    odd.spoil(tmp_path / "class/infiniband/mlx5_0/board_id", "endless")
    first = port / "counters/c"
    first.write_text("1\n")
    for number in range(5 * FILES):
        os.link(first, port / f"counters/c{number}")
    backend = opened(tmp_path)
    tracemalloc.start()
    try:
        for lane in LANES:
            backend.read(lane, now)
        kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 24 << 20
    assert kept < 8 << 20
