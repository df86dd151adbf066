"""The modules of ports: their values in base units, and what is never read of them."""

from collections.abc import Callable

import pytest

from tests.optics.conftest import Ports
from tests.optics.stand_in_module import StandInModule, applications, copper_osfp, copper_qsfp, osfp, qsfp28

QSFP28 = {
    "info eth0 QSFP28 optical COLDPLATE OPTICS CP-TEST-1 SN0001": 1,
    "temperature_celsius eth0": 40.5,
    "supply_volts eth0": 3.3,
    "receive_power_lowest_watts eth0": 5e-4,
    "receive_power_highest_watts eth0": 8e-4,
    **{f"lane_receive_power_watts eth0 {lane}": (4 + lane) * 1e-4 for lane in (1, 2, 3, 4)},
    "transmit_power_lowest_watts eth0": 8.9e-4,
    **{f"lane_transmit_power_watts eth0 {lane}": 9e-4 for lane in (1, 2, 3)},
    "lane_transmit_power_watts eth0 4": 8.9e-4,
    "transmit_bias_highest_amperes eth0": 7.2e-3,
    **{f"lane_transmit_bias_amperes eth0 {lane}": 7e-3 for lane in (1, 2, 3)},
    "lane_transmit_bias_amperes eth0 4": 7.2e-3,
    "temperature_limit_celsius eth0 alarm": 75,
    "temperature_limit_celsius eth0 warning": 70,
    "receive_power_limit_watts eth0 alarm": 466e-7,
    "receive_power_limit_watts eth0 warning": 933e-7,
    "transmit_power_limit_watts eth0 alarm": 1e-4,
    "transmit_power_limit_watts eth0 warning": 2e-4,
    "transmit_bias_limit_amperes eth0 alarm": 10e-3,
    "transmit_bias_limit_amperes eth0 warning": 9e-3,
}


def plug(ports: Ports, module: StandInModule | int, port: str = "eth0") -> Ports:
    """Put a module into a port, or the error that reading it gives."""
    if not (ports.sysfs / "class" / "net" / port).exists():
        ports.add(port)
    ports.kernel.modules[port] = module
    return ports


def test_a_qsfp28_is_shown_in_base_units(ports: Ports) -> None:
    assert plug(ports, qsfp28()).modules() == pytest.approx(QSFP28)
    assert ports.gaps() == {}


@pytest.mark.parametrize("revision", [0x30, 0x40, 0x50, 0x52])
def test_an_osfp_of_any_revision_has_eight_lanes_and_scales_its_current(ports: Ports, revision: int) -> None:
    shown = plug(ports, osfp(revision=revision)).modules()
    assert shown["temperature_celsius eth0"] == 52.25
    assert [shown[f"lane_receive_power_watts eth0 {lane}"] for lane in range(1, 9)] == pytest.approx(
        [1e-3 + 1e-4 * lane for lane in range(8)]
    )
    assert shown["transmit_bias_highest_amperes eth0"] == pytest.approx(0.12)
    assert shown["transmit_bias_limit_amperes eth0 warning"] == pytest.approx(0.18)
    assert "lane_receive_power_watts eth0 9" not in shown


def test_sixteen_lanes_are_in_two_banks(ports: Ports) -> None:
    shown = plug(ports, osfp(banks=1)).modules()
    assert shown["lane_receive_power_watts eth0 16"] == pytest.approx(1.7001e-3)
    assert shown["lane_transmit_power_watts eth0 9"] == pytest.approx(1.5001e-3)
    assert shown["transmit_power_lowest_watts eth0"] == pytest.approx(1.5e-3)


@pytest.mark.parametrize(("make", "revision"), [(copper_qsfp, 7), (copper_osfp, 0x40), (copper_osfp, 5)])
def test_a_copper_cable_is_named_and_has_no_lanes_and_no_gap(
    ports: Ports, make: Callable[..., StandInModule], revision: int
) -> None:
    module = make()
    module.set(0, 1, bytes((revision,)))
    (shown,) = plug(ports, module).modules()
    assert " copper COLDPLATE OPTICS CP-TEST-1 SN0001" in shown
    assert ports.gaps() == {}
    assert {page for page, *_ in module.transfers} == {0}, "a flat memory has page 0 only"


