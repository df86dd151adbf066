"""What the kernel log tells about GPUs and NVSwitches, and what it must not make us believe."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.backends.kmsg import (
    RECORDS_PER_READ,
    SXID_KINDS,
    KmsgBackend,
    KmsgReader,
    is_inherited_kmsg,
    parse_removal,
    parse_xid,
)
from agent.backends.protocol import AbsentError
from agent.model import Instant, Lane, Reason
from tests.kmsg.conftest import FakeLog

FELL_OFF = "NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=python, GPU has fallen off the bus."
BOOT = 1_700_000_000.0


@pytest.mark.parametrize(
    ("line", "device", "code"),
    [
        (FELL_OFF, "0000:1b:00", 79),
        ("NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off", "0000:91:00", 79),
        ("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", "0000:01:00", 79),
        ("NVRM: Xid (PCI:00000000:1B:00): 31, pid=1, Ch 0000000a, intr 00000000. MMU Fault", "0000:1b:00", 31),
        ("NVRM: Xid (PCI:00010000:1b:00): 31, pid=1", "10000:1b:00", 31),
        ("NVRM: Xid (0000:03:00): 13, Graphics Exception", "0000:03:00", 13),
        ("NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 43, pid=77, Ch 00000008", "0000:1b:00", 43),
        ("NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x0 (None)", "0000:1b:00", 154),
        ("NVRM: GPU at PCI:0000:91:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b", None, None),
        ("NVRM: Xid (PCI:0000:1b:00): , pid=1", None, None),
        ("NVRM: Xid (PCI:0000:1b:00)", None, None),
        ("monitor[77]: saw NVRM: Xid (PCI:0000:1b:00): 79, pid=1", None, None),
        ("", None, None),
    ],
)
def test_every_known_form_of_an_xid_line_gives_device_and_code(line: str, device: str | None, code: int | None) -> None:
    """And other lines of the driver are no XIDs."""
    assert parse_xid(line) == (None if device is None else (device, code))


@pytest.mark.parametrize(
    ("line", "slot"),
    [
        ("NVRM: Attempting to remove device 0000:1b:00.0 with non-zero usage count!", "0000:1b:00.0"),
        ("NVRM: Attempting to remove device 00010000:1B:00.1 with non-zero usage count!", "10000:1b:00.1"),
        ("NVRM: Attempting to remove device 0000:1b:00.0", None),
        ("saw NVRM: Attempting to remove device 0000:1b:00.0 with non-zero usage count!", None),
        ("NVRM: Attempting to remove device ../../x:1b:00.0 with non-zero usage count!", None),
        (FELL_OFF, None),
    ],
)
def test_a_gpu_that_the_kernel_waits_to_remove_is_known_by_its_address(line: str, slot: str | None) -> None:
    assert parse_removal(line) == slot
    announced: list[str] = []
    log = FakeLog()
    backend = KmsgBackend(opener=lambda path: log, removal=announced.append)
    backend.read(Lane.FAST, Instant(100.0, BOOT + 100.0))
    log.write(line)
    assert backend.read(Lane.FAST, Instant(101.0, BOOT + 101.0)).readings == []
    assert announced == ([] if slot is None else [slot])


def test_an_sxid_is_counted_once_though_three_lines_describe_it(follower) -> None:
    for words in (
        "Non-fatal, Link 32 egress non-posted PRIV error",
        "Data {0x00140004, 0x00100000, 0x00140004}",
        "Severity 0 Engine instance 32 Sub-engine instance 00",
    ):
        follower.log.write(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, {words}")
    (reading,) = follower.read(101.0).readings
    assert reading.value == 1
    assert reading.series.labels == (("pci", "0000:c1:00.0"), ("sxid", "12028"), ("grade", "nonfatal"))
    assert reading.metric.name == "coldplate_node_nvswitch_sxid_errors_total"


def test_sxid_counts_grow_and_stay_and_are_separate_by_switch_code_and_grade(follower) -> None:
    for switch, code, words in (
        (0, 20034, ", Fatal, Link 30 LTSSM Fault Up"),
        (0, 20034, ", Fatal, Link 30 LTSSM Fault Up"),
        (1, 20034, ", Non-fatal, Link 30 LTSSM Fault Up"),
        (0, 26007, ", Fatality"),
        (0, 26007, ""),
    ):
        follower.log.write(f"nvidia-nvswitch{switch}: SXid (PCI:0004:0{switch}:00.0): {code}{words}")
    follower.read(101.0)
    again = follower.read(102.0)
    assert {tuple(value for _, value in each.series.labels): each.value for each in again.readings} == {
        ("0004:00:00.0", "20034", "fatal"): 2,
        ("0004:01:00.0", "20034", "nonfatal"): 1,
        ("0004:00:00.0", "26007", "unknown"): 2,
    }
    assert not again.events


def test_an_xid_becomes_one_event_with_its_words_and_is_not_reported_again(follower) -> None:
    follower.log.write(FELL_OFF, at=100.5)
    (xid,) = follower.read(101.0).events
    assert (xid.device, xid.code, xid.reporter, xid.text) == ("0000:1b:00", 79, "kmsg", FELL_OFF)
    assert xid.wall == pytest.approx(BOOT + 100.5)
    assert not follower.read(102.0).events


@pytest.mark.parametrize("stamp", [0.0, 99.0, 400.0, 1e12])
def test_a_drifting_log_clock_cannot_place_an_xid_outside_the_last_interval(follower, stamp: float) -> None:
    follower.read(100.0)
    follower.log.write(FELL_OFF, at=stamp)
    (xid,) = follower.read(101.0).events
    assert BOOT + 100.0 <= xid.wall <= BOOT + 101.0


def test_overwritten_records_do_not_stop_later_ones_and_only_first_lines_count(follower) -> None:
    follower.log.queue.append(BrokenPipeError(32, "Broken pipe"))
    follower.log.queue.append(f"6,9,1000000,-;usb 1-1: new device\n NAME={FELL_OFF}\n{FELL_OFF}\n".encode())
    follower.log.write(FELL_OFF)
    assert [xid.code for xid in follower.read(101.0).events] == [79]


def test_a_storm_is_read_over_several_ticks_and_nothing_of_it_is_lost(follower) -> None:
    for _ in range(RECORDS_PER_READ):
        follower.log.write("usb 1-1: reset high-speed USB device")
    follower.log.write(FELL_OFF)
    first = follower.read(101.0)
    assert first.calls == RECORDS_PER_READ
    assert not first.events
    assert [xid.code for xid in follower.read(102.0).events] == [79]


def test_a_denied_log_is_a_gap_that_names_the_file_and_the_capability() -> None:
    def deny(path: str) -> KmsgReader:
        raise PermissionError(1, "Operation not permitted", path)

    sample = KmsgBackend("/dev/kmsg", deny).read(Lane.FAST, Instant(1.0, BOOT))
    assert {gap.metric.name for gap in sample.gaps} == {
        "coldplate_gpu_xid_errors_total",
        "coldplate_gpu_xid_graded_errors_total",
        "coldplate_node_nvswitch_sxid_errors_total",
        "coldplate_node_gpu_driver_errors_total",
    }
    for gap in sample.gaps:
        assert (gap.reason, "/dev/kmsg" in gap.detail, "CAP_SYSLOG" in gap.detail) == (Reason.DENIED, True, True)


def test_a_missing_log_is_absent_and_its_old_records_do_not_count_when_it_appears(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    backend = KmsgBackend(str(path))
    with pytest.raises(AbsentError, match="kmsg does not exist"):
        backend.read(Lane.FAST, Instant(1.0, BOOT))
    path.write_bytes(f"3,1,1000000,-;{FELL_OFF}\n".encode())
    sample = backend.read(Lane.FAST, Instant(2.0, BOOT))
    assert (list(sample.gaps), list(sample.events)) == ([], [])
    with path.open("ab") as file:
        file.write(f"3,2,2000000,-;{FELL_OFF}\n".encode())
    assert len(backend.read(Lane.FAST, Instant(3.0, BOOT)).events) == 1
    backend.close()


FALLEN_OFF = (
    "NVRM: The NVIDIA GPU 0000:B3:00.0\\x0aNVRM: (PCI ID: 10de:2330) installed in this system has"
    "\\x0aNVRM: fallen off the bus and is not responding to commands.\\x0a"
)


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (FALLEN_OFF, ("0000:b3:00.0", "fallen_off_bus")),
        ("NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x24:0x65:1423)", ("0000:1b:00.0", "init_failed")),
        ("nvidia 0000:1b:00.0: probe with driver nvidia failed with error -1", ("0000:1b:00.0", "probe_failed")),
        ("nvidia: probe of 0000:1b:00.0 failed with error -1", ("0000:1b:00.0", "probe_failed")),
        ("mlx5_core: probe of 0000:1b:00.0 failed with error -1", None),
        ("NVRM: GPU 0000:1b:00.0: rm_init_adapter failed, device minor number 0", None),
        ("NVRM: The NVIDIA GPU 0000:01:00.0 (PCI ID: 10de:1180)\\x0aNVRM: installed in this system is supported", None),
    ],
)
def test_what_the_driver_could_not_take_is_counted_also_from_before_the_start(
    line: str, labels: tuple[str, str] | None
) -> None:
    log = FakeLog()
    log.write(line)
    log.write(FELL_OFF)
    backend = KmsgBackend("/dev/kmsg", lambda path: log)
    expected = {} if labels is None else {labels: 1.0}
    sample = backend.read(Lane.FAST, Instant(200.0, BOOT))
    assert not sample.events, "an XID of before the start is not news"
    assert {tuple(value for _, value in r.series.labels): r.value for r in sample.readings} == expected
    log.write(line)
    again = backend.read(Lane.FAST, Instant(201.0, BOOT))
    assert [r.value for r in again.readings] == [2.0] * len(expected)


def test_a_failing_log_is_closed_and_reopened_and_closing_twice_is_harmless(follower) -> None:
    follower.log.queue.append(OSError(5, "Input/output error"))
    with pytest.raises(OSError, match="Input/output error"):
        follower.read(101.0)
    assert follower.log.closed == 1
    follower.read(102.0)
    follower.log.write(FELL_OFF)
    assert len(follower.read(103.0).events) == 1
    follower.backend.close()
    follower.backend.close()
    assert follower.log.closed == 2


def test_the_real_kernel_log_can_be_followed_without_waiting(kernel_log: int) -> None:
    backend = KmsgBackend()
    try:
        assert not backend.read(Lane.FAST, Instant(1.0, BOOT)).gaps
    finally:
        backend.close()


@given(
    st.integers(0, 0xFFFFFFFF),
    st.integers(0, 255),
    st.integers(0, 31),
    st.integers(0, 10**9 - 1),
    st.text(max_size=80),
    st.booleans(),
)
def test_what_the_driver_prints_is_what_is_parsed(
    domain: int, bus: int, device: int, code: int, words: str, eight: bool
) -> None:
    width = 8 if eight else 4
    line = f"NVRM: Xid (PCI:{domain:0{width}x}:{bus:02X}:{device:02x}): {code}, {words}"
    assert parse_xid(line) == (f"{domain:04x}:{bus:02x}:{device:02x}", code)


def test_sxids_beyond_all_reason_are_counted_together_and_none_is_lost(follower, caplog) -> None:
    lines = 0
    for switch in range(300):
        for code in range(300):
            if (switch * 300 + code) % 9 == 0:
                follower.log.write(
                    f"nvidia-nvswitch0: SXid (PCI:{switch:04x}:c1:00.0): {code}, Non-fatal, Link 32 egress"
                )
                lines += 1
    sample = follower.read(101.0)
    at = 101.0
    while follower.log.queue:
        at += 1.0
        sample = follower.read(at)
    counts = {(r.series.labels[0][1], r.series.labels[1][1]): r.value for r in sample.readings}
    assert len(counts) == SXID_KINDS + 1
    assert counts["other", "other"] > 0
    assert sum(counts.values()) == lines
    assert len([record for record in caplog.records if "SXid limit reached" in record.message]) == 1


def test_a_log_that_would_block_is_an_error_and_not_waited_for(tmp_path: Path) -> None:
    """A pipe without a writer stands for it: neither opening nor reading it returns, unless told not to wait."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="Illegal seek"):
        KmsgBackend(str(pipe)).read(Lane.FAST, Instant(1.0, 1.0))


