"""What a module's memory says, in base units, whichever memory map it has; and the fields that the maps share.

Both maps store numbers with the high byte first: temperatures in 1/256 degree, voltages in 100 microvolts, powers in
100 nanowatts, and currents in 2 microamperes. All bytes are those of an unsigned page of 256, of which 128 on are the
page's own.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from agent.backends.optics.ethtool_requests import PortValue
from agent.backends.protocol import DeviceError
from agent.backends.sysfs import printable
from agent.catalogue import optics as rows
from agent.model import Metric, Reason

DEGREES, VOLTS, WATTS, AMPERES = 1 / 256, 1e-4, 1e-7, 2e-6
"""The value of one step of each field."""
_ALARM, _WARNING = (("level", "alarm"),), (("level", "warning"),)
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


class ModuleValues(NamedTuple):
    """What a module measures now.

    `trouble`: why it has no lanes. One that is not `ready` has none either, and diagnoses nothing.
    """

    values: Sequence[PortValue] = ()
    trouble: str = ""
    ready: bool = True


WHOLE = 0x10
"""Stands for a lane where one value is that of a whole side."""
MEDIA, HOST = "media", "host"


class VdmSample(NamedTuple):
    """What a module measures on one lane, numbered from 1, of its side to the fibre (media) or to the port (host).

    `row` is that of a lane: of error ratios before correction, or of signal to noise, a ratio of powers. VDM measures
    these without being asked to. The lane is WHOLE where it is one value for the side.

    Pages 20h to 23h describe what pages 24h to 27h measure, two bytes at the same place of both: a lane and what of it.
    Which of the pages there are is in page 2Fh. Least, highest and mean values (types 9 to 14) are consistent only
    while they are frozen, which is a write, and flags in page 2Ch clear when they are read: neither is ever read. Lanes
    are those of the first eight: how they are counted in further banks was not looked up.
    """

    row: Metric
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
        self.copper = copper
        labels = {"form_factor": form_factor, "media": "copper" if copper else "optical"}
        labels |= {"vendor": vendor, "part_number": part, "serial": serial}
        self.info = PortValue(rows.INFO, tuple(labels.items()), 1)
        """Which module it is, by its own words."""
        self.limits: Sequence[PortValue] | DeviceError = ()
        """The limits that the module sets itself, or the failure to read them."""
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
    def read_limits(self, memory: Memory) -> list[PortValue]:
        """Return the limits; none if the module has no such page."""

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


def monitors_in(data: bytes, temperature: int, supply: int) -> Iterator[PortValue]:
    """Yield the temperature and the supply voltage, which are at these bytes.

    A module without a sensor gives a temperature of exactly 0, and without supply it would not answer.
    """
    degrees, volts = struct.unpack_from(">h", data, temperature)[0], read_u16_array(data, supply, 1)[0]
    if degrees:
        yield PortValue(rows.TEMPERATURE, (), degrees * DEGREES)
    if volts:
        yield PortValue(rows.SUPPLY, (), volts * VOLTS)


def lanes_in(data: bytes, at: int, lanes: Sequence[int], step: float) -> dict[int, float]:
    """Return a value for each of these lanes, of which the first is at `at`. 0 is a value: no light, no current."""
    return {lane: read_u16_array(data, at + 2 * (lane - 1), 1)[0] * step for lane in lanes}


RECEIVE = (rows.RECEIVE_LANE, rows.RECEIVE_LOWEST, rows.RECEIVE_HIGHEST)
TRANSMIT = (rows.TRANSMIT_LANE, rows.TRANSMIT_LOWEST, None)
BIAS = (rows.BIAS_LANE, None, rows.BIAS_HIGHEST)
"""The rows of each lane, and of the lowest and the highest of them."""


def lane_values(
    quantity: tuple[Metric, Metric | None, Metric | None], values: Mapping[int, float]
) -> Iterator[PortValue]:
    """Yield one of the quantities above, by lane."""
    lane_row, lowest, highest = quantity
    if values and lowest:
        yield PortValue(lowest, (), min(values.values()))
    if values and highest:
        yield PortValue(highest, (), max(values.values()))
    for lane, value in values.items():
        yield PortValue(lane_row, (("lane", str(lane)),), value)


def limits_in(
    page: bytes, receive: int, transmit: int, bias: int, *, lanes: Sequence[int], ampere_step: float = AMPERES
) -> Iterator[PortValue]:
    """Yield the limits in a page's own bytes: above for temperature and current, below for light, if there are lanes.

    Light and current are at these bytes; temperature is at 128 in both maps.
    """
    yield from _upper_limits(rows.TEMPERATURE_LIMIT, struct.unpack_from(">4h", page), DEGREES)
    if lanes:
        yield from _lower_limits(rows.RECEIVE_LIMIT, read_u16_array(page, receive - 128, 4))
        yield from _lower_limits(rows.TRANSMIT_LIMIT, read_u16_array(page, transmit - 128, 4))
        yield from _upper_limits(rows.BIAS_LIMIT, read_u16_array(page, bias - 128, 4), ampere_step)


def _upper_limits(row: Metric, steps: Sequence[int], step: float) -> Iterator[PortValue]:
    """Yield the upper limits; both maps have the order high alarm, low alarm, high warning, low warning."""
    high, low, warning, _ = steps
    if high > low:  # else never programmed: all zeros or all ones
        yield PortValue(row, _ALARM, high * step)
        if low < warning <= high:
            yield PortValue(row, _WARNING, warning * step)


def _lower_limits(row: Metric, steps: Sequence[int]) -> Iterator[PortValue]:
    high, low, _, warning = steps
    if high > low:
        yield PortValue(row, _ALARM, low * WATTS)
        if low <= warning < high:
            yield PortValue(row, _WARNING, warning * WATTS)
