"""Read and write quantities as a configuration has them: `250ms`, `15s`, `40.8kW`, `1GiB`; and say what a key of the
schema is besides its type and default: how its value is written, its bounds, what it is for.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum, auto

from agent.lib.wording import shown

_DURATIONS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_POWERS = {"W": 1.0, "kW": 1e3, "MW": 1e6}
_APPARENT_POWERS = {"VA": 1.0, "kVA": 1e3, "MVA": 1e6}
_SIZES = {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_CURRENT = ("amperes", "volts", "phases")
_DIRECT = ("amperes", "volts_dc")
_MOST = 1e8
"""The most watts that a rack may have; more is taken for a typing error."""
_SHAPE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def _parse(value: object, units: dict[str, float], what: str, example: str) -> float:
    known = ", ".join(units)
    match = _SHAPE.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(
            f"{shown(value)} is not a {what}; write a number with one of the units {known}, such as {example}"
        )
    number, unit = match.groups()
    if unit not in units:
        raise ValueError(f"{shown(unit)} is not a unit of {what}; use one of {known}, such as {example}")
    return float(number) * units[unit]


def duration(value: object) -> float:
    """Return seconds. Raises ValueError with the remedy."""
    return _parse(value, _DURATIONS, "duration", "15s")


def moment(text: str) -> float:
    """Wall seconds of a time in ISO 8601, in UTC where it has no zone, or of seconds. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 knows no Z
    except ValueError:
        raise ValueError(
            f"{shown(text)} is no time; give one such as 2026-11-21T08:00:00Z, or seconds since 1970"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def power(value: object) -> float:
    """Return watts. Raises ValueError with the remedy."""
    return _parse(value, _POWERS, "power", "40.8kW")


def limit(value: object, power_factor: float) -> float:
    """Return a limit in watts, which may be given as power, apparent power or current.

    Breakers limit current and supplies apparent power: both times the power factor are watts. Direct current has no
    power factor. Raises ValueError with the remedy.
    """
    if isinstance(value, dict) and "volts_dc" in value:
        given = _given(value, _DIRECT, "{amperes: 180, volts_dc: 800}")
        watts = given["amperes"] * given["volts_dc"] * given["derate"]
    elif isinstance(value, dict):
        watts = _current(value) * power_factor
    else:
        factors = {**_POWERS, **{unit: each * power_factor for unit, each in _APPARENT_POWERS.items()}}
        watts = _parse(value, factors, "power limit", "40.8kW, 45kVA or {amperes: 60, volts: 415, phases: 3}")
    if not 0 < watts <= _MOST:
        raise ValueError(f"{shown(value)} is {watts:g} W; give more than 0 and at most {_MOST:g} W")
    return watts


def _current(value: dict[object, object]) -> float:
    """Return volt-amperes of a current."""
    given = _given(value, _CURRENT, "{amperes: 60, volts: 415, phases: 3}")
    if given["phases"] not in (1, 3):
        raise ValueError(f"phases: {given['phases']:g} is neither 1 nor 3; with 3, volts are phase to phase")
    return given["amperes"] * given["volts"] * math.sqrt(given["phases"]) * given["derate"]


def _given(value: dict[object, object], keys: tuple[str, ...], example: str) -> dict[str, float]:
    """Return the numbers of a mapping that must have these keys, and may have `derate`."""
    unknown = [key for key in value if key not in (*keys, "derate")]
    missing = [key for key in keys if key not in value]
    if unknown or missing:
        problem = f"unknown key {shown(unknown[0])}" if unknown else f"{missing[0]} is missing"
        raise ValueError(f"{problem}; write {example}, with derate: 0.8 if needed")
    given = {str(key): _named_number(str(key), each) for key, each in {"derate": 1, **value}.items()}
    if not 0 < given["derate"] <= 1:
        raise ValueError(f"derate: {given['derate']:g} is out of range; give the usable share, such as 0.8")
    return given


def size(value: object) -> float:
    """Return bytes. Raises ValueError with the remedy."""
    return _parse(value, _SIZES, "size", "1GiB")


def numbers(value: object) -> dict[float, float]:
    """Return a mapping from numbers to numbers; YAML reads `1e8` as a string. Raises ValueError with the remedy."""
    if not isinstance(value, dict):
        raise ValueError("must be a mapping from one number to another, such as {0.5: 0.4}")
    made: dict[float, float] = {}
    for before, after in value.items():
        number = _number(before)
        if number in made:
            raise ValueError(f"{shown(before)} is given twice; remove one")
        made[number] = _number(after)
    return made


def duration_text(seconds: float) -> str:
    return _text(seconds, _DURATIONS)


def power_text(watts: float) -> str:
    return _text(watts, _POWERS)


def size_text(octets: float) -> str:
    return _text(octets, {unit: factor for unit, factor in _SIZES.items() if unit[0] == "B" or "i" in unit})


def _text(value: float, units: dict[str, float]) -> str:
    """In the largest unit in which it is a whole number, else in the first one."""
    whole = [unit for unit, factor in units.items() if value >= factor and (value / factor).is_integer()]
    unit = max(whole, key=lambda each: units[each]) if whole else next(iter(units))
    return f"{value / units[unit]:g}{unit}"


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{shown(value)} is not a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{shown(value)} is not a number") from None


def _named_number(name: str, value: object) -> float:
    try:
        return _number(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}; give it without a unit") from None


class Notation(Enum):
    """How a value is written in the file, if YAML's own types do not say it."""

    DURATION = auto()
    POWER = auto()
    SIZE = auto()
    LIMIT = auto()
    """Watts that may be given as apparent power or current."""
    LIMITS = auto()
    """A mapping from names to such limits."""
    NUMBERS = auto()
    """A mapping from numbers to numbers."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `what` is a sentence for the author of the file.

    `least` and `most` are bounds as written in the file; `above` is a bound that the value must exceed. `words` are the
    permitted values, or entries of a list. A reload does not change a key with `restart`. `example` is a value as
    written in a file, if the default shows nothing.
    """

    what: str
    unit: Notation | None = None
    least: str = ""
    above: str = ""
    most: str = ""
    words: tuple[str, ...] = ()
    restart: bool = False
    example: str = ""

    @property
    def range(self) -> str:
        """The bounds as a text; empty without bounds."""
        if self.above:
            return f"more than {self.above} and up to {self.most}"
        return f"{self.least} to {self.most}" if self.most else ""

    def problem(self, value: object) -> str | None:
        """Return what is wrong with a value, in base units, and the remedy; None if it can be used."""
        if self.words:
            return self._unknown(value)
        if not self.most or not isinstance(value, (int, float)):
            return None
        low, high = self._number(self.above or self.least), self._number(self.most)
        good = low < value <= high if self.above else low <= value <= high  # NaN is between nothing
        return None if good else f"{value:g}{_SUFFIXES.get(self.unit, '')} is out of range; use {self.range}"

    def _unknown(self, value: object) -> str | None:
        several = not isinstance(value, str)
        for each in value if isinstance(value, tuple) else (value,):
            if each not in self.words:
                how = "any of" if several else "one of"
                return f"{shown(each)} is unknown; use {how} {', '.join(self.words)}"
        return None

    def _number(self, bound: str) -> float:
        return float(bound) if self.unit is None else READERS[self.unit](bound)


READERS: dict[Notation, Callable[[object], float]] = {
    Notation.DURATION: duration,
    Notation.POWER: power,
    Notation.SIZE: size,
}
_SUFFIXES: dict[Notation | None, str] = {Notation.DURATION: "s", Notation.POWER: " W", Notation.SIZE: " B"}
