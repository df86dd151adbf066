"""What a module's memory says, in base units, whichever memory map it has; and the fields that the maps share.

Both maps store numbers with the high byte first: temperatures in 1/256 degree, voltages in 100 microvolts, powers in
100 nanowatts, and currents in 2 microamperes. All bytes are those of an unsigned page of 256, of which 128 on are the
page's own.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from agent.backends.sysfs import printable

DEGREES, VOLTS, WATTS, AMPERES = 1 / 256, 1e-4, 1e-7, 2e-6
"""The value of one step of each field."""
_BLANK = b"\0\xff "
"""What fills a text that is shorter than its field, or was never written."""


class ModuleSpan(NamedTuple):
    """Neighbouring bytes of one page: what is asked for at once. `offset` below 128 is in page 0 only."""

    page: int
    offset: int
    length: int
    bank: int = 0

    def __str__(self) -> str:
        return f"page {self.page:02X}h from byte {self.offset}"


class ModuleIdentity(NamedTuple):
    """Which module it is, by its own words."""

    form_factor: str
    copper: bool
    vendor: str
    part_number: str
    serial: str


class ModuleCapabilities(Struct, frozen=True):
    """What a module measures, which does not change while it is plugged in. `lanes` are those of the medium, numbered
    from 1; `host_lanes` are known where `diagnosed`.

    `ampere_step` is the value of one step of a laser's current, `banks` how many times eight lanes there are.
    `diagnosed`: it has pages of diagnostics.
    """

    lanes: tuple[int, ...] = ()
    host_lanes: tuple[int, ...] = ()
    monitored: bool = True
    receives: bool = False
    transmits: bool = False
    biases: bool = False
    ampere_step: float = AMPERES
    banks: int = 1
    diagnosed: bool = False


class AlarmWarningLimits(NamedTuple):
    """The limits on one side of a quantity: None if the module states none, or nonsense."""

    alarm: float | None = None
    warning: float | None = None


class ModuleLimits(NamedTuple):
    """The limits that the module sets itself: above for temperature and current, below for light."""

    temperature: AlarmWarningLimits = AlarmWarningLimits()
    receive_power: AlarmWarningLimits = AlarmWarningLimits()
    transmit_power: AlarmWarningLimits = AlarmWarningLimits()
    transmit_bias: AlarmWarningLimits = AlarmWarningLimits()


class ModuleValues(Struct, frozen=True):
    """What a module measures now: degrees, volts, and by lane watts and amperes.

    `trouble`: why it has no lanes. One that is not `ready` has none either, and diagnoses nothing.
    """

    temperature: float | None = None
    supply: float | None = None
    receive_power: Mapping[int, float] = field(default_factory=dict)
    transmit_power: Mapping[int, float] = field(default_factory=dict)
    transmit_bias: Mapping[int, float] = field(default_factory=dict)
    trouble: str = ""
    ready: bool = True


class MemoryMap(Protocol):
    """Where a module keeps what, and what its bytes mean. `head` is bytes 0 to 2, `upper` those of `identity`.

    None of it asks the module. Methods raise DeviceError for bytes that cannot be understood.
    """

    identity: ModuleSpan
    serial: ModuleSpan
    """A part of `identity`, which is read again at the end."""

    def identify(self, head: bytes, upper: bytes) -> ModuleIdentity: ...

    def traits_spans(self, head: bytes, upper: bytes) -> tuple[ModuleSpan, ...]:
        """Return what `traits` needs besides."""

    def traits(self, head: bytes, upper: bytes, parts: Sequence[bytes]) -> ModuleCapabilities: ...

    def limits_span(self, head: bytes) -> ModuleSpan | None:
        """Return where the limits are; None if the module has no such page."""

    def limits(self, traits: ModuleCapabilities, page: bytes) -> ModuleLimits: ...

    def values_spans(self, traits: ModuleCapabilities) -> tuple[ModuleSpan, ...]: ...

    def values(self, traits: ModuleCapabilities, parts: Sequence[bytes]) -> ModuleValues: ...


def text_in(data: bytes) -> str:
    """Return a text field as a label's value."""
    return printable(data.strip(_BLANK).decode("ascii", "replace"))


def read_u16_array(data: bytes, at: int, count: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{count}H", data, at)


def degrees_in(data: bytes, at: int) -> float | None:
    """Return a temperature; None for exactly 0, which a module without a sensor gives."""
    (steps,) = struct.unpack_from(">h", data, at)
    return steps * DEGREES if steps else None


def volts_in(data: bytes, at: int) -> float | None:
    """Return a supply voltage; None for exactly 0, since a module without supply would not answer."""
    (steps,) = read_u16_array(data, at, 1)
    return steps * VOLTS if steps else None


def lanes_in(data: bytes, at: int, lanes: Sequence[int], step: float) -> dict[int, float]:
    """Return a value for each of these lanes, of which the first is at `at`. 0 is a value: no light, no current."""
    return {lane: read_u16_array(data, at + 2 * (lane - 1), 1)[0] * step for lane in lanes}


def upper_bounds(data: bytes, at: int, step: float, *, signed: bool = False) -> AlarmWarningLimits:
    """Return the limits above. Both maps have the order high alarm, low alarm, high warning, low warning."""
    high, low, warning, _ = struct.unpack_from(">4h" if signed else ">4H", data, at)
    if high <= low:  # never programmed: all zeros or all ones
        return AlarmWarningLimits()
    return AlarmWarningLimits(high * step, warning * step if low < warning <= high else None)


def lower_bounds(data: bytes, at: int, step: float) -> AlarmWarningLimits:
    """Return the limits below, in the same order."""
    high, low, _, warning = read_u16_array(data, at, 4)
    if high <= low:
        return AlarmWarningLimits()
    return AlarmWarningLimits(low * step, warning * step if low <= warning < high else None)


def limits_in(page: bytes, receive: int, transmit: int, bias: int, ampere_step: float = AMPERES) -> ModuleLimits:
    """Return the limits in a page's own bytes, where light and current are at these; temperature is at 128 in both."""
    return ModuleLimits(
        temperature=upper_bounds(page, 0, DEGREES, signed=True),
        receive_power=lower_bounds(page, receive - 128, WATTS),
        transmit_power=lower_bounds(page, transmit - 128, WATTS),
        transmit_bias=upper_bounds(page, bias - 128, ampere_step),
    )
