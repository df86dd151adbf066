"""What CMIS modules diagnose: error ratios and signal to noise by side and lane, without a write or a cleared flag."""

from __future__ import annotations

import errno

import pytest

from agent.backends.optics.modules.cmis import VdmObservable, VdmSample, decode_samples, find_samples
from agent.model import Reason
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


def test_what_needs_a_write_or_clears_on_reading_is_never_read(ports: Ports) -> None:
    module = diagnosed_osfp(4)
    plug(ports, module)
    for _ in range(3):
        ports.modules()
    of_pages = [each for each in module.transfers if each[0] >= 0x20]
    assert {page for page, *_ in of_pages} == {0x2F, 0x20, 0x21, 0x22, 0x23, 0x24, 0x27}
    assert {each[1:3] for each in of_pages if each[0] == 0x2F} == {(128, 1)}


def test_it_is_described_once_and_then_a_page_for_each_that_has_any(ports: Ports) -> None:
    module = diagnosed_osfp(4)
    plug(ports, module)
    ports.modules()
    assert [page for page, *_ in module.transfers] == [
        0, 0, 0, 1, 2, 0x2F, 0x20, 0x21, 0x22, 0x23, 0, 0, 0x11, 0x24, 0x27, 0,
    ]  # fmt: skip
    module.transfers.clear()
    ports.modules()
    assert module.transfers[-3:-1] == [(0x24, 176, 80, 0), (0x27, 128, 32, 0)]


@pytest.mark.parametrize(
    ("at", "flags"), [((1, 142), b"\0"), ((0, 1), b"\x30"), ((0, 3), b"\x02"), ((0, 212), b"\x0a")]
)
def test_a_module_without_them_or_not_ready_or_of_copper_has_none(
    ports: Ports, at: tuple[int, int], flags: bytes
) -> None:
    module = diagnosed_osfp()
    module.set(*at, flags)
    plug(ports, module)
    shown = ports.modules()
    assert shown["temperature_celsius eth0"] == 52.25
    assert diagnosed(shown) == {}
    assert ports.gaps() == {}
    assert not [page for page, *_ in module.transfers if page in (0x24, 0x25)]


def test_each_side_has_its_own_lanes(ports: Ports) -> None:
    module = diagnosed_osfp()
    applications(module, (8, 1, 0x01, 0x01))
    plug(ports, module)
    shown = ports.modules()
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
    plug(ports, module)
    assert diagnosed(ports.modules()) == {
        "pre_fec_error_highest_ratio eth0 media": pytest.approx(742e-10),
        "pre_fec_error_highest_ratio eth0 host": pytest.approx(1741e-11),
    }


@pytest.mark.parametrize(
    ("word", "ratio"), [(0x9200, 5.12e-4), (0, 0.0), (0xC001, 1.0), (0xC002, None), (0xFFFE, None)]
)
def test_an_error_ratio_above_one_is_none(word: int, ratio: float | None) -> None:
    places = find_samples([bytes((0x00, 15)) + bytes(126)], (1,), ())
    told = decode_samples(places, [word.to_bytes(2, "big")])
    assert told == ({} if ratio is None else {VdmSample(VdmObservable.ERRORS, "media", 1): ratio})


def test_the_first_of_two_places_for_one_lane_counts() -> None:
    page = bytes((0x10, 15, 0x20, 15, 0x0E, 15)) + bytes(122)
    assert find_samples([page], range(1, 17), ()) == {0x24: {128: VdmSample(VdmObservable.ERRORS, "media", 1)}}


BAD = [
    (lambda it: it.halves.pop((0, 0x2F)), Reason.LOST, "Input/output error"),
    (lambda it: it.halves.pop((0, 0x21)), Reason.LOST, "Input/output error"),
    (lambda it: it.halves.pop((0, 0x24)), Reason.LOST, "Input/output error"),
    (lambda it: it.set(0x24, 128, b"\xff" * 128), Reason.MALFORMED, "page 24h from byte 176: all bytes are 0xff"),
]


@pytest.mark.parametrize(("change", "reason", "words"), BAD)
def test_pages_that_cannot_be_read_cost_only_the_diagnostics_and_are_tried_again(
    ports: Ports, change: object, reason: Reason, words: str
) -> None:
    assert callable(change)
    module = diagnosed_osfp()
    change(module)
    plug(ports, module)
    shown = ports.modules()
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


def test_descriptions_that_nobody_wrote_are_none(ports: Ports) -> None:
    module = diagnosed_osfp()
    for page in (0x20, 0x21):
        module.set(page, 128, b"\xff" * 128)
    plug(ports, module)
    assert diagnosed(ports.modules()) == {}
    assert ports.gaps() == {}


def test_a_module_that_goes_in_between_is_gone_as_a_whole(ports: Ports) -> None:
    module = diagnosed_osfp()

    def go(page: int, offset: int) -> None:
        module.fault = errno.EIO if page == 0x24 else module.fault

    plug(ports, osfp(), "eth1")
    plug(ports, module)
    ports.modules()
    module.before = go
    shown = ports.modules()
    assert not [key for key in shown if " eth0" in key]
    assert ports.gaps()["coldplate_transceiver_info"][0] is Reason.LOST


def test_another_module_is_described_anew(ports: Ports) -> None:
    plug(ports, diagnosed_osfp())
    assert diagnosed(ports.modules())
    other: StandInModule = osfp(b"SN0002")
    plug(ports, other)
    assert diagnosed(ports.modules()) == {}
