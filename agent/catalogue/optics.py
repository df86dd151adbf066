"""The rows of the physical layer of Ethernet and RoCE ports, of the modules in them, and of adapters' temperatures.

A codeword ("block") is what forward error correction works on: 5,440 bits with RS-FEC of PAM4 links (IEEE 802.3 clause
91 and 119). `device` is the port's interface. Lanes of a module are counted from 1, as SFF-8636 and CMIS do.
"""

from agent.catalogue.bindings import PACKETS, Source, counter, gauge, info
from agent.model import Lane, Metric, Node, Shown, Unit

FEC = "ethtool netlink: FEC_GET"
STATISTICS = "ethtool netlink: STATS_GET"


def _count(
    stem: str, help: str, source: str, *labels: str, shown: Shown = Shown.DEFAULT, growth: float | None = None
) -> Metric:
    return counter(
        f"coldplate_ethernet_{stem}_total",
        Node,
        help,
        Lane.SLOW,
        Source(source),
        labels=("device", *labels),
        span=(0, 2.0**63),
        growth=growth,
        shown=shown,
    )


FEC_INFO = info(
    "coldplate_ethernet_fec_info",
    Node,
    "The forward error correction that is active on the port: none, rs, baser or llrs.",
    Lane.SLOW,
    Source(FEC),
    labels=("device", "mode"),
)
RATE = gauge(
    "coldplate_ethernet_rate_bytes_per_second",
    Node,
    "Rate that the link negotiated, in one direction; none while it is down.",
    Lane.SLOW,
    Source("ethtool netlink: LINKMODES_GET"),
    labels=("device",),
    span=(0, 1e13),
)
LINK_DOWN_EVENTS = _count(
    "link_down_events", "Times that the driver saw the physical link go down.", "ethtool netlink: LINKSTATE_GET"
)
CORRECTED_BLOCKS = _count("fec_corrected_blocks", "Codewords with errors that FEC corrected.", FEC)
UNCORRECTABLE_BLOCKS = _count(
    "fec_uncorrectable_blocks", "Codewords with more errors than FEC can correct: their packets are lost.", FEC
)
CORRECTED_BIT_ERRORS = _count("fec_corrected_bit_errors", "Bit errors that FEC corrected.", FEC, growth=PACKETS)
SYMBOL_ERRORS = _count(
    "symbol_errors",
    "Symbols received with an error while there was a carrier.",
    f"{STATISTICS}, eth-phy",
    growth=PACKETS,
)
FCS_ERRORS = _count("fcs_errors", "Frames received with a wrong checksum.", f"{STATISTICS}, eth-mac", growth=PACKETS)
LANE_CORRECTED_BLOCKS = _count(
    "fec_lane_corrected_blocks",
    "Codewords that FEC corrected on one lane, counted from 0; part of the port's.",
    FEC,
    "lane",
    shown=Shown.COUNTED,
)
LANE_UNCORRECTABLE_BLOCKS = _count(
    "fec_lane_uncorrectable_blocks",
    "Codewords that FEC could not correct on one lane; part of the port's.",
    FEC,
    "lane",
    shown=Shown.COUNTED,
)
LANE_CORRECTED_BIT_ERRORS = _count(
    "fec_lane_corrected_bit_errors",
    "Bit errors that FEC corrected on one lane; part of the port's.",
    FEC,
    "lane",
    shown=Shown.COUNTED,
    growth=PACKETS,
)
FEC_BINS = _count(
    "fec_bin_blocks",
    "Codewords with this many symbols in error, low to high (from Linux 6.18 on).",
    FEC,
    "low",
    "high",
    shown=Shown.FULL,
)

HCA_TEMPERATURE = gauge(
    "coldplate_hca_temperature_celsius",
    Node,
    "Temperature of a network adapter's chip, or of a transceiver in it, by the driver's name for the sensor.",
    Lane.SLOW,
    Source("hwmon of the adapter: tempN_input"),
    labels=("device", "sensor"),
    span=(-60, 200),
)
HCA_TEMPERATURE_LIMIT = gauge(
    "coldplate_hca_temperature_limit_celsius",
    Node,
    "Temperature that the driver gives as critical for a sensor of a network adapter.",
    Lane.SLOW,
    Source("hwmon of the adapter: tempN_crit"),
    labels=("device", "sensor"),
    span=(-60, 200),
)

ETHERNET: tuple[Metric, ...] = (
    FEC_INFO,
    RATE,
    LINK_DOWN_EVENTS,
    CORRECTED_BLOCKS,
    UNCORRECTABLE_BLOCKS,
    CORRECTED_BIT_ERRORS,
    SYMBOL_ERRORS,
    FCS_ERRORS,
    LANE_CORRECTED_BLOCKS,
    LANE_UNCORRECTABLE_BLOCKS,
    LANE_CORRECTED_BIT_ERRORS,
    FEC_BINS,
)
ADAPTERS = (HCA_TEMPERATURE, HCA_TEMPERATURE_LIMIT)
_SOURCE = (Source("ethtool netlink: MODULE_EEPROM_GET"),)
_WATTS = (0.0, 1.0)
"""A lane has some milliwatts; the field ends at 6.6 mW."""
_AMPERES = (0.0, 1.0)
"""A laser takes some milliamperes; the field ends at 0.53 A."""
_CELSIUS = (-128.0, 128.0)
_POWERS = (1.0, 4e25)
"""A ratio; the field begins at 0 dB and ends at 256 dB."""


