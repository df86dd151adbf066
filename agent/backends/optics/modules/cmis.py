"""The memory map of QSFP-DD, OSFP and newer QSFP modules (CMIS), and their versatile diagnostics monitoring (VDM).

CMIS 4 and 5 (OIF-CMIS-05.2, chapter 8), and 3, whose pages 00h to 02h and 11h are the same. VDM is in pages 20h to 2Fh.

Only values are read. The flags in bytes 8 to 13 of the lower page and 134 to 153 of page 11h clear when they are read,
which would take them from other programs that wait for them; no span touches them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

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
    read_u16_array,
    text_in,
    volts_in,
)
from agent.backends.protocol import DeviceError
from agent.model import Reason

FORM_FACTORS = {
    0x18: "QSFP-DD", 0x19: "OSFP", 0x1B: "DSFP", 0x1E: "QSFP", 0x1F: "SFP-DD", 0x20: "SFP", 0x21: "OSFP-XD",
}  # fmt: skip
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


class Cmis:
    """Eight lanes in each bank of page 11h; limits in page 2. A module of flat memory, a cable, has page 0 only."""

    identity = ModuleSpan(0, _UPPER, _TECHNOLOGY + 1 - _UPPER)
    serial = ModuleSpan(0, _SERIAL, _TEXT)

    def identify(self, head: bytes, upper: bytes) -> ModuleIdentity:
        """Vendor, part and serial. Raises DeviceError for a revision whose pages may mean something else.

        Of a cable nothing else is read, and these are where they are in every revision before CMIS 3.
        """
        major = head[1] >> 4
        if major not in MAJORS and not (head[2] & _FLAT and major < MAJORS[0]):
            raise DeviceError(Reason.UNSUPPORTED, f"CMIS of an unknown revision: {head[1] >> 4}.{head[1] & 0xF}")
        vendor, part, serial = (text_in(upper[at - _UPPER :][:_TEXT]) for at in (_VENDOR, _PART, _SERIAL))
        return ModuleIdentity(FORM_FACTORS[head[0]], _is_copper(upper), vendor, part, serial)

    def traits_spans(self, head: bytes, upper: bytes) -> tuple[ModuleSpan, ...]:  # noqa: ARG002 - the protocol's signature
        if head[2] & _FLAT:
            return ()
        return ModuleSpan(0, _APPLICATIONS, _LISTED), ModuleSpan(1, _ADVERTISED, _ADVERTISEMENTS)

    def traits(self, head: bytes, upper: bytes, parts: Sequence[bytes]) -> ModuleCapabilities:
        if not parts:
            return ModuleCapabilities(monitored=not head[2] & _FLAT)
        applications, advertised = parts
        monitors = advertised[_LANE_MONITORS - _ADVERTISED]
        factor = monitors >> 3 & 0b11
        copper = _is_copper(upper)
        banks = min(1 << (advertised[0] & _BANKS), _MOST_BANKS)
        media, host = _lanes_of(head, upper, applications, advertised)
        return ModuleCapabilities(
            lanes=() if copper else _in_banks(media, banks),
            host_lanes=() if copper else _in_banks(host, banks),
            receives=bool(monitors & _RECEIVES),
            transmits=bool(monitors & _TRANSMITS),
            biases=bool(monitors & _BIASES) and factor < len(_BIAS_FACTORS),
            ampere_step=AMPERES * _BIAS_FACTORS[factor] if factor < len(_BIAS_FACTORS) else AMPERES,
            banks=banks,
            diagnosed=bool(advertised[0] & _DIAGNOSED) and head[1] >> 4 >= _DIAGNOSED_MAJOR and not copper,
        )

    def limits_span(self, head: bytes) -> ModuleSpan | None:
        return None if head[2] & _FLAT else ModuleSpan(2, _LIMITS, 72)

    def limits(self, traits: ModuleCapabilities, page: bytes) -> ModuleLimits:
        return limits_in(page, _LIMIT_RECEIVE, _LIMIT_TRANSMIT, _LIMIT_BIAS, traits.ampere_step)

    def values_spans(self, traits: ModuleCapabilities) -> tuple[ModuleSpan, ...]:
        if not traits.monitored:
            return ()
        banks = range(traits.banks) if traits.lanes else ()
        return (
            ModuleSpan(0, _STATE, 1),
            ModuleSpan(0, _MONITORS, 4),
            *(ModuleSpan(0x11, _LANE_VALUES, 48, bank) for bank in banks),
        )

    def values(self, traits: ModuleCapabilities, parts: Sequence[bytes]) -> ModuleValues:
        """Lanes are those of a module that is ready: in low power it has lasers that are off."""
        if not parts:
            return ModuleValues()
        state, now, *banks = parts
        temperature, supply = degrees_in(now, _TEMPERATURE - _MONITORS), volts_in(now, _SUPPLY - _MONITORS)
        stage = state[0] >> 1 & 0b111
        if stage != _READY:
            trouble = "the module reports a fault" if stage == _FAULT else ""
            return ModuleValues(temperature, supply, trouble=trouble, ready=False)
        return ModuleValues(
            temperature,
            supply,
            _of_banks(banks, _RECEIVE, traits.lanes, WATTS) if traits.receives else {},
            _of_banks(banks, _TRANSMIT, traits.lanes, WATTS) if traits.transmits else {},
            _of_banks(banks, _BIAS, traits.lanes, traits.ampere_step) if traits.biases else {},
        )


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
            lanes |= {first + each for first in _bits_of(firsts or 1) for each in range(count)}
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
    found: dict[int, float] = {}
    for number, bank in enumerate(banks):
        first = number * _LANES
        within = [lane - first for lane in lanes if first < lane <= first + _LANES]
        values = lanes_in(bank, at - _LANE_VALUES, within, step)
        found |= {lane + first: value for lane, value in values.items()}
    return found


def _is_copper(upper: bytes) -> bool:
    return upper[_TECHNOLOGY - _UPPER] in _COPPER


VDM_GROUPS = ModuleSpan(0x2F, 128, 1)
"""How many pages of descriptions there are, less one, in two bits."""
_MOST_GROUPS = 0b11
_DESCRIPTIONS, _VALUES = 0x20, 0x24
_PAGE = 128
_LANE = 0x0F
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


_TYPES = {
    5: (VdmObservable.SIGNAL, MEDIA),
    6: (VdmObservable.SIGNAL, HOST),
    15: (VdmObservable.ERRORS, MEDIA),
    16: (VdmObservable.ERRORS, HOST),
}
"""Types of observables that are measured all the time: eSNR, and the current bit error ratio before correction."""

Places = Mapping[int, Mapping[int, VdmSample]]
"""For each page of values, what is measured at which byte."""


def description_spans(groups: bytes) -> tuple[ModuleSpan, ...]:
    """Return the pages of descriptions, of what VDM_GROUPS has."""
    return tuple(ModuleSpan(_DESCRIPTIONS + group, _UPPER, _PAGE) for group in range((groups[0] & _MOST_GROUPS) + 1))


def find_samples(pages: Sequence[bytes], media: Collection[int], host: Collection[int]) -> Places:
    """Return where the values of each side's lanes are, of what the pages of descriptions have; the first place of each
    counts."""
    lanes = {MEDIA: media, HOST: host}
    known: set[VdmSample] = set()
    places: dict[int, dict[int, VdmSample]] = {}
    for group, page in enumerate(pages):
        for at in range(0, _PAGE, 2):
            lane = (page[at] & _LANE) + 1
            if page[at + 1] not in _TYPES:
                continue
            found = VdmSample(*_TYPES[page[at + 1]], lane)
            if found not in known and (lane == WHOLE or (lane <= _LANES and lane in lanes[found.side])):
                known.add(found)
                places.setdefault(_VALUES + group, {})[_UPPER + at] = found
    return places


def value_spans(places: Places) -> tuple[ModuleSpan, ...]:
    """Return what has these values: of each page the bytes from the first to the last."""
    return tuple(ModuleSpan(page, min(at), max(at) + 2 - min(at)) for page, at in places.items())


def decode_samples(places: Places, parts: Sequence[bytes]) -> dict[VdmSample, float]:
    """Return the ratios; an error ratio above 1 is left out: it was not measured."""
    found: dict[VdmSample, float] = {}
    for places_of_page, part in zip(places.values(), parts, strict=True):
        first = min(places_of_page)
        for at, measurement in places_of_page.items():
            (word,) = read_u16_array(part, at - first, 1)
            value = _power_ratio(word) if measurement.measure is VdmObservable.SIGNAL else _small_float(word)
            if measurement.measure is VdmObservable.SIGNAL or value <= 1:
                found[measurement] = value
    return found


def _power_ratio(word: int) -> float:
    """From steps of 1/256 dB."""
    return float(10 ** (word / 2560))


def _small_float(word: int) -> float:
    """F16: eleven bits of mantissa, below five of a decimal exponent that begins at -24."""
    return float(f"{word & 0x7FF}e{(word >> 11) - 24}")