@pytest.mark.parametrize(
    ("at", "said"),
    [
        pytest.param(212, 0x0F, id="an active cable"),
        *(pytest.param(3, state << 1, id=f"not ready, state {state}") for state in (1, 2, 4)),
    ],
)
def test_an_active_cable_or_unready_module_has_a_temperature_and_no_lanes(ports: Ports, at: int, said: int) -> None:
    module = osfp()
    module.set(0, at, bytes((said,)))
    shown = plug(ports, module).modules()
    assert shown["temperature_celsius eth0"] == 52.25
    assert not [key for key in shown if key.startswith("lane_") or "lowest" in key]
    assert ports.gaps() == {}


def test_no_light_is_zero_and_limits_that_were_never_written_are_not_shown(ports: Ports) -> None:
    module = qsfp28()
    module.words(0, 34, [0, 6000, 7000, 8000])
    module.set(0, 220, b"\x0a")  # it does not say that it measures what it sends
    module.set(3, 128, b"\xff" * 8)
    module.set(3, 176, bytes(8))
    module.words(3, 184, [5000, 1000, 9999, 1500])  # a warning above the alarm
    shown = plug(ports, module).modules()
    assert shown["lane_receive_power_watts eth0 1"] == shown["receive_power_lowest_watts eth0"] == 0
    assert shown["lane_transmit_power_watts eth0 4"] == pytest.approx(8.9e-4)
    assert [key for key in shown if "_limit_" in key] == [
        "transmit_power_limit_watts eth0 alarm",
        "transmit_power_limit_watts eth0 warning",
        "transmit_bias_limit_amperes eth0 alarm",
    ]


def test_lanes_and_values_that_a_module_does_not_have_are_left_out(ports: Ports) -> None:
    module = qsfp28()
    module.set(0, 113, b"\x0c")  # lanes 3 and 4 are not there
    module.set(0, 220, b"\x30")  # no transmit power
    module.words(0, 50, [0] * 4)
    module.words(0, 22, [0])
    module.words(0, 26, [0])
    shown = plug(ports, module).modules()
    assert [key for key in shown if key.startswith("lane_receive")] == [
        "lane_receive_power_watts eth0 1",
        "lane_receive_power_watts eth0 2",
    ]
    assert not [key for key in shown if "transmit_power_lowest" in key or key.startswith(("temperature_c", "supply"))]
    module = osfp()
    applications(module, (4, 4, 0x01, 0x01))
    module.set(1, 160, b"\x04")
    shown = plug(ports, module, "eth1").modules()
    assert [key[-1] for key in shown if key.startswith("lane_receive_power_watts eth1")] == ["1", "2", "3", "4"]
    assert not [key for key in shown if key.startswith("lane_transmit") and "eth1" in key]


