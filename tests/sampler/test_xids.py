"""XIDs are counted once, from zero, and never dropped."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.catalogue.xid_triage import TRIAGE
from agent.model import Gpu, GpuIdentity, Reading, Xid
from agent.sampler.inventory import Inventory
from agent.sampler.xids import CODES, KINDS, LINES, PAIRING_SECONDS, STRANGERS, XidLedger


def ledger() -> XidLedger:
    inventory = Inventory(None)
    inventory.enumerate([GpuIdentity(Gpu("0", "GPU-a"), "0000:1b:00.0", "S", "H100")], None)
    return XidLedger(inventory)


def rows(ledger: XidLedger, name: str) -> list[Reading]:
    return [row for row in ledger.frame().readings if row.metric.name == f"coldplate_gpu_{name}"]


def counts(ledger: XidLedger) -> dict[tuple[str, str], float]:
    found = rows(ledger, "xid_errors_total")
    return {(row.series.entity.labels[1][1], row.series.labels[0][1]): row.value for row in found}


def test_a_gpu_s_sum_over_all_codes_is_there_from_the_start() -> None:
    book = ledger()

    def sums() -> dict[str, float]:
        return {row.series.entity.labels[1][1]: row.value for row in rows(book, "xids_total")}

    assert sums() == {"GPU-a": 0}
    for code, wall in ((79, 1000.0), (79, 1100.0), (13, 1200.0)):
        book.add_xid(Xid("GPU-a", code, wall, "nvml"))
    book.add_xid(Xid("0000:9f:00", 999, 1000.0, "kmsg"))
    assert sums() == {"GPU-a": 3, "0000:9f:00": 1}


@pytest.mark.parametrize("first", ["nvml", "kmsg"])
def test_an_nvlink_error_counts_once_whichever_report_came_first(first: str) -> None:
    book = ledger()
    line = "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 0x00000000)"
    reports = [Xid("GPU-a", 149, 1000.0, "nvml"), Xid("0000:1b:00", 149, 1000.4, "kmsg", line)]
    for report in reports if first == "nvml" else reversed(reports):
        book.add_xid(report)
    book.add_xid(Xid("0000:1b:00", 149, 1060.0, "kmsg", line.replace("Fatal", "Nonfatal")))
    assert counts(book)["GPU-a", "149"] == 2
    graded = {row.series.labels: row.value for row in rows(book, "xid_graded_errors_total")}
    assert graded == {(("xid", "149"), ("grade", grade)): 1 for grade in ("fatal", "nonfatal")}


def test_codes_on_which_rules_act_are_shown_whatever_came_before() -> None:
    book = ledger()
    book.add_xid(Xid("0000:9f:00", 999, 1000.0, "kmsg"))
    assert counts(book)["0000:9f:00", "999"] == 1
    assert [row.value for row in rows(book, "xid_last_timestamp_seconds")] == [1000.0]
    for number in range(6_000):
        book.add_xid(Xid(f"GPU-x{number % 50}", 1000 + number, 1000.0, "nvml"))
    book.add_xid(Xid("GPU-a", 79, 1001.0, "nvml"))
    assert counts(book)["GPU-a", "79"] == 1


def test_codes_beyond_all_reason_are_counted_as_one_and_none_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    book = ledger()
    for code in range(6_000):
        book.add_xid(Xid("GPU-a", code, 1000.0 + code / 1e6, "nvml"))
    shown = counts(book)
    assert len(shown) <= CODES + len(TRIAGE) + 1
    assert shown["GPU-a", "79"] == 1
    assert shown["GPU-a", "other"] > 5_500
    assert sum(shown.values()) == 6_000
    assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1


def test_devices_beyond_all_reason_are_counted_as_one_and_none_is_lost() -> None:
    book = ledger()
    for number in range(6_000):
        book.add_xid(Xid(f"0000:{number:05x}", number % 700, 1000.0, "kmsg"))
    shown = counts(book)
    assert len({device for device, _ in shown}) == STRANGERS + 1
    assert len(shown) <= KINDS + len(TRIAGE) + STRANGERS + 2
    assert sum(shown.values()) == 6_000


def test_a_storm_that_both_report_counts_each_error_once() -> None:
    book = ledger()
    for burst in range(20):
        walls = [1000.0 + burst + each / 200 for each in range(200)]
        for wall in walls:
            book.add_xid(Xid("GPU-a", 31, wall, "nvml"))
        for wall in walls:  # the kernel log is read later, in one go
            book.add_xid(Xid("0000:1b:00", 31, wall + 0.9, "kmsg"))
    assert counts(book)["GPU-a", "31"] == 4000


def test_each_kind_is_reported_at_once_and_a_storm_of_it_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    book = ledger()
    with caplog.at_level(logging.INFO):
        for second in range(3600):
            book.add_xid(Xid("GPU-a", 31, 1e9 + second, "nvml", "MMU Fault"))
            book.flush_log(float(second))
            if second == 0:
                assert [record.message for record in caplog.records] == ["XID 31"]
    lines = [record.__dict__["facts"] for record in caplog.records]
    assert len(lines) <= 61
    told = sum(facts.get("times", 1) for facts in lines)
    assert 3600 - 60 <= told <= 3600
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for second in range(3600, 3720):
            for code in range(100):
                book.add_xid(Xid("GPU-a", code, 1e9 + second, "nvml"))
            book.flush_log(float(second))
    assert len([record for record in caplog.records if record.message.startswith("XID")]) <= 3 * LINES


@pytest.mark.parametrize(
    ("code", "text", "name", "action"),
    [
        (79, "", "GPU has fallen off the bus", "power-cycle the node"),
        (149, "149, NETIR Fatal XC0", "NVLink 5 error, unit NETIR", "reset the GPU"),
        (999, "", None, "read the log line and the catalog"),
    ],
)
def test_a_log_line_says_what_the_code_asks_for(caplog, code: int, text: str, name: str | None, action: str) -> None:
    book = ledger()
    book.add_xid(Xid("GPU-a", code, 1000.0, "kmsg", text))
    with caplog.at_level(logging.INFO):
        book.flush_log(0.0)
    (facts,) = (record.__dict__["facts"] for record in caplog.records)
    assert (facts.get("name"), facts["action"], facts.get("text")) == (name, action, text or None)


@pytest.mark.parametrize(
    ("apart", "errors"), [(PAIRING_SECONDS, 1), (-PAIRING_SECONDS, 1), (PAIRING_SECONDS + 0.5, 2), (-10.5, 2)]
)
def test_two_reports_within_ten_seconds_are_of_one_error(apart: float, errors: int) -> None:
    book = ledger()
    book.add_xid(Xid("GPU-a", 79, 1000.0, "nvml"))
    book.add_xid(Xid("0000:1b:00", 79, 1000.0 + apart, "kmsg"))
    assert counts(book)["GPU-a", "79"] == errors


@given(
    st.lists(st.tuples(st.sampled_from(["nvml", "kmsg"]), st.sampled_from([31, 79]), st.sampled_from([0, 1, 5, 6, 11])))
)
def test_errors_are_counted_as_by_crossing_reports_off_a_list(reports: list[tuple[str, int, int]]) -> None:
    """Each report crosses off the oldest one of the other reporter that is no older than it may be, or is an error."""
    book, wall = ledger(), 1000.0
    open_reports: list[tuple[str, int, float]] = []
    errors: dict[int, int] = {31: 0, 79: 0}
    seen: dict[int, float] = {}
    for reporter, code, later in reports:
        wall += later
        book.add_xid(Xid("GPU-a" if reporter == "nvml" else "0000:1b:00", code, wall, reporter))
        others = [each for each in open_reports if each[1] == code and each[0] != reporter]
        fresh = [each for each in others if each[2] >= wall - PAIRING_SECONDS]
        if fresh:
            open_reports.remove(fresh[0])
            continue
        errors[code] += 1
        seen[code] = wall
        open_reports = [each for each in open_reports if each not in others] + [(reporter, code, wall)]
    found = counts(book)
    assert {code: found.get(("GPU-a", str(code)), 0) for code in errors} == errors
    last = rows(book, "xid_last_timestamp_seconds")
    assert {int(row.series.labels[0][1]): row.value for row in last} == seen
