"""The ledger remembers GPUs across restarts, names swapped ones, and survives a damaged file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from agent.lib.state_files import replace_file
from agent.model import Gpu, GpuIdentity
from agent.sampler.presence import MOST, Inventory, Presence
from agent.sampler.schedule import Settings

PATIENCE = Settings().deadline


def kept(path: Path) -> Inventory:
    """An inventory that writes its file at once."""
    return Inventory(path, replace_file)


def gpu(number: int, uuid: str = "", serial: str = "") -> GpuIdentity:
    return GpuIdentity(
        Gpu(str(number), uuid or f"GPU-{number}"), f"0000:{number:02x}:00.0", serial or f"S{number}", "H100"
    )


def series(presence: Presence, name: str, expected: int | None = None) -> dict[str, float]:
    rows = presence.frame(0.0, PATIENCE, expected).readings
    return {dict(row.series.all_labels).get("uuid", ""): row.value for row in rows if row.metric.name == name}


def test_a_swapped_gpu_is_named_and_takes_the_slot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "inventory.state"
    kept(path).enumerate([gpu(0), gpu(1)], None)
    later = kept(path)
    with caplog.at_level(logging.WARNING):
        later.enumerate([gpu(0), gpu(1, "GPU-new", "S9")], None)
    assert "GPU replaced" in caplog.text
    rows = Presence(later).frame(0.0, PATIENCE, None).readings
    replaced = [dict(row.series.labels) for row in rows if row.metric.name == "coldplate_gpu_replaced_info"]
    assert replaced == [{"slot": "0000:01:00.0", "serial": "S9", "previous_uuid": "GPU-1", "previous_serial": "S1"}]
    assert set(series(Presence(later), "coldplate_gpu_up")) == {"GPU-0", "GPU-new"}


def test_a_gpu_moved_to_another_slot_is_one_gpu(tmp_path: Path) -> None:
    inventory = Inventory(None)
    inventory.enumerate([gpu(0)], None)
    inventory.enumerate([gpu(5, "GPU-0", "S0")], None)
    assert [each.slot for each in inventory.gpus.values()] == ["0000:05:00.0"]


def test_gpus_taken_out_on_purpose_are_forgotten_when_the_configured_number_is_there() -> None:
    inventory = Inventory(None)
    inventory.enumerate([gpu(0), gpu(1)], None)
    inventory.enumerate([gpu(0)], 1)
    assert len(inventory.gpus) == 1


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"version": 2}', '{"version": 1, "gpus": [{}]}', "\x00" * 50])
def test_a_damaged_file_is_set_aside_and_never_fatal(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "inventory.state"
    path.write_text(damage)
    inventory = kept(path)
    assert inventory.gpus == {}
    assert (tmp_path / "inventory.damaged").read_text() == damage
    inventory.enumerate([gpu(0)], None)
    assert len(kept(path).gpus) == 1


def test_an_inventory_that_is_not_to_be_written_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "inventory.state"
    kept(path).enumerate([gpu(0), gpu(1)], None)
    before = path.read_bytes()
    Inventory(path).enumerate([gpu(0), gpu(2)], None)
    assert path.read_bytes() == before
    path.write_bytes(b"damaged")
    assert Inventory(path).gpus == {} and path.read_bytes() == b"damaged"


def test_a_device_is_found_by_uuid_and_by_bus_id() -> None:
    inventory = Inventory(None)
    inventory.enumerate([gpu(0), gpu(27)], None)
    assert inventory.find("GPU-27") == inventory.find("0000:1B:00") == Gpu("27", "GPU-27")
    assert inventory.find("0000:99:00") is None


def test_the_file_is_written_when_something_is_new_and_not_each_time(tmp_path: Path) -> None:
    written: list[bytes] = []
    inventory = Inventory(tmp_path / "inventory.state", lambda _path, content: written.append(content))
    for present in ([gpu(0)], [gpu(0)], [], [gpu(0), gpu(1)], [gpu(1), gpu(0)]):
        inventory.enumerate(present, None)
    assert len(written) == 2


def test_what_was_replaced_and_all_that_is_known_of_a_gpu_outlives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "inventory.state"
    now = GpuIdentity(Gpu("3", "GPU-new"), "0000:03:00.0", "S9", "H200", (("vbios", "96.00"),))
    before = kept(path)
    before.enumerate([gpu(3)], None)
    before.enumerate([now], None)
    later = kept(path)
    assert later.gpus == {"0000:03:00.0": now}
    assert later.replaced == {"0000:03:00.0": ("GPU-3", "S3")}


def test_a_missing_gpu_is_reported_with_each_enumeration_and_those_that_are_there_are_not(caplog) -> None:
    inventory = Inventory(None)
    inventory.enumerate([gpu(0), gpu(1)], 2)
    assert not caplog.records
    inventory.enumerate([gpu(0)], 2)
    assert [(each.getMessage(), vars(each)["facts"]["uuid"]) for each in caplog.records] == [("GPU missing", "GPU-1")]


def test_of_too_many_that_were_seen_those_that_are_there_stay_and_the_oldest_go() -> None:
    inventory = Inventory(None)
    inventory.enumerate([gpu(0), gpu(1)], None)
    inventory.enumerate([gpu(0), *(gpu(number) for number in range(2, MOST + 1))], None)
    assert {each.gpu.uuid for each in inventory.gpus.values()} == {"GPU-0"} | {f"GPU-{n}" for n in range(2, MOST + 1)}
    assert len(inventory.gpus) == MOST
