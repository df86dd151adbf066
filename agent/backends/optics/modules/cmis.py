"""The memory map of QSFP-DD, OSFP and newer QSFP modules (CMIS), and their versatile diagnostics monitoring (VDM).

CMIS 4 and 5 (OIF-CMIS-05.2, chapter 8), and 3, whose pages 00h to 02h and 11h are the same. VDM is in pages 20h to 2Fh.

Only values are read. The flags in bytes 8 to 13 of the lower page and 134 to 153 of page 11h clear when they are read,
which would take them from other programs that wait for them; no span touches them.
"""

from collections.abc import Collection, Sequence

from agent.backends.optics.ethtool_requests import PortValue
from agent.backends.optics.modules.module_types import (
    AMPERES,
    BIAS,
    HOST,
    MEDIA,
    RECEIVE,
    TRANSMIT,
    WATTS,
    WHOLE,
    Memory,
    ModuleSpan,
    ModuleValues,
    Places,
    PluggedModule,
    VdmSample,
    lane_values,
    lanes_in,
    limits_in,
    monitors_in,
    read_span,
    read_u16_array,
)
from agent.backends.protocol import DeviceError
from agent.catalogue import optics as rows
from agent.model import Reason

FORM_FACTORS = {0x18: "QSFP-DD", 0x19: "OSFP", 0x1B: "DSFP", 0x1E: "QSFP", 0x1F: "SFP-DD", 0x20: "SFP", 0x21: "OSFP-XD"}
"""Identifiers of SFF-8024, table 4-1, that mean this map."""
MAJORS = (3, 4, 5)
"""In the high nibble of byte 1."""
_FLAT = 1 << 7
_UPPER = 128
_VENDOR, _PART, _SERIAL = 129, 148, 166
_TEXT = 16
_MISSING_LANES, _TECHNOLOGY = 210, 212
_APPLICATIONS, _LISTED = 85, 33
"""Bytes of the lower page: the type of the medium, and eight application descriptors of four bytes."""
_MORE_APPLICATIONS, _MEDIA_LANES = 223, 176
"""Page 01h: seven more descriptors, and for each of the fifteen where its instances begin on the media side."""
_LAST = 0xFF
"""In the first byte of a descriptor: the list has ended."""
_FOUR_LANES = 0x1E
"""An identifier whose module has four lanes on each side, whatever it lists."""
_COPPER = range(0x0A, 0x10)
"""Media interface technologies: copper cables without and with equalizers."""
_LANES = 8
"""Of one bank."""
_ADVERTISED, _ADVERTISEMENTS = 142, 109
_DIAGNOSED, _DIAGNOSED_MAJOR = 1 << 6, 4
"""Byte 142: there are diagnostics pages, from CMIS 4 on."""
_BANKS, _MOST_BANKS = 0b11, 2
"""Bytes 142: one, two or four banks; a port has sixteen lanes at most."""
_LANE_MONITORS = 160
_BIASES, _TRANSMITS, _RECEIVES = 1, 2, 4
_BIAS_FACTORS = (1, 2, 4)
_READY, _FAULT = 3, 5
_STATE = 3
_MONITORS, _TEMPERATURE, _SUPPLY = 14, 14, 16
_LANE_VALUES, _TRANSMIT, _BIAS, _RECEIVE = 154, 154, 170, 186
_LIMITS = 128
_LIMIT_TRANSMIT, _LIMIT_BIAS, _LIMIT_RECEIVE = 176, 184, 192


