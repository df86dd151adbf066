"""What the library writes into the arrays of a batch, in the form of a trace, and back."""

from __future__ import annotations

import struct

from agent.backends.nvml.arrays import FieldArray, GpmArray

FORMATS = ("<d", "<I4x", "<Q", "<Q", "<q", "<i4x", "<H6x")
"""How each nvmlValueType_t is stored in the eight bytes of a field's value."""
RECORD = FieldArray.RECORD

Slot = list[int | float] | int


def field_slots(array: FieldArray) -> list[Slot]:
    """What the library wrote: [type, value], or the field's error code."""
    slots: list[Slot] = []
    for i in range(array.count):
        kind, code = struct.unpack_from("<II", array.buffer, i * RECORD + 24)
        form = FORMATS[kind] if kind < len(FORMATS) else "<Q"
        (value,) = struct.unpack_from(form, array.buffer, i * RECORD + 32)
        slots.append(code or [kind, value])
    return slots


def fill_slot(array: FieldArray, index: int, slot: Slot) -> None:
    """Write one slot as the library does."""
    kind, value, code = (3, 0, slot) if isinstance(slot, int) else (int(slot[0]), slot[1], 0)
    struct.pack_into("<II", array.buffer, index * RECORD + 24, kind, code)
    struct.pack_into(FORMATS[kind] if kind < len(FORMATS) else "<Q", array.buffer, index * RECORD + 32, value)


def gpm_results(array: GpmArray) -> list[list[int | float]]:
    """[code, value] of each metric."""
    found: list[list[int | float]] = []
    for i in range(len(array.ids)):
        _, code, value = struct.unpack_from("<IId", array.buffer, 24 + i * 40)
        found.append([code, value])
    return found


def gpm_samples(array: GpmArray) -> tuple[int, int]:
    """The addresses of the earlier and the later sample."""
    earlier, later = struct.unpack_from("<QQ", array.buffer, 8)
    return earlier, later
