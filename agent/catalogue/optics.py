"""Metrics of the physical layer of Ethernet and RoCE ports, read over the kernel's ethtool netlink, and of adapters.

Counters are the driver's. A codeword ("block") is what forward error correction works on: 5,440 bits with RS-FEC of
PAM4 links (IEEE 802.3 clause 91 and 119).
"""

from __future__ import annotations

from agent.catalogue.bindings import PACKETS, Source
from agent.model import Kind, Lane, Metric, Node, Shown, Unit

FEC = "ethtool netlink: FEC_GET"
STATISTICS = "ethtool netlink: STATS_GET"


def _count(
    what: str,
    help: str,
    source: str,
    *labels: str,
    shown: Shown = Shown.DEFAULT,
    growth: float | None = None,
) -> Metric:
    return Metric(f"coldplate_ethernet_{what}_total", Kind.COUNTER, Unit.NONE, Node, help, Lane.SLOW,
                  (Source(source),), labels=("device", *labels), span=(0, 2.0**63), growth=growth,
                  shown=shown)  # fmt: skip


FEC_INFO = Metric(
    "coldplate_ethernet_fec_info", Kind.INFO, Unit.NONE, Node,
    "The forward error correction that is active on the port: none, rs, baser or llrs.",
    Lane.SLOW, (Source(FEC),), labels=("device", "mode"), span=(1, 1),
)  # fmt: skip
RATE = Metric(
    "coldplate_ethernet_rate_bytes_per_second", Kind.GAUGE, Unit.BYTES, Node,
    "Rate that the link negotiated, in one direction; none while it is down.",
    Lane.SLOW, (Source("ethtool netlink: LINKMODES_GET"),), labels=("device",), span=(0, 1e13),
)  # fmt: skip
LINK_DOWN_EVENTS = _count(
    "link_down_events", "Times that the driver saw the physical link go down.", "ethtool netlink: LINKSTATE_GET"
)
CORRECTED_BLOCKS = _count("fec_corrected_blocks", "Codewords with errors that FEC corrected.", FEC)
UNCORRECTABLE_BLOCKS = _count(
    "fec_uncorrectable_blocks", "Codewords with more errors than FEC can correct: their packets are lost.", FEC
)
CORRECTED_BIT_ERRORS = _count("fec_corrected_bit_errors", "Bit errors that FEC corrected.", FEC, growth=PACKETS)
SYMBOL_ERRORS = _count(
    "symbol_errors", "Symbols received with an error while there was a carrier.", f"{STATISTICS}, eth-phy",
    growth=PACKETS,
)  # fmt: skip
FCS_ERRORS = _count("fcs_errors", "Frames received with a wrong checksum.", f"{STATISTICS}, eth-mac", growth=PACKETS)
LANE_CORRECTED_BLOCKS = _count(
    "fec_lane_corrected_blocks", "Codewords that FEC corrected on one lane, counted from 0; part of the port's.",
    FEC, "lane", shown=Shown.COUNTED,
)  # fmt: skip
LANE_UNCORRECTABLE_BLOCKS = _count(
    "fec_lane_uncorrectable_blocks", "Codewords that FEC could not correct on one lane; part of the port's.",
    FEC, "lane", shown=Shown.COUNTED,
)  # fmt: skip
LANE_CORRECTED_BIT_ERRORS = _count(
    "fec_lane_corrected_bit_errors", "Bit errors that FEC corrected on one lane; part of the port's.",
    FEC, "lane", shown=Shown.COUNTED, growth=PACKETS,
)  # fmt: skip
FEC_BINS = _count(
    "fec_bin_blocks", "Codewords with this many symbols in error, low to high (from Linux 6.18 on).",
    FEC, "low", "high", shown=Shown.FULL,
)  # fmt: skip

HCA_TEMPERATURE = Metric(
    "coldplate_hca_temperature_celsius", Kind.GAUGE, Unit.CELSIUS, Node,
    "Temperature of a network adapter's chip, or of a transceiver in it, by the driver's name for the sensor.",
    Lane.SLOW, (Source("hwmon of the adapter: tempN_input"),), labels=("device", "sensor"), span=(-60, 200),
)  # fmt: skip
HCA_TEMPERATURE_LIMIT = Metric(
    "coldplate_hca_temperature_limit_celsius", Kind.GAUGE, Unit.CELSIUS, Node,
    "Temperature that the driver gives as critical for a sensor of a network adapter.",
    Lane.SLOW, (Source("hwmon of the adapter: tempN_crit"),), labels=("device", "sensor"), span=(-60, 200),
)  # fmt: skip

ETHERNET: tuple[Metric, ...] = (
    FEC_INFO, RATE, LINK_DOWN_EVENTS, CORRECTED_BLOCKS, UNCORRECTABLE_BLOCKS, CORRECTED_BIT_ERRORS, SYMBOL_ERRORS,
    FCS_ERRORS, LANE_CORRECTED_BLOCKS, LANE_UNCORRECTABLE_BLOCKS, LANE_CORRECTED_BIT_ERRORS, FEC_BINS,
)  # fmt: skip
ADAPTERS = (HCA_TEMPERATURE, HCA_TEMPERATURE_LIMIT)
ROWS = ETHERNET + ADAPTERS