class CmisModule(PluggedModule):
    """Eight lanes in each bank of page 11h; limits in page 2. A module of flat memory, a cable, has page 0 only."""

    identity_span = ModuleSpan(0, _UPPER, _TECHNOLOGY + 1 - _UPPER)
    serial_span = ModuleSpan(0, _SERIAL, _TEXT)

    def __init__(self, head: bytes, upper: bytes) -> None:
        """Raise DeviceError for a revision whose pages may mean something else.

        Of a cable nothing else is read, and its texts are where they are in every revision before CMIS 3.
        """
        major = head[1] >> 4
        self._is_flat = bool(head[2] & _FLAT)
        if major not in MAJORS and not (self._is_flat and major < MAJORS[0]):
            raise DeviceError(Reason.UNSUPPORTED, f"CMIS of an unknown revision: {major}.{head[1] & 0xF}")
        copper = upper[_TECHNOLOGY - _UPPER] in _COPPER
        super().__init__(head, upper, FORM_FACTORS[head[0]], copper, (_VENDOR, _PART, _SERIAL))
        self._host_lanes: tuple[int, ...] = ()
        self._monitors = 0
        self._ampere_step = AMPERES
        self._banks = 1
        self._is_diagnosed = False

    def read_traits(self, memory: Memory) -> None:
        if self._is_flat:
            return
        applications = read_span(memory, ModuleSpan(0, _APPLICATIONS, _LISTED))
        advertised = read_span(memory, ModuleSpan(1, _ADVERTISED, _ADVERTISEMENTS))
        if self.copper:
            return
        self._monitors = advertised[_LANE_MONITORS - _ADVERTISED]
        factor = self._monitors >> 3 & 0b11
        if factor < len(_BIAS_FACTORS):
            self._ampere_step = AMPERES * _BIAS_FACTORS[factor]
        else:
            self._monitors &= ~_BIASES
        self._banks = min(1 << (advertised[0] & _BANKS), _MOST_BANKS)
        media, host = _lanes_of(self.head, self.upper, applications, advertised)
        self.lanes, self._host_lanes = _in_banks(media, self._banks), _in_banks(host, self._banks)
        self._is_diagnosed = bool(advertised[0] & _DIAGNOSED) and self.head[1] >> 4 >= _DIAGNOSED_MAJOR

    def read_limits(self, memory: Memory) -> list[PortValue]:
        if self._is_flat:
            return []
        page = read_span(memory, ModuleSpan(2, _LIMITS, 72), blank=True)
        places = (_LIMIT_RECEIVE, _LIMIT_TRANSMIT, _LIMIT_BIAS)
        return list(limits_in(page, *places, lanes=self.lanes, ampere_step=self._ampere_step))

    def read_values(self, memory: Memory) -> ModuleValues:
        """Lanes are those of a module that is ready: in low power it has lasers that are off."""
        if self._is_flat:
            return ModuleValues()
        state, now = read_span(memory, ModuleSpan(0, _STATE, 1)), read_span(memory, ModuleSpan(0, _MONITORS, 4))
        banks = [
            read_span(memory, ModuleSpan(0x11, _LANE_VALUES, 48, bank))
            for bank in range(self._banks if self.lanes else 0)
        ]
        values = list(monitors_in(now, _TEMPERATURE - _MONITORS, _SUPPLY - _MONITORS))
        stage = state[0] >> 1 & 0b111
        if stage != _READY:
            return ModuleValues(values, "the module reports a fault" if stage == _FAULT else "", ready=False)
        for monitor, quantity, at, step in (
            (_RECEIVES, RECEIVE, _RECEIVE, WATTS),
            (_TRANSMITS, TRANSMIT, _TRANSMIT, WATTS),
            (_BIASES, BIAS, _BIAS, self._ampere_step),
        ):
            if self._monitors & monitor:
                values += lane_values(quantity, _of_banks(banks, at, self.lanes, step))
        return ModuleValues(values)

    def find_diagnostics(self, memory: Memory) -> Places:
        if not self._is_diagnosed:
            return {}
        (groups,) = read_span(memory, VDM_GROUPS)
        spans = (ModuleSpan(_DESCRIPTIONS + group, _UPPER, _PAGE) for group in range((groups & _MOST_GROUPS) + 1))
        pages = [read_span(memory, span, blank=True) for span in spans]
        return find_samples(pages, self.lanes, self._host_lanes)


