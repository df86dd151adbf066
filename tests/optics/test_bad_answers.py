"""Answers that no kernel should give: each costs its own question, and says why."""

import errno
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.backends.optics import OpticsBackend
from agent.backends.protocol import DeviceError
from agent.model import Instant, Lane, Reason
from tests.fakes.trees import OddTree
from tests.optics.conftest import (
    FAMILY,
    FEC_GET,
    STATS_GET,
    Ports,
    StandInSocket,
    attr,
    fec,
    group,
    message,
    refused,
    u32,
    u64s,
)
from tests.optics.stand_in_module import StandInModule, copper_osfp, osfp, qsfp28
from tests.optics.test_transceivers import plug
from tests.waiting import wait_until

HEAD = bytes((30, 1, 0, 0))
WHOLE = message(FAMILY, HEAD + fec(50, u64s(2, 900), u64s(3, 0), u64s(4, 1000)))
NOISE = message(FAMILY, bytes((31, 1, 0, 0)))
"""A notification, which was not asked for."""


def answered(ports: Ports, *datagrams: bytes) -> None:
    """FEC_GET of eth0 is answered with these."""
    ports.healthy("eth0")
    ports.kernel.raw["eth0", FEC_GET] = list(datagrams)


@pytest.mark.parametrize(
    "datagrams",
    [
        (WHOLE,),
        (NOISE, WHOLE),
        (NOISE + WHOLE,),
        (message(FAMILY, HEAD + b"old", sequence=7), WHOLE),
        (message(3, b"\0\0\0\0"), WHOLE),
        (b"", WHOLE),
    ],
)
def test_the_answer_is_found_among_others(ports: Ports, datagrams: tuple[bytes, ...]) -> None:
    answered(ports, *datagrams)
    assert ports.read()["fec_corrected_blocks_total eth0"] == 900
    assert ports.gaps() == {}


@pytest.mark.parametrize(
    ("datagrams", "words"),
    [
        ((WHOLE[:-8],), "a message of"),
        ((NOISE + WHOLE[:-8],), "a message of"),
        ((WHOLE[:10],), "10 bytes where a message should begin"),
        ((WHOLE + b"\1\2",), None),
        ((b"\xff" * 40,), "a message of 4294967295 bytes in 40"),
        ((bytes(40),), "a message of 0 bytes in 40"),
        ((message(FAMILY, b"\x1e"),), "a generic message of 1 bytes"),
        ((message(2, b"\0"),), "an error message of 1 bytes"),
        ((refused(0),), "an acknowledgement"),
        ((message(FAMILY, HEAD + b"\1"),), "1 bytes where an attribute should begin"),
        ((message(FAMILY, HEAD + struct.pack("=HH", 3, 5)),), "an attribute of 3 bytes in 4"),
        ((message(FAMILY, HEAD + struct.pack("=HH", 200, 5)),), "an attribute of 200 bytes in 4"),
        ((message(FAMILY, HEAD + attr(5, attr(2, b"12345"))),), "5 bytes of counters"),
        ((message(FAMILY, HEAD + attr(5, u64s(2, *range(30)))),), "240 bytes of counters"),
        ((message(FAMILY, HEAD + attr(4, b"123")),), "a number of 3 bytes"),
        ((message(FAMILY, HEAD + attr(5, attr(5, u32(2, 1)))),), "a bin without its bounds"),
        ((message(FAMILY, HEAD + attr(5, attr(5, u32(2, 1) + u32(3, 1) + u32(4, 1)) * 65)),), "more than 64 bins"),
        ((message(FAMILY, HEAD + attr(1, attr(2, b"eth9\0"))),), "an answer about 'eth9'"),
        ((NOISE,) * 1000, "no answer among 16 messages"),
        ((message(FAMILY, HEAD + attr(9, b"") * 5000),), "more than 4096 attributes"),
    ],
)
def test_garbage_costs_only_its_question(ports: Ports, datagrams: tuple[bytes, ...], words: str | None) -> None:
    answered(ports, *datagrams)
    shown = ports.read()
    assert shown["symbol_errors_total eth0"] == 0
    assert shown["rate_bytes_per_second eth0"] == 50e9
    if words is None:
        assert shown["fec_corrected_blocks_total eth0"] == 900, "what follows an answer is not looked at"
        return
    assert not [key for key in shown if key.startswith("fec")]
    gaps = ports.gaps()
    assert set(gaps) == {
        "fec_info",
        "fec_corrected_blocks_total",
        "fec_uncorrectable_blocks_total",
        "fec_corrected_bit_errors_total",
    }
    assert {reason for reason, _ in gaps.values()} == {Reason.MALFORMED}
    assert all(words in detail for _, detail in gaps.values())


