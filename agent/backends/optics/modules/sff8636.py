"""The memory map of QSFP+ and QSFP28 modules: SFF-8636 revision 2.11, table 6-1 and following.

Only values are read. The flags in bytes 3 to 21 clear when they are read, which would take them from other programs
that wait for them; no span touches them.
"""

from agent.backends.optics.ethtool_requests import PortValue
from agent.backends.optics.modules.module_types import (
    AMPERES,
    BIAS,
    RECEIVE,
    TRANSMIT,
    WATTS,
    Memory,
    ModuleSpan,
    ModuleValues,
    PluggedModule,
    lane_values,
    lanes_in,
    limits_in,
    monitors_in,
    read_span,
)
from agent.backends.protocol import DeviceError
from agent.model import Reason

FORM_FACTORS = {0x0C: "QSFP", 0x0D: "QSFP+", 0x11: "QSFP28"}
"""Identifiers of SFF-8024, table 4-1, that mean this map."""
NEWEST_REVISION = 9
"""Code of revision 2.11 in byte 1; 0 is not stated."""
_FLAT = 1 << 2
_LANES = 4
_MISSING_LANES = 0x0F
_UPPER = 128
_TECHNOLOGY, _COPPER = 147, 0xA
"""From 10 on the transmitter's technology is a copper cable, in the high nibble."""
_COMPLIANCE, _ONE_LANE = 192, (0x25, 0x26, 0x27, 0x28, 0x3A)
"""Extended specification compliance (SFF-8024, table 4-4): 100GBASE-DR, FR1, LR1, SR1 and VR1, one lane of light."""
_DIAGNOSTICS, _MEASURES_TRANSMIT_POWER = 220, 1 << 2
_VENDOR, _PART, _SERIAL = 148, 168, 196
_TEXT = 16
_VALUES = 22
_TEMPERATURE, _SUPPLY, _RECEIVE, _BIAS, _TRANSMIT = 22, 26, 34, 42, 50
_LIMITS = 128
_LIMIT_RECEIVE, _LIMIT_BIAS, _LIMIT_TRANSMIT = 176, 184, 192


class Sff8636Module(PluggedModule):
    """Four lanes, with the values in the lower half of page 0 and the limits in page 3."""

    identity_span = ModuleSpan(0, _UPPER, _DIAGNOSTICS + 1 - _UPPER)
    serial_span = ModuleSpan(0, _SERIAL, _TEXT)

    def __init__(self, head: bytes, upper: bytes) -> None:
        """Raise DeviceError for a revision that is not published."""
        if head[1] > NEWEST_REVISION:
            raise DeviceError(Reason.UNSUPPORTED, f"SFF-8636 of an unknown revision: {head[1]:#04x}")
        copper = upper[_TECHNOLOGY - _UPPER] >> 4 >= _COPPER
        super().__init__(head, upper, FORM_FACTORS[head[0]], copper, (_VENDOR, _PART, _SERIAL))
        self._is_flat = bool(head[2] & _FLAT)

    def read_traits(self, memory: Memory) -> None:
        missing = read_span(memory, ModuleSpan(0, 113, 1))[0] & _MISSING_LANES
        if not self.copper:
            lanes = 1 if self.upper[_COMPLIANCE - _UPPER] in _ONE_LANE else _LANES
            self.lanes = tuple(lane for lane in range(1, lanes + 1) if not missing >> (lane - 1) & 1)

    def read_limits(self, memory: Memory) -> list[PortValue]:
        if self._is_flat:
            return []
        page = read_span(memory, ModuleSpan(3, _LIMITS, 72), blank=True)
        return list(limits_in(page, _LIMIT_RECEIVE, _LIMIT_TRANSMIT, _LIMIT_BIAS, lanes=self.lanes))

    def read_values(self, memory: Memory) -> ModuleValues:
        if self.copper and self._is_flat:
            return ModuleValues()
        now = read_span(memory, ModuleSpan(0, _VALUES, 36))
        sent = lanes_in(now, _TRANSMIT - _VALUES, self.lanes, WATTS)
        if not (self.upper[_DIAGNOSTICS - _UPPER] & _MEASURES_TRANSMIT_POWER or any(sent.values())):
            sent = {}  # some measure it and do not say so
        return ModuleValues(
            [
                *monitors_in(now, _TEMPERATURE - _VALUES, _SUPPLY - _VALUES),
                *lane_values(RECEIVE, lanes_in(now, _RECEIVE - _VALUES, self.lanes, WATTS)),
                *lane_values(TRANSMIT, sent),
                *lane_values(BIAS, lanes_in(now, _BIAS - _VALUES, self.lanes, AMPERES)),
            ]
        )
