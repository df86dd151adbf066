"""Bit error ratios of NVLink 5: the driver packs a mantissa and the power of ten that divides it into one number."""

from __future__ import annotations

from collections.abc import Sequence

from agent.backends.nvml.arrays import Slot, SlotFault
from agent.model import Reason

_BITS = 12
"""Four of the mantissa, above the eight of the exponent (NVML_NVLINK_ERROR_COUNTER_BER_GET; DCGM decodes them so)."""
_EXPONENT = 0xFF
"""The mask of the exponent. With all its bits set, as in 15e-255, it stands for a link without errors."""


def ratio_in(slot: Slot) -> float | SlotFault:
    """The ratio that the number in a slot packs."""
    if isinstance(slot, SlotFault):
        return slot
    packed = int(slot)
    if packed != slot or packed < 0 or packed >> _BITS:
        return SlotFault(Reason.MALFORMED, f"{slot} is no packed ratio of {_BITS} bits")
    exponent = packed & _EXPONENT
    return 0.0 if exponent == _EXPONENT else float(f"{packed >> 8}e-{exponent}")


def highest_of(slots: Sequence[Slot]) -> float | SlotFault:
    """The highest ratio, of the slots that have one: a link that is down tells none. Else why the first has none."""
    ratios = [ratio_in(slot) for slot in slots]
    known = [ratio for ratio in ratios if not isinstance(ratio, SlotFault)]
    return max(known) if known else ratios[0]
