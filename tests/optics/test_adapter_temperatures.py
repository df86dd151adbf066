"""Temperatures of adapters and their transceivers: each sensor once, under the adapter's own name."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.backends.protocol import AbsentError, BackendSample, DeviceError
from agent.model import Instant, Lane, Reason
from tests.optics.conftest import Ports


def adapter(ports: Ports, number: int, **sensors: str) -> Path:
    """A PCI device with one hwmon chip, whose sensors are `asic="41125"`; `temp9` has no label."""
    hardware = ports.sysfs / "devices" / f"0000:{number:02}:00.0"
    chip = hardware / "hwmon" / f"hwmon{number}"
    chip.mkdir(parents=True)
    (chip / "name").write_text("mlx5\n")
    for place, (label, value) in enumerate(sensors.items(), 1):
        channel = label if label.startswith("temp") else f"temp{place}"
        (chip / f"{channel}_input").write_text(f"{value}\n")
        if channel != label:
            (chip / f"{channel}_label").write_text(f"{label}\n")
    return hardware


def name(ports: Ports, kind: str, device: str, hardware: Path) -> None:
    folder = ports.sysfs / "class" / kind / device
    folder.mkdir(parents=True)
    (folder / "device").symlink_to(hardware)


def test_sensors_of_infiniband_and_ethernet_adapters_are_shown_once(ports: Ports) -> None:
    first, second = adapter(ports, 1, asic="41125", Module0="-250"), adapter(ports, 2, temp9="38000")
    name(ports, "infiniband", "mlx5_0", first)
    name(ports, "net", "ib0", first)
    name(ports, "net", "eth5", second)
    shown = {key.removeprefix("coldplate_"): value for key, value in ports.read().items()}
    assert shown == {
        "hca_temperature_celsius mlx5_0 asic": 41.125,
        "hca_temperature_celsius mlx5_0 Module0": -0.25,
        "hca_temperature_celsius eth5 temp9": 38.0,
    }
    assert ports.gaps() == {}
    assert ports.last.calls == 3


def test_adapters_without_an_ethernet_port_have_no_modules_and_are_no_reason_to_be_absent(ports: Ports) -> None:
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, asic="41125"))
    assert len(ports.read()) == 1
    assert ports.backend.read(Lane.COLD, Instant(ports.now, 1e9)) == BackendSample()


@pytest.mark.parametrize(
    ("said", "shown"), [("105000", {"mlx5_0 asic": 105}), ("0", {}), ("", {}), ("hot", {}), (None, {})]
)
def test_the_limit_of_the_driver_is_shown_beside_its_sensor(
    ports: Ports, said: str | None, shown: dict[str, float]
) -> None:
    hardware = adapter(ports, 1, asic="41000")
    if said is not None:
        (hardware / "hwmon" / "hwmon1" / "temp1_crit").write_text(f"{said}\n")
    name(ports, "infiniband", "mlx5_0", hardware)
    limit = "coldplate_hca_temperature_limit_celsius "
    assert {key.removeprefix(limit): value for key, value in ports.read().items() if key.startswith(limit)} == shown
    assert ports.gaps() == {}
    assert ports.last.calls == 1


def test_temperatures_stand_beside_the_ports(ports: Ports) -> None:
    ports.healthy("eth0")
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, asic="41000"))
    shown = ports.read()
    assert shown["coldplate_hca_temperature_celsius mlx5_0 asic"] == 41
    assert shown["fec_corrected_blocks_total eth0"] == 900


@pytest.mark.parametrize("said", ["", "N/A", "nan", "4.5", "99999999999", "\u0664\u0661"])
def test_what_is_no_temperature_costs_only_its_sensor(ports: Ports, said: str) -> None:
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, asic=said, Module0="50000"))
    assert list(ports.read().values()) == [50]
    ((reason, detail),) = ports.gaps().values()
    assert reason is Reason.MALFORMED
    assert "temp1_input: contains" in detail


def test_two_sensors_of_one_label_are_told_apart(ports: Ports) -> None:
    hardware = adapter(ports, 1, asic="41000", other="42000")
    (hardware / "hwmon" / "hwmon1" / "temp2_label").write_text("asic\n")
    name(ports, "infiniband", "mlx5_0", hardware)
    assert sorted(ports.read().values()) == [41, 42]


def test_a_virtual_function_has_no_sensor_of_its_own(ports: Ports) -> None:
    hardware = adapter(ports, 1, asic="41000")
    (hardware / "physfn").mkdir()
    name(ports, "infiniband", "mlx5_9", hardware)
    with pytest.raises(AbsentError, match="no Ethernet port of hardware; no sensor in"):
        ports.read()


def test_a_sensor_that_goes_is_a_gap_and_a_later_search_finds_what_there_is(ports: Ports) -> None:
    hardware = adapter(ports, 1, asic="41000", Module0="50000")
    name(ports, "infiniband", "mlx5_0", hardware)
    assert len(ports.read()) == 2
    (hardware / "hwmon" / "hwmon1" / "temp2_input").unlink()
    assert list(ports.read().values()) == [41]
    assert [reason for reason, _ in ports.gaps().values()] == [Reason.LOST]
    for _ in range(4):
        shown = ports.read()
    assert list(shown.values()) == [41]
    assert ports.gaps() == {}


def test_too_many_sensors_are_read_up_to_a_bound(ports: Ports) -> None:
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, **{f"s{number}": "41000" for number in range(300)}))
    name(ports, "infiniband", "mlx5_1", adapter(ports, 2, asic="41000"))
    assert len(ports.read()) == 256


def test_ports_that_cannot_be_asked_are_gaps_beside_temperatures(ports: Ports) -> None:
    ports.healthy("eth0")
    ports.kernel.family = 13
    with pytest.raises(DeviceError, match="GETFAMILY"):
        ports.read()
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, asic="41000"))
    ports.now += 60.0
    assert list(ports.read().values()) == [41]
    gaps = ports.gaps()
    assert len(gaps) == 8
    assert {reason for reason, _ in gaps.values()} == {Reason.DENIED}
