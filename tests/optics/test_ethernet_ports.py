"""What ports tell of their physical layer: values in base units, and honest about what they do not tell."""

import errno
from collections.abc import Callable

import pytest

from agent.backends.protocol import AbsentError, DeviceError
from agent.model import Reason
from tests.optics.conftest import FEC_GET, LINKMODES_GET, LINKSTATE_GET, STATS_GET, Ports, attr, fec, group, u32, u64s

PORT = {
    "fec_info eth0 rs": 1,
    "fec_corrected_blocks_total eth0": 900,
    "fec_uncorrectable_blocks_total eth0": 0,
    "fec_corrected_bit_errors_total eth0": 1000,
    "symbol_errors_total eth0": 0,
    "fcs_errors_total eth0": 0,
    "link_down_events_total eth0": 2,
    "rate_bytes_per_second eth0": 50e9,
}


def test_a_port_tells_its_code_its_counters_and_its_rate_and_is_asked_for_no_more(ports: Ports) -> None:
    """The flags are 1 for compact bitsets and 4 for statistics; the groups are bit 0, eth-phy, and 1, eth-mac."""
    assert ports.healthy("eth0").read() == PORT
    assert ports.gaps() == {}
    assert ports.last.calls == 4
    assert ports.kernel.flags == {FEC_GET: 5, STATS_GET: 1, LINKSTATE_GET: 4, LINKMODES_GET: 1}
    assert ports.kernel.groups == b"\3\0\0\0"


@pytest.mark.parametrize(
    ("mode", "said"), [(49, "none"), (50, "rs"), (51, "baser"), (74, "llrs"), (75, "other"), (None, None)]
)
def test_the_active_code_has_its_name(ports: Ports, mode: int | None, said: str | None) -> None:
    ports.healthy("eth0")
    ports.kernel.answers["eth0", FEC_GET] = fec(mode)
    shown = {key.split()[-1] for key in ports.read() if key.startswith("fec_info")}
    assert shown == ({said} if said else set())


def test_lanes_are_counted_apart_from_the_port(ports: Ports) -> None:
    ports.healthy("eth0")
    ports.kernel.answers["eth0", FEC_GET] = fec(51, u64s(2, 10, 4, 6), u64s(3, 2**63 - 1, 0, 1), u64s(4))
    shown = ports.read()
    assert shown["fec_corrected_blocks_total eth0"] == 10
    assert (shown["fec_lane_corrected_blocks_total eth0 0"], shown["fec_lane_corrected_blocks_total eth0 1"]) == (4, 6)
    assert shown["fec_uncorrectable_blocks_total eth0"] == 2**63 - 1
    assert shown["fec_lane_uncorrectable_blocks_total eth0 1"] == 1
    assert ports.gaps() == {
        "fec_corrected_bit_errors_total": (Reason.UNSUPPORTED, "FEC_GET eth0: not counted by this driver")
    }


def test_the_histogram_of_a_newer_kernel_is_shown_bin_by_bin(ports: Ports) -> None:
    """Values have four bytes where they fit, else eight; those of lanes are left out."""
    bins = attr(5 | 0x8000, u32(2, 0) + u32(3, 0) + u64s(4, 2**40)) + attr(
        5 | 0x8000, u32(2, 1) + u32(3, 4) + u32(4, 77) + u64s(5, 70, 7)
    )
    ports.healthy("eth0")
    ports.kernel.answers["eth0", FEC_GET] = fec(50, u64s(2, 900), bins)
    shown = ports.read()
    assert shown["fec_bin_blocks_total eth0 0 0"] == 2**40
    assert shown["fec_bin_blocks_total eth0 1 4"] == 77


@pytest.mark.parametrize("speed", [b"", u32(5, 0xFFFFFFFF), u32(5, 0)])
def test_a_link_that_is_down_has_no_rate_and_no_gap(ports: Ports, speed: bytes) -> None:
    ports.healthy("eth0")
    ports.kernel.answers["eth0", LINKMODES_GET] = attr(2, b"\1") + speed
    assert "rate_bytes_per_second eth0" not in ports.read()
    assert ports.gaps() == {}


