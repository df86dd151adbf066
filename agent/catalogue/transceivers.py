"""The rows of the modules in Ethernet ports: what their own memory says of them, by ethtool netlink.

`device` is the port's interface. Lanes are counted from 1, as SFF-8636 and CMIS do. Rows of a lane are in the profile
`full`; the lowest and the highest of a port's lanes say whether one must be looked at.
"""

from __future__ import annotations

from agent.catalogue.bindings import Source
from agent.model import Kind, Lane, Metric, Node, Shown, Unit

_SOURCE = (Source("ethtool netlink: MODULE_EEPROM_GET"),)
_WATTS = (0.0, 1.0)
"""A lane has some milliwatts; the field ends at 6.6 mW."""
_AMPERES = (0.0, 1.0)
"""A laser takes some milliamperes; the field ends at 0.53 A."""
_CELSIUS = (-128.0, 128.0)
_POWERS = (1.0, 4e25)
"""A ratio; the field begins at 0 dB and ends at 256 dB."""


def _gauge(what: str, unit: Unit, span: tuple[float, float], help: str, *labels: str, full: bool = False) -> Metric:
    return Metric(f"coldplate_transceiver_{what}_{unit.value}", Kind.GAUGE, unit, Node, help, Lane.COLD, _SOURCE,
                  labels=("device", *labels), span=span,
                  shown=Shown.FULL if full else Shown.DEFAULT)  # fmt: skip


INFO = Metric(
    "coldplate_transceiver_info", Kind.INFO, Unit.NONE, Node,
    "The module in the port, by its own words; media is optical or copper.",
    Lane.COLD, _SOURCE, labels=("device", "form_factor", "media", "vendor", "part_number", "serial"), span=(1, 1),
)  # fmt: skip
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
    "pre_fec_error_highest", Unit.RATIO, (0, 1),
    "Bit error ratio before correction, as the module measures it, on the worst lane of a side: media or host.",
    "side",
)  # fmt: skip
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
    "snr_lowest", Unit.RATIO, _POWERS,
    "Signal to noise on the worst lane of a side, media or host, as a ratio of powers: 100 is 20 dB.", "side",
)  # fmt: skip
SIGNAL_LANE = _gauge(
    "lane_snr", Unit.RATIO, _POWERS, "Signal to noise on the lane, as a ratio of powers.", "side", "lane", full=True
)
TEMPERATURE_LIMIT = _gauge(
    "temperature_limit", Unit.CELSIUS, _CELSIUS, "The module's own upper limit of its temperature: warning or alarm.",
    "level",
)  # fmt: skip
RECEIVE_LIMIT = _gauge(
    "receive_power_limit", Unit.WATTS, _WATTS, "The module's own lower limit of the light received: warning or alarm.",
    "level",
)  # fmt: skip
TRANSMIT_LIMIT = _gauge(
    "transmit_power_limit", Unit.WATTS, _WATTS, "The module's own lower limit of the light sent: warning or alarm.",
    "level",
)  # fmt: skip
BIAS_LIMIT = _gauge(
    "transmit_bias_limit", Unit.AMPERES, _AMPERES, "The module's own upper limit of a laser's current: warning, alarm.",
    "level",
)  # fmt: skip

LIMITS = (TEMPERATURE_LIMIT, RECEIVE_LIMIT, TRANSMIT_LIMIT, BIAS_LIMIT)
ROWS: tuple[Metric, ...] = (
    INFO, TEMPERATURE, SUPPLY, RECEIVE_LOWEST, RECEIVE_HIGHEST, TRANSMIT_LOWEST, BIAS_HIGHEST, RECEIVE_LANE,
    TRANSMIT_LANE, BIAS_LANE, ERRORS_HIGHEST, ERRORS_LANE, SIGNAL_LOWEST, SIGNAL_LANE, *LIMITS,
)  # fmt: skip