def _gauge(stem: str, unit: Unit, span: tuple[float, float], help: str, *labels: str, full: bool = False) -> Metric:
    return gauge(
        f"coldplate_transceiver_{stem}_{unit.value}",
        Node,
        help,
        Lane.COLD,
        *_SOURCE,
        labels=("device", *labels),
        span=span,
        shown=Shown.FULL if full else Shown.DEFAULT,
    )


INFO = info(
    "coldplate_transceiver_info",
    Node,
    "The module in the port, by its own words; media is optical or copper.",
    Lane.COLD,
    *_SOURCE,
    labels=("device", "form_factor", "media", "vendor", "part_number", "serial"),
)
TEMPERATURE = _gauge("temperature", Unit.CELSIUS, _CELSIUS, "Temperature of the module, as it measures it.")
SUPPLY = _gauge("supply", Unit.VOLTS, (0, 6.6), "Supply voltage at the module; 3.3 V is nominal.")
RECEIVE_LOWEST = _gauge(
    "receive_power_lowest", Unit.WATTS, _WATTS, "Light received on the lane of the port that receives the least."
)
RECEIVE_HIGHEST = _gauge(
    "receive_power_highest", Unit.WATTS, _WATTS, "Light received on the lane of the port that receives the most."
)
TRANSMIT_LOWEST = _gauge(
    "transmit_power_lowest", Unit.WATTS, _WATTS, "Light sent on the lane of the port that sends the least."
)
BIAS_HIGHEST = _gauge(
    "transmit_bias_highest", Unit.AMPERES, _AMPERES, "Highest current through a laser of the port's lanes."
)
RECEIVE_LANE = _gauge("lane_receive_power", Unit.WATTS, _WATTS, "Light received on the lane.", "lane", full=True)
TRANSMIT_LANE = _gauge("lane_transmit_power", Unit.WATTS, _WATTS, "Light sent on the lane.", "lane", full=True)
BIAS_LANE = _gauge(
    "lane_transmit_bias", Unit.AMPERES, _AMPERES, "Current through the laser of the lane.", "lane", full=True
)
ERRORS_HIGHEST = _gauge(
    "pre_fec_error_highest",
    Unit.RATIO,
    (0, 1),
    "Bit error ratio before correction, as the module measures it, on the worst lane of a side: media or host.",
    "side",
)
ERRORS_LANE = _gauge(
    "lane_pre_fec_error",
    Unit.RATIO,
    (0, 1),
    "Bit error ratio before correction on the lane.",
    "side",
    "lane",
    full=True,
)
SIGNAL_LOWEST = _gauge(
    "snr_lowest",
    Unit.RATIO,
    _POWERS,
    "Signal to noise on the worst lane of a side, media or host, as a ratio of powers: 100 is 20 dB.",
    "side",
)
SIGNAL_LANE = _gauge(
    "lane_snr", Unit.RATIO, _POWERS, "Signal to noise on the lane, as a ratio of powers.", "side", "lane", full=True
)
TEMPERATURE_LIMIT = _gauge(
    "temperature_limit",
    Unit.CELSIUS,
    _CELSIUS,
    "The module's own upper limit of its temperature: warning or alarm.",
    "level",
)
RECEIVE_LIMIT = _gauge(
    "receive_power_limit",
    Unit.WATTS,
    _WATTS,
    "The module's own lower limit of the light received: warning or alarm.",
    "level",
)
TRANSMIT_LIMIT = _gauge(
    "transmit_power_limit",
    Unit.WATTS,
    _WATTS,
    "The module's own lower limit of the light sent: warning or alarm.",
    "level",
)
BIAS_LIMIT = _gauge(
    "transmit_bias_limit",
    Unit.AMPERES,
    _AMPERES,
    "The module's own upper limit of a laser's current: warning, alarm.",
    "level",
)

TRANSCEIVERS: tuple[Metric, ...] = (
    INFO,
    TEMPERATURE,
    SUPPLY,
    RECEIVE_LOWEST,
    RECEIVE_HIGHEST,
    TRANSMIT_LOWEST,
    BIAS_HIGHEST,
    RECEIVE_LANE,
    TRANSMIT_LANE,
    BIAS_LANE,
    ERRORS_HIGHEST,
    ERRORS_LANE,
    SIGNAL_LOWEST,
    SIGNAL_LANE,
    TEMPERATURE_LIMIT,
    RECEIVE_LIMIT,
    TRANSMIT_LIMIT,
    BIAS_LIMIT,
)

ROWS = ETHERNET + ADAPTERS + TRANSCEIVERS