def test_statistics_not_requested_are_left_out_and_a_silent_kernel_is_a_timeout(ports: Ports) -> None:
    answered(ports)  # nothing
    odd = group(0, _0=3, _9=4) + group(7, _0=5) + attr(4, attr(4, u64s(0, 6))) + attr(9, b"x")
    ports.kernel.answers["eth0", STATS_GET] = odd + group(0, _0=8)
    assert ports.read()["symbol_errors_total eth0"] == 8, "the last one, if it is said twice"
    assert {gap: reason for gap, (reason, _) in ports.gaps().items() if reason is not Reason.TIMEOUT} == {
        "fcs_errors_total": Reason.UNSUPPORTED
    }


@pytest.mark.parametrize("family", [b"", attr(1, b"123"), attr(2, b"ethtool\0")])
def test_a_family_without_a_number_is_an_error_of_the_source(ports: Ports, family: bytes) -> None:
    ports.healthy("eth0")
    ports.kernel.family = family
    with pytest.raises(DeviceError, match="GETFAMILY ethtool") as failed:
        ports.read()
    assert failed.value.reason is Reason.MALFORMED


class StuckSocket(StandInSocket):
    """A kernel that does not return from a question about eth0: its driver waits for the firmware, under the lock."""

    release = threading.Event()

    def send(self, data: bytes, /) -> int:
        if b"eth0\0" in data:
            self.release.wait(60.0)
        return super().send(data)


def test_a_question_in_which_the_kernel_hangs_costs_its_own_port(tmp_path: Path) -> None:
    StuckSocket.release.clear()
    ports = Ports(tmp_path)
    ports.healthy("eth0")
    ports.healthy("eth1")
    ports.backend = OpticsBackend(tmp_path, lambda: StuckSocket(ports.kernel))
    try:
        shown = ports.read()
        assert {key for key in shown if "eth1" in key} == set(shown) != set()
        assert {reason for reason, _ in ports.gaps().values()} == {Reason.TIMEOUT}
        StuckSocket.release.set()
        wait_until(lambda: len(ports.read()) == 16)  # it is read again when the kernel is back
    finally:
        StuckSocket.release.set()
        ports.backend.close()


def test_while_sysfs_hangs_the_last_ports_stay_or_the_source_times_out(ports: Ports, odd: OddTree) -> None:
    ports.healthy("eth0")
    ports.healthy("eth1")
    assert len(ports.read()) == 16
    odd.hang(ports.sysfs / "class" / "net" / "eth1" / "phys_port_name")
    assert len(ports.read()) == 16
    assert ports.gaps() == {}
    other = OpticsBackend(ports.sysfs, ports.kernel.connect)
    with pytest.raises(DeviceError, match="class/net") as failed:
        other.read(Lane.SLOW, Instant(ports.now, 1e9))
    assert failed.value.reason is Reason.TIMEOUT
    other.close()


def test_sysfs_that_cannot_be_listed_is_an_error_of_the_source(ports: Ports) -> None:
    (ports.sysfs / "class").mkdir()
    (ports.sysfs / "class" / "net").write_text("no folder")
    with pytest.raises(DeviceError, match="class/net"):
        ports.read()


# Modules that are short, foreign, empty, changing or silent: each costs itself only, and says why.
INFO = "coldplate_transceiver_info"


def beside(ports: Ports, module: StandInModule | int) -> dict[str, float]:
    """What is shown of `module` in eth0, beside a good one in eth1, which is not affected."""
    plug(ports, module)
    shown = plug(ports, qsfp28(), "eth1").modules()
    assert "temperature_celsius eth1" in shown
    return {key: value for key, value in shown.items() if " eth0" in key}


