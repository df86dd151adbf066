"""What a module's memory says, in base units, whichever memory map it has; and the fields that the maps share.

Both maps store numbers with the high byte first: temperatures in 1/256 degree, voltages in 100 microvolts, powers in
100 nanowatts, and currents in 2 microamperes. All bytes are those of an unsigned page of 256, of which 128 on are the
page's own.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from msgspec import Struct, field

from agent.backends.protocol import DeviceError
from agent.backends.sysfs import printable
from agent.model import Reason

DEGREES, VOLTS, WATTS, AMPERES = 1 / 256, 1e-4, 1e-7, 2e-6
"""The value of one step of each field."""
_UNWRITTEN = 0xFF
"""What an open bus reads as."""
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


WHOLE = 0x10
"""Stands for a lane where one value is that of a whole side."""
MEDIA, HOST = "media", "host"


class VdmObservable(Enum):
    """What VDM measures without being asked to: error ratios before correction, and signal to noise, a ratio of powers.

    Pages 20h to 23h describe what pages 24h to 27h measure, two bytes at the same place of both: a lane and what of it.
    Which of the pages there are is in page 2Fh. Least, highest and mean values (types 9 to 14) are consistent only
    while they are frozen, which is a write, and flags in page 2Ch clear when they are read: neither is ever read. Lanes
    are those of the first eight: how they are counted in further banks was not looked up.
    """

    ERRORS = "pre_fec_error"
    SIGNAL = "snr"


class VdmSample(NamedTuple):
    """What a module measures on one lane, numbered from 1, of its side to the fibre (media) or to the port (host).

    The lane is WHOLE where it is one value for the side.
    """

    measure: VdmObservable
    side: str
    lane: int


Places = Mapping[int, Mapping[int, VdmSample]]
"""For each page of values, what is measured at which byte."""


Memory = Callable[[ModuleSpan], bytes]
"""Reads bytes of a module. Raises OSError, and NetlinkFormatError."""


def read_span(memory: Memory, span: ModuleSpan, *, blank: bool = False) -> bytes:
    """Return all bytes of a span. Only `blank` ones may be memory that was never written. Raises DeviceError, too."""
    data = memory(span)
    if len(data) != span.length:
        raise DeviceError(Reason.MALFORMED, f"{span}: {len(data)} bytes, asked for {span.length}")
    if not blank and span.length > 1 and not data.strip(bytes((_UNWRITTEN,))):
        raise DeviceError(Reason.MALFORMED, f"{span}: all bytes are 0xff, as where no module answers")
    return data


class PluggedModule(ABC):
    """What is known of a module while it is plugged in; a subclass is a memory map. Its methods raise as `read_span`.

    `head` is bytes 0 to 2, `upper` those of `identity_span`.
    """

    identity_span: ModuleSpan
    serial_span: ModuleSpan
    """A part of `identity_span`, which is read again at the end."""
    lanes: tuple[int, ...] = ()
    """Those of the medium that it measures, numbered from 1."""

    def __init__(self, head: bytes, upper: bytes, form_factor: str, copper: bool, texts: tuple[int, int, int]) -> None:
        """`texts` are where vendor, part number and serial are."""
        self.head, self.upper = head, upper
        first = self.identity_span.offset
        vendor, part, serial = (text_in(upper[at - first :][: self.serial_span.length]) for at in texts)
        self.identity = ModuleIdentity(form_factor, copper, vendor, part, serial)
        self.limits: ModuleLimits | DeviceError | None = None
        """None if the module has no page of limits; it may be the failure to read them."""
        self.diagnosed: Places | DeviceError = {}
        """The places of its diagnostics, or the failure to find them."""

    @property
    def complete(self) -> bool:
        """Whether no read of it failed, so that none must be repeated."""
        return not isinstance(self.limits, DeviceError) and not isinstance(self.diagnosed, DeviceError)

    @abstractmethod
    def read_traits(self, memory: Memory) -> None:
        """Find out what the module measures, which does not change."""

    @abstractmethod
    def read_limits(self, memory: Memory) -> ModuleLimits | None:
        """Return the limits; None if the module has no such page."""

    @abstractmethod
    def read_values(self, memory: Memory) -> ModuleValues: ...

    def find_diagnostics(self, memory: Memory) -> Places:  # noqa: ARG002 - most maps have none
        """Return what the module diagnoses, and where it is."""
        return {}


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