def test_what_no_driver_offers_is_missing_once_with_its_reason(ports: Ports) -> None:
    for name in ("eth0", "eth1", "eth2"):
        ports.add(name)
        ports.kernel.answers[name, STATS_GET] = group(0) + group(1)
    assert ports.read() == {}
    gaps = ports.gaps()
    assert len(gaps) == 8
    assert {reason for reason, _ in gaps.values()} == {Reason.UNSUPPORTED}
    assert gaps["fec_info"][1] == "FEC_GET eth0: not offered by this driver or this kernel (and 2 more)"
    assert gaps["symbol_errors_total"][1] == "STATS_GET eth0: not counted by this driver (and 2 more)"


def test_an_interface_without_counters_is_no_gap_and_a_new_one_is_shown(ports: Ports) -> None:
    ports.healthy("eth0")
    ports.healthy("eth1")
    ports.add("eno1")  # for management
    assert len(ports.read()) == 16
    assert ports.gaps() == {}
    (ports.sysfs / "class" / "net" / "eth1").rename(ports.sysfs / "gone")
    assert ports.read() == PORT
    assert ports.gaps() == {}
    ports.healthy("eth2")
    assert "fec_info eth2 rs" in ports.read()


@pytest.mark.parametrize(
    ("number", "reason", "words"),
    [
        (errno.EINVAL, Reason.UNSUPPORTED, "not known to this kernel"),
        (errno.EPERM, Reason.DENIED, "Operation not permitted"),
        (errno.ENODEV, Reason.LOST, "the interface is gone"),
        (errno.EIO, Reason.LOST, "Input/output error"),
        (errno.EBUSY, Reason.TIMEOUT, "Device or resource busy"),
        (errno.ETIMEDOUT, Reason.TIMEOUT, "no answer"),
    ],
)
def test_a_question_that_is_refused_costs_its_own_rows(ports: Ports, number: int, reason: Reason, words: str) -> None:
    ports.healthy("eth0")
    ports.kernel.answers["eth0", LINKSTATE_GET] = number
    assert ports.read() == {key: value for key, value in PORT.items() if "down" not in key}
    ((said, detail),) = ports.gaps().values()
    assert said is reason
    assert words in detail
    assert detail.startswith("LINKSTATE_GET eth0: ")


def test_only_ethernet_ports_of_hardware_are_asked(ports: Ports) -> None:
    ports.healthy("eth0")
    ports.add("veth0", device=False)
    ports.add("ib0", kind="32")
    ports.add("eth0v3", physfn=True)
    ports.add("rep0", port="pf0vf3")
    ports.add("rep1", port="c1pf0sf88")
    ports.add("a-name-that-is-too-long-for-one")
    ports.read()
    assert {device for device, _ in ports.kernel.asked} == {"eth0"}


def test_ports_beyond_the_bound_are_left_out_and_counted(ports: Ports) -> None:
    for number in range(66):
        ports.add(f"eth{number:02}")
    ports.read()
    assert (ports.last.readings, ports.last.left_out) == ([], 16)
    assert len({device for device, _ in ports.kernel.asked}) == 64


@pytest.mark.parametrize("read", [Ports.read, Ports.modules])
def test_a_node_without_a_port_is_absent_in_every_lane(ports: Ports, read: Callable[[Ports], object]) -> None:
    """Else the backend would come to the page once a minute, and leave it again."""
    with pytest.raises(AbsentError, match="no Ethernet port"):
        read(ports)
    ports.add("lo", kind="772", device=False)
    with pytest.raises(AbsentError, match="no Ethernet port"):
        read(ports)
    assert ports.kernel.asked == []


def test_a_kernel_without_ethtool_is_absent_and_a_sandbox_has_its_remedy(ports: Ports) -> None:
    ports.healthy("eth0")
    ports.kernel.family = errno.ENOENT
    with pytest.raises(AbsentError, match="no ethtool netlink"):
        ports.read()
    ports.kernel.family = attr(1, b"\x15\0")
    ports.kernel.refuses_sockets = errno.EAFNOSUPPORT
    with pytest.raises(DeviceError, match="RestrictAddressFamilies") as failed:
        ports.read()
    assert failed.value.reason is Reason.DENIED
    ports.kernel.refuses_sockets = 0
    assert ports.read() == PORT
