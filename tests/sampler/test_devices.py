"""GPUs that have not said who they are: shown, counted once, told once, and gone from the page when they join."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.protocol import ChannelError, Unidentified
from agent.catalogue import BY_NAME
from agent.lib.state_files import replace_file
from agent.model import LANES, Gpu, GpuIdentity, Lane, Outcome, Reading, Reason, Series
from agent.sampler.devices import Devices, recognise
from agent.sampler.inventory import MOST, Inventory
from agent.sampler.schedule import Settings
from tests.sampler.rig import SamplerRig

POWER = BY_NAME["coldplate_gpu_power_watts"]


def gpu(number: int, place: int | None = None, uuid: str = "", serial: str = "") -> GpuIdentity:
    place = number if place is None else place
    entity = Gpu(str(number), uuid or f"GPU-{place}")
    return GpuIdentity(entity, f"0000:{place:02x}:00.0", serial or f"S{place}", "H100")


def silent(*numbers: int, reason: Reason = Reason.TIMEOUT) -> list[Unidentified]:
    return [Unidentified(str(number), reason, "no word") for number in numbers]


class Rig(SamplerRig):
    """A sampler that may know GPUs from before."""

    def __init__(self, settings: Settings | None = None, known: Sequence[GpuIdentity] = ()) -> None:
        inventory = Inventory(None)
        inventory.enumerate(list(known), None)
        super().__init__(settings, inventory)

    @classmethod
    def of(cls, count: int, at: float = 0.0, settings: Settings | None = None) -> Rig:
        """A sampler that has a sample of each of so many GPUs."""
        rig, gpus = cls(settings), [gpu(number) for number in range(count)]
        rig.enlist(gpus)
        rig.sample(at, *gpus)
        return rig

    def sample(self, at: float, *identities: GpuIdentity) -> None:
        for each in identities:
            self.take(each.gpu.uuid, Lane.FAST, at, [Reading(Series(POWER, each.gpu), 500.0)])

    def family(self, at: float, name: str) -> dict[tuple[str, str], float]:
        return {(row.get("gpu", ""), row.get("uuid", "")): value for row, value in self.rows(at, name)}

    def reasons(self, at: float) -> dict[tuple[str, str], str]:
        """Why no sample of a GPU is there, by index and UUID."""
        rows = [row for row, _ in self.rows(at, "coldplate_metric_missing")]
        age = "coldplate_gpu_sample_age_seconds"
        return {(row["gpu"], row["uuid"]): row["reason"] for row in rows if row["metric"] == age}

    def outcome(self, at: float) -> tuple[Outcome, str]:
        report = self.report(at, "nvml")
        return report.outcome, report.detail


def test_an_unknown_gpu_is_shown_by_its_index_until_it_joins() -> None:
    rig = Rig()
    rig.enlist([gpu(0)], silent(1, reason=Reason.DENIED))
    rig.sample(0.0, gpu(0))
    assert rig.family(0.5, "coldplate_gpu_up") == {("0", "GPU-0"): 1, ("1", ""): 0}
    assert rig.family(0.5, "coldplate_gpus_expected") == {("", ""): 2}
    assert rig.reasons(0.5) == {("1", ""): "denied"}
    rig.enlist([gpu(0), gpu(1)], at=5.0)
    rig.sample(5.0, gpu(0), gpu(1))
    assert rig.family(5.5, "coldplate_gpu_up") == {("0", "GPU-0"): 1, ("1", "GPU-1"): 1}
    assert rig.family(5.5, "coldplate_gpus_expected") == {("", ""): 2}
    assert rig.reasons(5.5) == {}
    rig.sampler.reconfigure(Settings(expected_gpus=8))
    assert rig.family(5.5, "coldplate_gpus_expected") == {("", ""): 8}, "a configured number stays"


def test_one_that_the_inventory_knows_is_that_one() -> None:
    rig = Rig(known=[gpu(0), gpu(1), gpu(2)])
    rig.enlist([gpu(0), gpu(2)], silent(1))
    rig.sample(0.0, gpu(0), gpu(2))
    assert rig.family(0.5, "coldplate_gpu_up") == {("0", "GPU-0"): 1, ("1", "GPU-1"): 0, ("2", "GPU-2"): 1}
    assert set(rig.family(0.5, "coldplate_gpu_info")) == {("0", "GPU-0"), ("1", "GPU-1"), ("2", "GPU-2")}
    assert rig.family(0.5, "coldplate_gpus_expected") == {("", ""): 3}
    assert rig.reasons(0.5) == {("1", "GPU-1"): "timeout"}


def test_the_readings_that_a_silent_one_had_before_are_missing_for_its_reason() -> None:
    rig = Rig()
    rig.enlist([gpu(0), gpu(1)])
    rig.sampler.take_error(ChannelError("GPU-1", Lane.FAST, 0.0, Reason.DENIED, "run as root"))
    assert rig.reasons(0.0) == {("1", "GPU-1"): "denied"}
    rig.sample(0.0, gpu(0), gpu(1))
    rig.sampler.refused(Reason.LOST, "the device worker was killed")
    rig.enlist([gpu(0)], silent(1), at=2.0)
    rig.sample(2.0, gpu(0))
    assert rig.missing(2.5)["GPU-1", POWER.name] == "timeout"
    assert ("GPU-1", "coldplate_gpu_power_max_watts") not in rig.missing(2.5), (
        "what is made of it is not missing itself"
    )
    assert rig.family(2.5, "coldplate_gpu_up") == {("0", "GPU-0"): 1, ("1", "GPU-1"): 0}


def test_a_silent_one_is_reported_once_and_once_when_it_is_not(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    with caplog.at_level(logging.INFO):
        for at in range(5):
            rig.enlist([gpu(0)], silent(1, reason=[Reason.TIMEOUT, Reason.LOST][at % 2]), float(at))
            rig.sample(float(at), gpu(0))
            rig.see(at + 0.5)
        rig.enlist([gpu(0), gpu(1)], at=6.0)
        rig.sample(6.0, gpu(0), gpu(1))
        rig.see(6.5)
    said = [record.message for record in caplog.records if getattr(record, "facts", {}).get("gpu") == "1"]
    assert said == ["GPU not identified", "GPU identified"]


def test_a_node_on_which_no_gpu_identifies_itself_is_a_failure_with_the_reasons() -> None:
    rig = Rig()
    rig.enlist([], silent(0, 1))
    outcome, detail = rig.outcome(0.5)
    assert outcome is Outcome.FAILED
    assert "none of the 2 GPUs" in detail
    assert rig.family(0.5, "coldplate_gpu_up") == {("0", ""): 0, ("1", ""): 0}
    rig.enlist([gpu(1)], silent(0), at=3.0)
    assert rig.outcome(3.5) == (Outcome.OK, "")


def test_a_gpu_that_identifies_itself_and_then_hangs_is_missing_with_a_reason() -> None:
    rig = Rig()
    rig.enlist([gpu(0), gpu(1)], at=0.0)
    rig.sample(0.5, gpu(0))
    assert rig.reasons(1.0) == {}  # its first sample may still come
    for at in (2.0, 4.0):
        rig.sample(at, gpu(0))
    assert rig.reasons(4.5) == {("1", "GPU-1"): "timeout"}


def test_before_any_device_was_shown_nothing_is_logged_about_remembered_ones() -> None:
    rig = Rig(known=[gpu(0)])
    assert rig.family(0.5, "coldplate_gpu_up") == {("0", "GPU-0"): 0}
    assert rig.reasons(0.5) == {}
    rig.sampler.refused(Reason.TIMEOUT, "the library is being opened")
    assert rig.reasons(1.0) == {("0", "GPU-0"): "timeout"}


def test_a_gpu_that_vanished_keeps_its_identity_until_a_reload_expects_fewer() -> None:
    rig = Rig.of(2)
    rig.enlist([gpu(0)])
    assert rig.family(0.5, "coldplate_gpu_up") == {("0", "GPU-0"): 1, ("1", "GPU-1"): 0}
    assert set(rig.family(0.5, "coldplate_gpu_info")) == {("0", "GPU-0"), ("1", "GPU-1")}
    assert rig.missing(0.5)["GPU-1", POWER.name] == "lost"
    rig.sampler.reconfigure(Settings(expected_gpus=1))
    assert set(rig.family(1.0, "coldplate_gpu_up")) == {("0", "GPU-0")}
    assert rig.missing(1.0) == {}


def test_an_error_that_was_a_mistake_heals_with_the_next_good_sample() -> None:
    rig = Rig.of(1)
    for lane in LANES:
        rig.sampler.take_error(ChannelError("GPU-0", lane, 0.5, Reason.LOST, "forged"))
        assert rig.family(0.6, "coldplate_gpu_up") == {("0", "GPU-0"): 0}
        rig.sample(1.0, gpu(0))
        assert rig.family(1.1, "coldplate_gpu_up") == {("0", "GPU-0"): 1}


NUMBERS = st.lists(st.integers(0, 7), unique=True)


@given(NUMBERS, NUMBERS, st.integers(0, 7))
def test_no_gpu_is_counted_twice(missing: list[int], absent: list[int], shift: int) -> None:
    """However the indexes moved, those shown are as many as are absent or as are silent, whichever is more."""
    gone = [gpu((number + shift) % 8, place=number) for number in absent]
    known, strangers = recognise(silent(*missing), gone)
    assert len(gone) + len(strangers) == max(len(missing), len(gone))
    assert set(known) <= {each.gpu.uuid for each in gone}
    assert len({each.index for each in strangers}) == len(strangers)


def test_the_one_with_the_same_index_is_that_one() -> None:
    known, strangers = recognise(silent(3, 5), [gpu(5), gpu(6)])
    assert {uuid: each.index for uuid, each in known.items()} == {"GPU-5": "5", "GPU-6": "3"}
    assert strangers == []


def test_a_gpu_that_goes_down_is_reported_once_and_once_when_it_is_back(caplog) -> None:
    rig = Rig.of(2)
    rig.see(0.5)
    caplog.set_level(logging.INFO)
    for second in range(1, 10):
        rig.sample(float(second), gpu(0))
        rig.sampler.take_error(ChannelError("GPU-1", Lane.FAST, float(second), Reason.LOST, "fell off the bus"))
        rig.see(second + 0.5)
    (told,) = caplog.records
    facts = {"gpu": "1", "uuid": "GPU-1", "slot": "0000:01:00.0", "reason": "lost", "detail": "fell off the bus"}
    assert (told.getMessage(), vars(told)["facts"]) == ("GPU is down", facts)
    rig.sample(10.0, gpu(0), gpu(1))
    rig.see(10.5)
    rig.see(14.0)
    back, *down = caplog.records[1:]
    assert back.getMessage() == "GPU is back"
    details = [vars(each)["facts"]["detail"] for each in down]
    assert details == ["no answer for 4.0 s"] * 2, "since when it has not answered, not since when it is sampled"


def test_while_the_driver_is_released_there_is_no_up_and_no_reading(caplog) -> None:
    rig = Rig.of(2, 1.0)
    rig.see(1.0)
    caplog.set_level(logging.INFO)
    caplog.clear()
    rig.sampler.pause("until later")
    for name in ("coldplate_gpu_up", "coldplate_gpus_expected", "coldplate_gpu_sample_age_seconds", POWER.name):
        assert rig.family(60.0, name) == {}
    assert len(rig.family(60.0, "coldplate_gpu_info")) == 2
    assert rig.reasons(60.0) == {("0", "GPU-0"): "paused", ("1", "GPU-1"): "paused"}
    assert rig.outcome(60.0) == (Outcome.ABSENT, "until later")
    rig.enlist([gpu(0), gpu(1)], at=600.0)
    rig.sample(600.5, gpu(0), gpu(1))
    assert rig.family(600.5, "coldplate_gpu_up") == {("0", "GPU-0"): 1, ("1", "GPU-1"): 1}
    assert rig.family(600.5, "coldplate_gpus_expected") == {("", ""): 2}
    assert caplog.records == []


def test_a_gpu_or_a_driver_that_is_not_back_after_the_pause_is_down() -> None:
    rig = Rig.of(2, 1.0)
    rig.sampler.pause("until later")
    rig.enlist([gpu(0)], at=600.0)
    rig.sample(600.5, gpu(0))
    assert rig.family(600.5, "coldplate_gpu_up") == {("0", "GPU-0"): 1, ("1", "GPU-1"): 0}
    rig.sampler.pause("until later")
    rig.sampler.refused(Reason.LOST, "the driver is not loaded")
    assert set(rig.family(660.0, "coldplate_gpu_up").values()) == {0}
    assert set(rig.reasons(660.0).values()) == {"lost"}


def test_gpus_are_up_while_the_agent_is_late_and_down_if_silent_afterwards() -> None:
    rig = Rig.of(2, 10.0, Settings(fast=1.0, deadline=5.0))
    rig.sampler.late(6.0, 17.0)  # the tick of 11 s came at 17 s
    assert set(rig.family(17.0, "coldplate_gpu_up").values()) == {1}
    assert len(rig.family(17.0, "coldplate_gpu_power_watts")) == 2
    rig.sample(18.0, gpu(1))
    rig.sampler.late(0.0, 21.0)
    assert set(rig.family(21.0, "coldplate_gpu_up").values()) == {1}
    assert rig.family(22.5, "coldplate_gpu_up") == {("0", "GPU-0"): 0, ("1", "GPU-1"): 1}, "5 s after it was asked"


# The ledger remembers GPUs across restarts, names swapped ones, and survives a damaged file.
PATIENCE = Settings().deadline


def kept(path: Path) -> Inventory:
    """An inventory that writes its file at once."""
    return Inventory(path, replace_file)


def test_a_swapped_gpu_is_named_and_what_is_known_outlives_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "inventory.state"
    kept(path).enumerate([gpu(0), gpu(1)], None)
    new = GpuIdentity(Gpu("1", "GPU-new"), "0000:01:00.0", "S9", "H200", (("vbios", "96.00"),))
    kept(path).enumerate([gpu(0), new], None)
    assert "GPU replaced" in caplog.text
    later = kept(path)
    assert later.gpus["0000:01:00.0"] == new
    assert later.replaced == {"0000:01:00.0": ("GPU-1", "S1")}
    rows = Devices(later).frame(0.0, PATIENCE, None).readings
    replaced = [dict(row.series.labels) for row in rows if row.metric.name == "coldplate_gpu_replaced_info"]
    assert replaced == [{"slot": "0000:01:00.0", "serial": "S9", "previous_uuid": "GPU-1", "previous_serial": "S1"}]
    up = {dict(row.series.all_labels)["uuid"] for row in rows if row.metric.name == "coldplate_gpu_up"}
    assert up == {"GPU-0", "GPU-new"}


def test_a_gpu_is_found_by_uuid_and_bus_id_when_it_moves(caplog: pytest.LogCaptureFixture) -> None:
    inventory = Inventory(None)
    inventory.enumerate([gpu(0), gpu(27)], 2)
    assert inventory.find("GPU-27") == inventory.find("0000:1B:00") == Gpu("27", "GPU-27")
    assert inventory.find("0000:99:00") is None
    inventory.enumerate([gpu(0), gpu(5, None, "GPU-27", "S27")], 2)
    assert [each.slot for each in inventory.gpus.values()] == ["0000:00:00.0", "0000:05:00.0"]
    inventory.enumerate([gpu(0)], 2)
    moved, missing = caplog.records
    assert moved.getMessage().startswith("GPU moved from slot")
    assert (missing.getMessage(), vars(missing)["facts"]["uuid"]) == ("GPU missing", "GPU-27")
    inventory.enumerate([gpu(0)], 1)  # it was taken out on purpose
    assert len(inventory.gpus) == 1


def test_an_inventory_that_is_not_to_be_written_is_read_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "inventory.state"
    kept(path).enumerate([gpu(0), gpu(1)], None)
    before = path.read_bytes()
    Inventory(path).enumerate([gpu(0), gpu(2)], None)
    assert path.read_bytes() == before
    path.write_bytes(b"damaged")
    assert Inventory(path).gpus == {} and path.read_bytes() == b"damaged"


def test_the_file_is_written_when_something_is_new_and_not_each_time(tmp_path: Path) -> None:
    written: list[bytes] = []
    inventory = Inventory(tmp_path / "inventory.state", lambda _path, content: written.append(content))
    for present in ([gpu(0)], [gpu(0)], [], [gpu(0), gpu(1)], [gpu(1), gpu(0)]):
        inventory.enumerate(present, None)
    assert len(written) == 2


def test_of_too_many_that_were_seen_those_that_are_there_stay_and_the_oldest_go() -> None:
    inventory = Inventory(None)
    inventory.enumerate([gpu(0), gpu(1)], None)
    inventory.enumerate([gpu(0), *(gpu(number) for number in range(2, MOST + 1))], None)
    assert {each.gpu.uuid for each in inventory.gpus.values()} == {"GPU-0"} | {f"GPU-{n}" for n in range(2, MOST + 1)}
    assert len(inventory.gpus) == MOST