@pytest.mark.parametrize(
    ("identifier", "missing", "listed", "lanes"),
    [
        (0x1E, 0x00, [(4, 4, 0x01, 0x01)], "1234"),
        (0x1E, 0x00, [(8, 8, 0x01, 0x01)], "1234"),
        (0x1E, 0x00, [], "1234"),
        (0x19, 0xFF, [(4, 4, 0x11, 0x11), (1, 1, 0xFF, 0xFF)], "12345678"),
        (0x18, 0xF0, [(8, 4, 0x01, 0x01), (2, 1, 0x55, 0x0F)], "1234"),
        (0x18, 0x00, [(8, 4, 0x01, 0x10)], "5678"),
        (0x19, 0x00, [(8, 2, 0x01, 0x00)], "12"),
        (0x19, 0x00, [(1, 1, 0x01, 0x01)] * 8 + [(4, 2, 0x11, 0x04)], "134"),
        (0x19, 0xF0, [], "1234"),
        (0x19, 0x00, [(8, 0, 0x01, 0x01)], "12345678"),
        (0x19, 0x00, [(8, 15, 0x01, 0xFF)], "12345678"),
    ],
)
def test_lanes_are_those_that_the_applications_use(
    ports: Ports, identifier: int, missing: int, listed: list[tuple[int, int, int, int]], lanes: str
) -> None:
    module = osfp()
    for at in (0, 128):
        module.set(0, at, bytes((identifier,)))
    module.set(0, 210, bytes((missing,)))
    applications(module, *listed)
    shown = plug(ports, module).modules()
    for row in ("receive_power_watts", "transmit_power_watts", "transmit_bias_amperes"):
        assert "".join(key[-1] for key in shown if key.startswith(f"lane_{row}")) == lanes


@pytest.mark.parametrize("compliance", [0x25, 0x26, 0x27, 0x28, 0x3A])
def test_a_qsfp28_of_one_lane_has_one(ports: Ports, compliance: int) -> None:
    module = qsfp28()
    module.set(0, 192, bytes((compliance,)))
    plug(ports, module)
    assert [key[-1] for key in ports.modules() if key.startswith("lane_receive")] == ["1"]


@pytest.mark.parametrize("make", [qsfp28, osfp])
def test_flags_that_clear_on_reading_are_never_read(ports: Ports, make: Callable[..., StandInModule]) -> None:
    module = make(b"SN")
    flags = range(3, 22) if make is qsfp28 else range(8, 14)
    plug(ports, module)
    for _ in range(3):
        ports.modules()
    for page, offset, length, _ in module.transfers:
        assert not set(range(offset, offset + length)) & set(flags) or offset >= 128
        assert page != 0x11 or offset >= 154
    assert {page for page, *_ in module.transfers} == ({0, 3} if make is qsfp28 else {0, 1, 2, 0x11})


def test_what_does_not_change_is_read_once_and_the_rest_once_a_minute(ports: Ports) -> None:
    module = osfp()
    first = plug(ports, module).modules()
    assert [page for page, *_ in module.transfers] == [0, 0, 0, 1, 2, 0, 0, 0x11, 0]
    module.transfers.clear()
    module.words(0, 14, [60 * 256])
    assert ports.modules(seconds=20) == first
    assert module.transfers == []
    assert ports.modules(seconds=40)["temperature_celsius eth0"] == 60
    assert [page for page, *_ in module.transfers] == [0, 0, 0, 0, 0x11, 0]


def test_another_module_is_named_and_judged_by_its_own_limits_and_ends_with_its_port(ports: Ports) -> None:
    plug(ports, qsfp28())
    plug(ports, osfp(), "eth1").modules()
    other = qsfp28(b"SN0002")
    other.words(3, 128, [65 * 256, 0, 60 * 256, 0])
    shown = plug(ports, other, "eth1").modules()
    assert [key for key in shown if key.startswith("info eth1")] == [
        "info eth1 QSFP28 optical COLDPLATE OPTICS CP-TEST-1 SN0002"
    ]
    assert shown["temperature_limit_celsius eth1 alarm"] == 65
    (ports.sysfs / "class" / "net" / "eth1").rename(ports.sysfs / "gone")
    assert ports.modules() == pytest.approx(QSFP28)
    assert ports.gaps() == {}


@pytest.mark.parametrize(("serial", "shown"), [(b"A\x80B\xff\xff\0", "A\ufffdB"), (b"A\nB", "A\\nB"), (b"", "")])
def test_a_text_of_other_bytes_is_made_readable(ports: Ports, serial: bytes, shown: str) -> None:
    plug(ports, qsfp28(serial))
    (info, *_) = ports.modules()
    assert info == f"info eth0 QSFP28 optical COLDPLATE OPTICS CP-TEST-1 {shown}".strip()