def test_an_ordinary_file_and_a_closed_descriptor_are_not_the_kernel_log(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    with path.open() as file:
        assert not is_inherited_kmsg(file.fileno())
    assert not is_inherited_kmsg(99)


def test_the_kernel_log_is_known_by_its_descriptor(kernel_log: int) -> None:
    assert is_inherited_kmsg(kernel_log)
    backend = KmsgBackend("standard input", lambda path: KmsgReader(path, kernel_log))
    assert not backend.read(Lane.FAST, Instant(time.monotonic(), time.time())).gaps
    backend.close()
    os.fstat(kernel_log)  # it is systemd's to close


def test_a_log_is_followed_through_a_descriptor_from_its_end(tmp_path: Path) -> None:
    """Through a file: a drill in the kernel's own log would be taken for real by whoever else reads it."""
    path = tmp_path / "log"
    path.write_text("4,1,1000000,-;NVRM: Xid (PCI:0000:1b:00): 48, of last week\n")
    with path.open("rb") as file:
        backend = KmsgBackend("standard input", lambda path: KmsgReader(path, file.fileno()))
        assert not backend.read(Lane.FAST, Instant(2.0, BOOT)).events
        with path.open("a") as log:
            log.write("4,2,3000000,-;NVRM: Xid (PCI:0000:1b:00): 79, of today\n")
        events = backend.read(Lane.FAST, Instant(4.0, BOOT)).events
        assert [(event.device, event.code) for event in events] == [("0000:1b:00", 79)]
        backend.close()