BAD = [
    (lambda it: it.set(0, 0, b"\xff" * 128), qsfp28, Reason.MALFORMED, "all bytes are 0xff"),
    (lambda it: it.set(0, 22, b"\xff" * 36), qsfp28, Reason.MALFORMED, "page 00h from byte 22: all bytes are 0xff"),
    (lambda it: it.set(0x11, 154, b"\xff" * 48), osfp, Reason.MALFORMED, "page 11h from byte 154: all bytes are 0xff"),
    (lambda it: it.set(0, 1, b"\x0a"), qsfp28, Reason.UNSUPPORTED, "SFF-8636 of an unknown revision: 0x0a"),
    (lambda it: it.set(0, 1, b"\x61"), osfp, Reason.UNSUPPORTED, "CMIS of an unknown revision: 6.1"),
    (lambda it: it.set(0, 0, b"\x03"), qsfp28, Reason.UNSUPPORTED, "memory map is not known: identifier 0x03"),
    (lambda it: it.set(0, 0, b"\x00"), qsfp28, Reason.UNSUPPORTED, "memory map is not known: identifier 0x00"),
    (lambda it: it.set(0, 128, b"\x19"), qsfp28, Reason.MALFORMED, "changes while it is read: byte 0 is 0x11"),
    (lambda it: setattr(it, "cut", 20), qsfp28, Reason.MALFORMED, "page 00h from byte 128: 20 bytes, asked for 93"),
    (lambda it: setattr(it, "cut", 0), osfp, Reason.MALFORMED, "page 00h from byte 0: 0 bytes, asked for 3"),
    (lambda it: it.halves.pop((0, 0x11)), osfp, Reason.UNSUPPORTED, "Input/output error"),
]


@pytest.mark.parametrize(("change", "make", "reason", "words"), BAD)
def test_memory_that_cannot_be_right_costs_its_module_and_says_why(
    ports: Ports, change: Callable[[StandInModule], None], make: Callable[[], StandInModule], reason: Reason, words: str
) -> None:
    module = make()
    change(module)
    assert beside(ports, module) == {}
    if reason is Reason.UNSUPPORTED:  # another port of the node has it: no gap
        assert ports.gaps() == {}
        del ports.kernel.modules["eth1"]
        (ports.sysfs / "class" / "net" / "eth1").rename(ports.sysfs / "gone")
        ports.modules(0)
    assert list(ports.gaps()) == [INFO]
    said, detail = ports.gaps()[INFO]
    assert said is reason
    assert detail.startswith("MODULE_EEPROM_GET eth0: ")
    assert words in detail


@pytest.mark.parametrize("at", [(0x11, 154), (2, 128), (0, 166)])
def test_a_module_that_is_swapped_while_it_is_read_gives_nothing_of_either(ports: Ports, at: tuple[int, int]) -> None:
    module = osfp()

    def swap(page: int, offset: int) -> None:
        if (page, offset) == at:
            module.set(0, 166, b"SN0002".ljust(16))

    module.before = swap
    assert beside(ports, module) == {}
    reason, detail = ports.gaps()[INFO]
    assert reason is Reason.MALFORMED
    assert "changes while it is read: two serials" in detail
    shown = ports.modules()
    assert "info eth0 OSFP optical COLDPLATE OPTICS CP-TEST-1 SN0002" in shown


def test_a_fault_that_the_module_reports_costs_its_lanes(ports: Ports) -> None:
    module = osfp()
    module.set(0, 3, bytes((5 << 1,)))
    shown = beside(ports, module)
    assert shown["temperature_celsius eth0"] == 52.25
    assert ports.gaps() == {
        "coldplate_transceiver_receive_power_lowest_watts": (
            Reason.LOST,
            "MODULE_EEPROM_GET eth0: the module reports a fault",
        )
    }


