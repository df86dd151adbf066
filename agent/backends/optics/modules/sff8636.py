"""The memory map of QSFP+ and QSFP28 modules: SFF-8636 revision 2.11, table 6-1 and following.

Only values are read. The flags in bytes 3 to 21 clear when they are read, which would take them from other programs
that wait for them; no span touches them.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.backends.optics.modules.module_types import (
    AMPERES,
    WATTS,
    ModuleCapabilities,
    ModuleIdentity,
    ModuleLimits,
    ModuleSpan,
    ModuleValues,
    degrees_in,
    lanes_in,
    limits_in,
    text_in,
    volts_in,
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


class Sff8636:
    """Four lanes, with the values in the lower half of page 0 and the limits in page 3."""

    identity = ModuleSpan(0, _UPPER, _DIAGNOSTICS + 1 - _UPPER)
    serial = ModuleSpan(0, _SERIAL, _TEXT)

    def identify(self, head: bytes, upper: bytes) -> ModuleIdentity:
        """Vendor, part and serial. Raises DeviceError for a revision that is not published."""
        if head[1] > NEWEST_REVISION:
            raise DeviceError(Reason.UNSUPPORTED, f"SFF-8636 of an unknown revision: {head[1]:#04x}")
        vendor, part, serial = (text_in(upper[at - _UPPER :][:_TEXT]) for at in (_VENDOR, _PART, _SERIAL))
        return ModuleIdentity(FORM_FACTORS[head[0]], _is_copper(upper), vendor, part, serial)

    def traits_spans(self, head: bytes, upper: bytes) -> tuple[ModuleSpan, ...]:  # noqa: ARG002 - the protocol's signature
        return (ModuleSpan(0, 113, 1),)

    def traits(self, head: bytes, upper: bytes, parts: Sequence[bytes]) -> ModuleCapabilities:
        if _is_copper(upper):
            return ModuleCapabilities(monitored=not head[2] & _FLAT)
        missing = parts[0][0] & _MISSING_LANES
        lanes = 1 if upper[_COMPLIANCE - _UPPER] in _ONE_LANE else _LANES
        return ModuleCapabilities(
            lanes=tuple(lane for lane in range(1, lanes + 1) if not missing >> (lane - 1) & 1),
            receives=True,
            transmits=bool(upper[_DIAGNOSTICS - _UPPER] & _MEASURES_TRANSMIT_POWER),
            biases=True,
        )

    def limits_span(self, head: bytes) -> ModuleSpan | None:
        return None if head[2] & _FLAT else ModuleSpan(3, _LIMITS, 72)

    def limits(self, traits: ModuleCapabilities, page: bytes) -> ModuleLimits:  # noqa: ARG002 - the protocol's signature
        return limits_in(page, _LIMIT_RECEIVE, _LIMIT_TRANSMIT, _LIMIT_BIAS)

    def values_spans(self, traits: ModuleCapabilities) -> tuple[ModuleSpan, ...]:
        return (ModuleSpan(0, _VALUES, 36),) if traits.monitored else ()

    def values(self, traits: ModuleCapabilities, parts: Sequence[bytes]) -> ModuleValues:
        if not parts:
            return ModuleValues()
        now = parts[0]
        sent = lanes_in(now, _TRANSMIT - _VALUES, traits.lanes, WATTS)
        return ModuleValues(
            temperature=degrees_in(now, _TEMPERATURE - _VALUES),
            supply=volts_in(now, _SUPPLY - _VALUES),
            receive_power=lanes_in(now, _RECEIVE - _VALUES, traits.lanes, WATTS) if traits.receives else {},
            transmit_power=sent if traits.transmits or any(sent.values()) else {},  # some measure it and do not say so
            transmit_bias=lanes_in(now, _BIAS - _VALUES, traits.lanes, AMPERES) if traits.biases else {},
        )


def _is_copper(upper: bytes) -> bool:
    return upper[_TECHNOLOGY - _UPPER] >> 4 >= _COPPER