def _lanes_of(head: bytes, upper: bytes, applications: bytes, advertised: bytes) -> tuple[set[int], set[int]]:
    """Return the lanes of one bank that its applications use, on the side of the medium and of the host.

    Byte 210 counts only in a module that lists none: modules are known that set none or all of its bits.
    """
    listed = applications[1:] + advertised[_MORE_APPLICATIONS - _ADVERTISED :]
    begins = advertised[_MEDIA_LANES - _ADVERTISED :]
    sides: tuple[set[int], set[int]] = set(), set()
    for number, at in enumerate(range(0, len(listed), 4)):
        interface, _, counts, host_begins = listed[at : at + 4]
        if interface == _LAST:
            break
        for lanes, count, firsts in zip(sides, (counts & 0xF, counts >> 4), (begins[number], host_begins), strict=True):
            lanes |= {first + offset for first in _bits_of(firsts or 1) for offset in range(count)}
    media, host = sides
    most = _LANES // 2 if head[0] == _FOUR_LANES else _LANES
    whole = set(range(1, most + 1))
    return media & whole or whole - _bits_of(upper[_MISSING_LANES - _UPPER]), host & whole or whole


def _bits_of(mask: int) -> set[int]:
    """Return the lanes, from 1, whose bits are set."""
    return {lane for lane in range(1, _LANES + 1) if mask >> (lane - 1) & 1}


def _in_banks(lanes: set[int], banks: int) -> tuple[int, ...]:
    return tuple(bank * _LANES + lane for bank in range(banks) for lane in sorted(lanes))


def _of_banks(banks: Sequence[bytes], at: int, lanes: Sequence[int], step: float) -> dict[int, float]:
    values_by_lane: dict[int, float] = {}
    for number, bank in enumerate(banks):
        first = number * _LANES
        within = [lane - first for lane in lanes if first < lane <= first + _LANES]
        values = lanes_in(bank, at - _LANE_VALUES, within, step)
        values_by_lane |= {lane + first: value for lane, value in values.items()}
    return values_by_lane


VDM_GROUPS = ModuleSpan(0x2F, 128, 1)
"""How many pages of descriptions there are, less one, in two bits."""
_MOST_GROUPS = 0b11
_DESCRIPTIONS, _VALUES = 0x20, 0x24
_PAGE = 128
_LANE = 0x0F


_TYPES = {
    5: (rows.SIGNAL_LANE, MEDIA),
    6: (rows.SIGNAL_LANE, HOST),
    15: (rows.ERRORS_LANE, MEDIA),
    16: (rows.ERRORS_LANE, HOST),
}
"""Types of observables that are measured all the time: eSNR, and the current bit error ratio before correction."""


def find_samples(pages: Sequence[bytes], media: Collection[int], host: Collection[int]) -> Places:
    """Return where the values of each side's lanes are, of what the pages of descriptions have; the first place of each
    counts."""
    lanes = {MEDIA: media, HOST: host}
    placed: set[VdmSample] = set()
    places: dict[int, dict[int, VdmSample]] = {}
    for group, page in enumerate(pages):
        for at in range(0, _PAGE, 2):
            lane = (page[at] & _LANE) + 1
            if page[at + 1] not in _TYPES:
                continue
            sample = VdmSample(*_TYPES[page[at + 1]], lane)
            if sample not in placed and (lane == WHOLE or (lane <= _LANES and lane in lanes[sample.side])):
                placed.add(sample)
                places.setdefault(_VALUES + group, {})[_UPPER + at] = sample
    return places


def read_samples(memory: Memory, places: Places) -> dict[VdmSample, float]:
    """Return the ratios: of each page the bytes from the first to the last are read. Raises as `read_span`.

    An error ratio above 1 is left out: it was not measured.
    """
    ratios: dict[VdmSample, float] = {}
    for page, places_of_page in places.items():
        first = min(places_of_page)
        part = read_span(memory, ModuleSpan(page, first, max(places_of_page) + 2 - first))
        for at, measurement in places_of_page.items():
            (word,) = read_u16_array(part, at - first, 1)
            if measurement.row is rows.SIGNAL_LANE:
                ratios[measurement] = _power_ratio(word)
                continue
            error_ratio = _small_float(word)
            if error_ratio <= 1:
                ratios[measurement] = error_ratio
    return ratios


def _power_ratio(word: int) -> float:
    """Return the ratio of steps of 1/256 dB."""
    return float(10 ** (word / 2560))


def _small_float(word: int) -> float:
    """Return the value of an F16: eleven bits of mantissa, below five of a decimal exponent that begins at -24."""
    return float(f"{word & 0x7FF}e{(word >> 11) - 24}")
