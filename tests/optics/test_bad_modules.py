"""Modules that are short, foreign, empty, changing or silent: each costs itself only, and says why."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable

import pytest

from agent.model import Reason
from tests.optics.conftest import Ports
from tests.optics.stand_in_module import StandInModule, copper_osfp, osfp, qsfp28
from tests.optics.test_transceivers import plug
from tests.waiting import wait_until

INFO = "coldplate_transceiver_info"


def beside(ports: Ports, module: StandInModule | int) -> dict[str, float]:
    """What is shown of `module` in eth0, beside a good one in eth1, which is not affected."""
    plug(ports, module)
    plug(ports, qsfp28(), "eth1")
    shown = ports.modules()
    assert "temperature_celsius eth1" in shown
    return {key: value for key, value in shown.items() if " eth0" in key}


def foreign(change: Callable[[StandInModule], None], module: StandInModule) -> StandInModule:
    change(module)
    return module


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
    shown = beside(ports, foreign(change, make()))
    assert shown == {}
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
            Reason.LOST, "MODULE_EEPROM_GET eth0: the module reports a fault",
        )
    }  # fmt: skip


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
    assert beside(ports, errno.EOPNOTSUPP) == {}
    assert ports.gaps() == {}
    assert beside(ports, errno.EIO) == {}, "an empty cage"
    assert ports.gaps() == {}


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


def test_a_module_that_hangs_costs_its_card_whose_modules_are_never_asked_two_at_once(ports: Ports) -> None:
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


def test_ports_that_cannot_be_asked_are_one_gap(ports: Ports) -> None:
    plug(ports, qsfp28())
    ports.kernel.family = errno.EACCES
    assert ports.modules() == {}
    assert ports.gaps()[INFO][0] is Reason.DENIED