def test_limits_that_cannot_be_read_cost_only_themselves_and_are_tried_again(ports: Ports) -> None:
    module = qsfp28()
    limits = module.halves.pop((0, 3))
    shown = beside(ports, module)
    assert shown["temperature_celsius eth0"] == 40.5
    assert not [key for key in shown if "_limit_" in key]
    assert ports.gaps()["coldplate_transceiver_receive_power_limit_watts"][0] is Reason.LOST
    module.halves[0, 3] = limits
    assert ports.modules()["temperature_limit_celsius eth0 alarm"] == 75
    assert ports.gaps() == {}


def test_without_the_capability_it_is_said_once_with_the_remedy(ports: Ports) -> None:
    for number in range(8):
        plug(ports, errno.EPERM, f"eth{number}")
    assert ports.modules() == {}
    ((row, (reason, detail)),) = ports.gaps().items()
    assert (row, reason) == (INFO, Reason.DENIED)
    assert detail.startswith("MODULE_EEPROM_GET eth0: needs CAP_NET_ADMIN, which docs/ports.md says how to allow")
    assert detail.endswith(" (and 7 more)")
    for _ in range(3):
        ports.modules()
    plug(ports, qsfp28())
    assert "temperature_celsius eth0" in ports.modules(), "a refusal costs no bus: no pause after it"


def test_a_driver_without_modules_is_no_gap_beside_one_that_has_them(ports: Ports) -> None:
    for number in (errno.EOPNOTSUPP, errno.EIO):  # that of an empty cage
        assert beside(ports, number) == {}
        assert ports.gaps() == {}


def test_ports_that_cannot_be_asked_are_one_gap(ports: Ports) -> None:
    plug(ports, qsfp28())
    ports.kernel.family = errno.EACCES
    assert ports.modules() == {}
    assert ports.gaps()[INFO][0] is Reason.DENIED


def test_a_module_that_goes_is_a_gap_and_is_left_alone_after_two_failures(ports: Ports) -> None:
    module = qsfp28()
    assert beside(ports, module)
    module.fault = errno.EIO
    module.transfers.clear()
    for _ in range(11):
        shown = ports.modules()
        assert not [key for key in shown if " eth0" in key]
        assert ports.gaps()[INFO][0] is Reason.LOST
    assert len(module.transfers) == 2
    module.fault = 0
    assert "temperature_celsius eth0" in ports.modules()
    assert ports.gaps() == {}


def on_card(ports: Ports, port: str, function: str) -> None:
    """Put a port on a PCI function."""
    folder = ports.sysfs / "devices" / function
    folder.mkdir(parents=True)
    device = ports.sysfs / "class" / "net" / port / "device"
    device.rmdir()
    device.symlink_to(folder)


def test_a_hanging_module_costs_its_card_whose_modules_are_read_one_at_a_time(ports: Ports) -> None:
    released = threading.Event()
    waiting: list[tuple[int, int]] = []
    hung, neighbour, good = qsfp28(), copper_osfp(), osfp()

    def wait(page: int, offset: int) -> None:
        waiting.append((page, offset))
        released.wait(20)

    hung.before = wait
    for port, module, function in (
        ("eth0", hung, "1b:00.0"),
        ("eth1", neighbour, "1b:00.1"),
        ("eth2", good, "1c:00.0"),
    ):
        plug(ports, module, port)
        on_card(ports, port, f"0000:{function}")
    shown = ports.modules()
    assert "temperature_celsius eth2" in shown
    reason, detail = ports.gaps()[INFO]
    assert reason is Reason.TIMEOUT
    assert detail.endswith(" (and 1 more)")
    ports.modules()
    ports.modules()
    assert waiting == [(0, 0)], "it hangs in its first read, and is not asked again"
    assert neighbour.transfers == [], "one bus, one question"
    hung.fault = neighbour.fault = errno.EIO
    released.set()
    wait_until(lambda: neighbour.transfers and not ports.kernel.open)  # their reader ends


def test_a_module_that_fails_now_and_then_is_not_left_alone(ports: Ports) -> None:
    module = qsfp28()
    plug(ports, module).modules()
    for _ in range(4):
        module.fault = errno.EIO
        ports.modules()
        module.fault = 0
        assert "temperature_celsius eth0" in ports.modules()
