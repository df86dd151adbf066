"""What CMIS modules diagnose: error ratios and signal to noise by side and lane, without a write or a cleared flag."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.backends.optics.modules.cmis import find_samples, read_samples
from agent.backends.optics.modules.module_types import VdmSample
from agent.backends.protocol import AbsentError, BackendSample, DeviceError
from agent.catalogue.optics import ERRORS_LANE
from agent.model import Instant, Lane, Reason
from tests.optics.conftest import Ports
from tests.optics.stand_in_module import StandInModule, applications, diagnosed_osfp, osfp
from tests.optics.test_transceivers import plug

WORDS = ("pre_fec", "snr")
ERRORS = "coldplate_transceiver_pre_fec_error_highest_ratio"


def diagnosed(shown: dict[str, float]) -> dict[str, float]:
    return {key: value for key, value in shown.items() if any(word in key for word in WORDS)}


def test_each_side_has_its_worst_lane_and_all_lanes(ports: Ports) -> None:
    plug(ports, diagnosed_osfp())
    shown = diagnosed(ports.modules())
    assert shown["pre_fec_error_highest_ratio eth0 media"] == 2e-8
    assert shown["pre_fec_error_highest_ratio eth0 host"] == 2e-9
    assert [shown[f"lane_pre_fec_error_ratio eth0 media {lane}"] for lane in range(1, 9)] == [1e-8] * 2 + [2e-8] + [
        1e-8
    ] * 5
    assert shown["snr_lowest_ratio eth0 media"] == pytest.approx(10**2.1)
    assert shown["lane_snr_ratio eth0 host 8"] == pytest.approx(10**2.3)
    assert len(shown) == 4 + 4 * 8
    assert ports.gaps() == {}


def test_a_module_is_described_once_and_clear_on_read_values_are_never_read(ports: Ports) -> None:
    module = diagnosed_osfp(4)
    plug(ports, module).modules()
    assert [page for page, *_ in module.transfers] == [
        0, 0, 0, 1, 2, 0x2F, 0x20, 0x21, 0x22, 0x23, 0, 0, 0x11, 0x24, 0x27, 0,
    ]  # fmt: skip
    assert {each[1:3] for each in module.transfers if each[0] == 0x2F} == {(128, 1)}
    module.transfers.clear()
    for _ in range(2):
        ports.modules()
        assert module.transfers[-3:-1] == [(0x24, 176, 80, 0), (0x27, 128, 32, 0)]
    assert {page for page, *_ in module.transfers if page >= 0x20} == {0x24, 0x27}


@pytest.mark.parametrize(
    ("at", "flags"), [((1, 142), b"\0"), ((0, 1), b"\x30"), ((0, 3), b"\x02"), ((0, 212), b"\x0a")]
)
def test_a_module_without_them_or_not_ready_or_of_copper_has_none(
    ports: Ports, at: tuple[int, int], flags: bytes
) -> None:
    module = diagnosed_osfp()
    module.set(*at, flags)
    shown = plug(ports, module).modules()
    assert shown["temperature_celsius eth0"] == 52.25
    assert diagnosed(shown) == {}
    assert ports.gaps() == {}
    assert not [page for page, *_ in module.transfers if page in (0x24, 0x25)]


def test_each_side_has_its_own_lanes(ports: Ports) -> None:
    module = diagnosed_osfp()
    applications(module, (8, 1, 0x01, 0x01))
    shown = plug(ports, module).modules()
    assert [key[-1] for key in shown if key.startswith("lane_receive_power_watts")] == ["1"]
    assert [key[-1] for key in shown if key.startswith("lane_snr_ratio eth0 media")] == ["1"]
    assert [key[-1] for key in shown if key.startswith("lane_snr_ratio eth0 host")] == list("12345678")
    assert shown["pre_fec_error_highest_ratio eth0 host"] == 2e-9, "that of host lane 3"
    assert shown["pre_fec_error_highest_ratio eth0 media"] == 1e-8


def test_a_ratio_of_a_whole_side_counts_for_the_side_and_for_no_lane(ports: Ports) -> None:
    module = diagnosed_osfp()
    for page in (0x20, 0x21):
        module.set(page, 128, bytes(128))
    module.set(0x20, 128, bytes((0x3F, 15)))
    module.words(0x24, 128, [0x72E6])
    module.set(0x21, 128, bytes((0x3F, 16)))
    module.words(0x25, 128, [0x6ECD])
    assert diagnosed(plug(ports, module).modules()) == {
        "pre_fec_error_highest_ratio eth0 media": pytest.approx(742e-10),
        "pre_fec_error_highest_ratio eth0 host": pytest.approx(1741e-11),
    }


@pytest.mark.parametrize(
    ("word", "ratio"), [(0x9200, 5.12e-4), (0, 0.0), (0xC001, 1.0), (0xC002, None), (0xFFFE, None)]
)
def test_an_error_ratio_above_one_is_left_out_and_the_first_place_of_a_lane_counts(
    word: int, ratio: float | None
) -> None:
    lane = VdmSample(ERRORS_LANE, "media", 1)
    places = find_samples([bytes((0x00, 15)) + bytes(126)], (1,), ())
    assert read_samples(lambda _: word.to_bytes(2, "big"), places) == ({} if ratio is None else {lane: ratio})
    twice = bytes((0x10, 15, 0x20, 15, 0x0E, 15)) + bytes(122)
    assert find_samples([twice], range(1, 17), ()) == {0x24: {128: lane}}


BAD = [
    (lambda it: it.halves.pop((0, 0x2F)), Reason.LOST, "Input/output error"),
    (lambda it: it.halves.pop((0, 0x21)), Reason.LOST, "Input/output error"),
    (lambda it: it.halves.pop((0, 0x24)), Reason.LOST, "Input/output error"),
    (lambda it: it.set(0x24, 128, b"\xff" * 128), Reason.MALFORMED, "page 24h from byte 176: all bytes are 0xff"),
]


@pytest.mark.parametrize(("change", "reason", "words"), BAD)
def test_pages_that_cannot_be_read_cost_only_the_diagnostics_and_are_tried_again(
    ports: Ports, change: Callable[[StandInModule], object], reason: Reason, words: str
) -> None:
    module = diagnosed_osfp()
    change(module)
    shown = plug(ports, module).modules()
    assert shown["receive_power_lowest_watts eth0"] == pytest.approx(1e-3)
    assert shown["receive_power_limit_watts eth0 alarm"] == pytest.approx(1e-4)
    assert diagnosed(shown) == {}
    said, detail = ports.gaps()[ERRORS]
    assert said is reason
    assert words in detail
    whole = diagnosed_osfp()
    module.halves |= {half: data for half, data in whole.halves.items() if half[1] >= 0x20}
    assert len(diagnosed(ports.modules())) == 36
    assert ports.gaps() == {}


def test_unwritten_descriptions_are_absent_and_a_new_module_is_described_again(ports: Ports) -> None:
    unwritten = diagnosed_osfp()
    for page in (0x20, 0x21):
        unwritten.set(page, 128, b"\xff" * 128)
    for module, described in ((diagnosed_osfp(), True), (osfp(b"SN0002"), False), (unwritten, False)):
        assert bool(diagnosed(plug(ports, module).modules())) is described
        assert ports.gaps() == {}


def test_a_module_that_goes_in_between_is_gone_as_a_whole(ports: Ports) -> None:
    module = diagnosed_osfp()

    def go(page: int, offset: int) -> None:
        module.fault = errno.EIO if page == 0x24 else module.fault

    plug(ports, osfp(), "eth1")
    plug(ports, module).modules()
    module.before = go
    shown = ports.modules()
    assert not [key for key in shown if " eth0" in key]
    assert ports.gaps()["coldplate_transceiver_info"][0] is Reason.LOST


# Temperatures of adapters and their transceivers: each sensor once, under the adapter's own name.
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


def test_adapters_without_a_port_have_no_modules_and_equal_sensor_labels_differ(ports: Ports) -> None:
    hardware = adapter(ports, 1, asic="41000", other="42000")
    (hardware / "hwmon" / "hwmon1" / "temp2_label").write_text("asic\n")
    name(ports, "infiniband", "mlx5_0", hardware)
    assert sorted(ports.read().values()) == [41, 42]
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


@pytest.mark.parametrize("said", ["", "N/A", "nan", "4.5", "99999999999", "\u0664\u0661"])
def test_what_is_no_temperature_costs_only_its_sensor(ports: Ports, said: str) -> None:
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, asic=said, Module0="50000"))
    assert list(ports.read().values()) == [50]
    ((reason, detail),) = ports.gaps().values()
    assert reason is Reason.MALFORMED
    assert "temp1_input: contains" in detail


def test_a_virtual_function_has_no_sensor_and_too_many_are_read_up_to_a_limit(ports: Ports) -> None:
    hardware = adapter(ports, 9, asic="41000")
    (hardware / "physfn").mkdir()
    name(ports, "infiniband", "mlx5_9", hardware)
    with pytest.raises(AbsentError, match="no Ethernet port of hardware; no sensor in"):
        ports.read()
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, **{f"s{number}": "41000" for number in range(300)}))
    name(ports, "infiniband", "mlx5_1", adapter(ports, 2, asic="41000"))
    ports.now += 60.0
    assert len(ports.read()) == 256


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


def test_a_sensor_that_failed_twice_is_left_alone_for_ten_minutes(ports: Ports) -> None:
    hardware = adapter(ports, 1, asic="41000", Module0="N/A")
    name(ports, "infiniband", "mlx5_0", hardware)
    for _ in range(2):
        assert list(ports.read().values()) == [41]
    (hardware / "hwmon" / "hwmon1" / "temp2_input").write_text("50000\n")
    start = ports.now
    while ports.now < start + 585.0:
        assert list(ports.read().values()) == [41]
        assert "every 600 s" in ports.gaps()["coldplate_hca_temperature_celsius"][1]
    assert list(ports.read().values()) == [41, 50]


def test_ports_that_cannot_be_asked_are_gaps_beside_temperatures(ports: Ports) -> None:
    ports.healthy("eth0")
    family, ports.kernel.family = ports.kernel.family, 13
    with pytest.raises(DeviceError, match="GETFAMILY"):
        ports.read()
    name(ports, "infiniband", "mlx5_0", adapter(ports, 1, asic="41000"))
    ports.now += 60.0
    assert list(ports.read().values()) == [41]
    gaps = ports.gaps()
    assert len(gaps) == 8
    assert {reason for reason, _ in gaps.values()} == {Reason.DENIED}
    ports.kernel.family = family
    assert len(ports.read()) == 1 + 8
