"""XIDs are counted once, from zero, and never dropped."""

from __future__ import annotations

from agent.model import Gpu, GpuIdentity, Xid
from agent.sampler.inventory import Inventory
from agent.sampler.xids import ZEROED, XidLedger


def ledger() -> XidLedger:
    inventory = Inventory(None)
    inventory.enumerate([GpuIdentity(Gpu("0", "GPU-a"), "0000:1b:00.0", "S", "H100")], None)
    return XidLedger(inventory)


def counts(ledger: XidLedger) -> dict[tuple[str, str], float]:
    return {
        (row.series.entity.labels[1][1], row.series.labels[0][1]): row.value
        for row in ledger.readings()
        if row.metric.name == "coldplate_gpu_xid_errors_total"
    }


def test_counters_of_known_codes_exist_at_zero_before_anything_happens() -> None:
    assert counts(ledger()) == {("GPU-a", str(code)): 0 for code in ZEROED}


def test_the_two_reports_of_one_error_count_once() -> None:
    book = ledger()
    book.enter(Xid("GPU-a", 79, 1000.0, "nvml"))
    book.enter(Xid("0000:1b:00", 79, 1000.4, "kmsg"))
    assert counts(book)["GPU-a", "79"] == 1


def test_the_order_of_the_reporters_does_not_matter_and_repeats_count() -> None:
    book = ledger()
    for wall in (1000.0, 1001.0, 1002.0):
        book.enter(Xid("0000:1b:00", 31, wall, "kmsg"))
    for wall in (1000.1, 1001.1, 1002.1):
        book.enter(Xid("GPU-a", 31, wall, "nvml"))
    assert counts(book)["GPU-a", "31"] == 3


def test_two_errors_far_apart_count_twice_though_each_was_reported_once() -> None:
    book = ledger()
    book.enter(Xid("GPU-a", 79, 1000.0, "nvml"))
    book.enter(Xid("0000:1b:00", 79, 1060.0, "kmsg"))
    assert counts(book)["GPU-a", "79"] == 2


def test_an_unknown_code_and_an_unknown_gpu_are_shown_all_the_same() -> None:
    book = ledger()
    book.enter(Xid("0000:9f:00", 999, 1000.0, "kmsg"))
    assert counts(book)["0000:9f:00", "999"] == 1
    last = [row for row in book.readings() if row.metric.name == "coldplate_gpu_xid_last_timestamp_seconds"]
    assert [row.value for row in last] == [1000.0]
