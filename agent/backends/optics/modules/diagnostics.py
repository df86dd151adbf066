"""Versatile diagnostics monitoring (VDM) of CMIS modules, the part that is there without asking for it: error ratios
before correction and signal to noise, as they are now (OIF-CMIS-05.2, pages 20h to 2Fh).

Pages 20h to 23h describe what pages 24h to 27h measure, two bytes at the same place of both: a lane and what of it.
Which of the pages there are is in page 2Fh. Least, highest and mean values (types 9 to 14) are consistent only while
they are frozen, which is a write, and flags in page 2Ch clear when they are read: neither is ever read. Lanes are those
of the first eight: how they are counted in further banks was not looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from agent.backends.optics.modules.module_figures import ModuleSpan, words_in

GROUPS = ModuleSpan(0x2F, 128, 1)
"""How many pages of descriptions there are, less one, in two bits."""
_MOST_GROUPS = 0b11
_DESCRIPTIONS, _VALUES = 0x20, 0x24
_PAGE, _UPPER = 128, 128
_LANE = 0x0F
_LANES = 8
WHOLE = 0x10
"""Stands for a lane where one value is that of a whole side."""
MEDIA, HOST = "media", "host"


class Measure(Enum):
    """What is measured. Signal to noise is a ratio of powers."""

    ERRORS = "pre_fec_error"
    SIGNAL = "snr"


class Measurement(NamedTuple):
    """What a module measures on one lane, numbered from 1, of its side to the fibre (media) or to the port (host).

    The lane is WHOLE where it is one value for the side.
    """

    measure: Measure
    side: str
    lane: int


_TYPES = {
    5: (Measure.SIGNAL, MEDIA),
    6: (Measure.SIGNAL, HOST),
    15: (Measure.ERRORS, MEDIA),
    16: (Measure.ERRORS, HOST),
}
"""Types of observables that are measured all the time: eSNR, and the current bit error ratio before correction."""

Places = Mapping[int, Mapping[int, Measurement]]
"""For each page of values, what is measured at which byte."""


def description_spans(groups: bytes) -> tuple[ModuleSpan, ...]:
    """The pages of descriptions, of what GROUPS has."""
    return tuple(ModuleSpan(_DESCRIPTIONS + group, _UPPER, _PAGE) for group in range((groups[0] & _MOST_GROUPS) + 1))


def places_in(pages: Sequence[bytes], media: Collection[int], host: Collection[int]) -> Places:
    """Where the values of each side's lanes are, of what the pages of descriptions have; the first place of each
    counts."""
    lanes = {MEDIA: media, HOST: host}
    known: set[Measurement] = set()
    places: dict[int, dict[int, Measurement]] = {}
    for group, page in enumerate(pages):
        for at in range(0, _PAGE, 2):
            lane = (page[at] & _LANE) + 1
            if page[at + 1] not in _TYPES:
                continue
            found = Measurement(*_TYPES[page[at + 1]], lane)
            if found not in known and (lane == WHOLE or (lane <= _LANES and lane in lanes[found.side])):
                known.add(found)
                places.setdefault(_VALUES + group, {})[_UPPER + at] = found
    return places


def value_spans(places: Places) -> tuple[ModuleSpan, ...]:
    """What has these values: of each page the bytes from the first to the last."""
    return tuple(ModuleSpan(page, min(at), max(at) + 2 - min(at)) for page, at in places.items())


def measured_in(places: Places, parts: Sequence[bytes]) -> dict[Measurement, float]:
    """The ratios that the bytes of `value_spans` mean. An error ratio above 1 is left out: nobody measured it."""
    found: dict[Measurement, float] = {}
    for places_of_page, part in zip(places.values(), parts, strict=True):
        first = min(places_of_page)
        for at, measurement in places_of_page.items():
            (word,) = words_in(part, at - first, 1)
            value = _power_ratio(word) if measurement.measure is Measure.SIGNAL else _small_float(word)
            if measurement.measure is Measure.SIGNAL or value <= 1:
                found[measurement] = value
    return found


def _power_ratio(word: int) -> float:
    """From steps of 1/256 dB."""
    return float(10 ** (word / 2560))


def _small_float(word: int) -> float:
    """F16: eleven bits of mantissa, below five of a decimal exponent that begins at -24."""
    return float(f"{word & 0x7FF}e{(word >> 11) - 24}")
