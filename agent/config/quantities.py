"""Read and write quantities as a configuration has them: `250ms`, `15s`, `40.8kW`, `1GiB`; and say what a key of the
schema is besides its type and default: how its value is written, its bounds, what it is for.
"""

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from enum import Enum, auto

from msgspec import Struct, field

from agent.lib.wording import shown

_CURRENT = ("amperes", "volts", "phases")
_DIRECT = ("amperes", "volts_dc")
_MOST = 1e8
"""The most watts that a rack may have; more is taken for a typing error."""
_SHAPE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


class Units(Struct, frozen=True):
    """How a kind of quantity is written: its units, each with how many base units it is; those only read are apart."""

    what: str
    example: str
    factors: Mapping[str, float]
    read_too: Mapping[str, float] = field(default_factory=dict)

    def read(self, value: object) -> float:
        """Return base units. Raises ValueError with the remedy."""
        units = {**self.factors, **self.read_too}
        names = ", ".join(units)
        match = _SHAPE.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(
                f"{shown(value)} is not a {self.what}; write a number with one of the units {names}, "
                f"such as {self.example}"
            )
        number, unit = match.groups()
        if unit not in units:
            raise ValueError(f"{shown(unit)} is not a unit of {self.what}; use one of {names}, such as {self.example}")
        return float(number) * units[unit]

    def text(self, value: float) -> str:
        """Return the value in the largest unit in which it is a whole number, else in the first one."""
        whole = [unit for unit, factor in self.factors.items() if value >= factor and (value / factor).is_integer()]
        unit = max(whole, key=lambda unit_name: self.factors[unit_name]) if whole else next(iter(self.factors))
        return f"{value / self.factors[unit]:g}{unit}"


_DURATION = Units("duration", "15s", {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0})
_POWER = Units("power", "40.8kW", {"W": 1.0, "kW": 1e3, "MW": 1e6})
_APPARENT_POWERS = {"VA": 1.0, "kVA": 1e3, "MVA": 1e6}
_SIZE = Units(
    "size",
    "1GiB",
    {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40},
    {"kB": 1e3, "MB": 1e6, "GB": 1e9},
)
duration, duration_text = _DURATION.read, _DURATION.text
"""In seconds."""
size = _SIZE.read
"""In bytes."""


def duration_between(text: str, least: str, most: str) -> float:
    """Return a duration within these bounds, in seconds. Raises ValueError."""
    seconds = duration(text)
    if not duration(least) <= seconds <= duration(most):
        raise ValueError(f"{text} is not from {least} to {most}")
    return seconds


def moment(text: str) -> float:
    """Return wall seconds of a time in ISO 8601, in UTC where it has no zone, or of seconds. Raises ValueError."""
    with suppress(ValueError):
        seconds = float(text)
        if math.isfinite(seconds):
            return seconds
    try:
        parsed = datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 knows no Z
    except ValueError:
        example = "2026-11-21T08:00:00Z, or seconds since 1970"
        raise ValueError(f"{shown(text)} is not a valid time; give one such as {example}") from None
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)).timestamp()


def limit(value: object, power_factor: float) -> float:
    """Return a limit in watts, which may be given as power, apparent power or current.

    Breakers limit current and supplies apparent power: both times the power factor are watts. Direct current has no
    power factor. Raises ValueError with the remedy.
    """
    if isinstance(value, dict) and "volts_dc" in value:
        fields = _given(value, _DIRECT, "{amperes: 180, volts_dc: 800}")
        watts = fields["amperes"] * fields["volts_dc"] * fields["derate"]
    elif isinstance(value, dict):
        fields = _given(value, _CURRENT, "{amperes: 60, volts: 415, phases: 3}")
        if fields["phases"] not in (1, 3):
            raise ValueError(f"phases: {fields['phases']:g} is neither 1 nor 3; with 3, volts are phase to phase")
        watts = fields["amperes"] * fields["volts"] * math.sqrt(fields["phases"]) * fields["derate"] * power_factor
    else:
        factors = {**_POWER.factors, **{unit: factor * power_factor for unit, factor in _APPARENT_POWERS.items()}}
        example = "40.8kW, 45kVA or {amperes: 60, volts: 415, phases: 3}"
        watts = Units("power limit", example, factors).read(value)
    if not 0 < watts <= _MOST:
        raise ValueError(f"{shown(value)} is {watts:g} W; give more than 0 and at most {_MOST:g} W")
    return watts


def _given(value: dict[object, object], keys: tuple[str, ...], example: str) -> dict[str, float]:
    """Return the numbers of a mapping that must have these keys, and may have `derate`."""
    unknown = [key for key in value if key not in (*keys, "derate")]
    missing = [key for key in keys if key not in value]
    if unknown or missing:
        problem = f"unknown key {shown(unknown[0])}" if unknown else f"{missing[0]} is missing"
        raise ValueError(f"{problem}; write {example}, with derate: 0.8 if needed")
    fields = {}
    for key, number in {"derate": 1, **value}.items():
        try:
            fields[str(key)] = _number(number)
        except ValueError as error:
            raise ValueError(f"{key}: {error}; give it without a unit") from None
    if not 0 < fields["derate"] <= 1:
        raise ValueError(f"derate: {fields['derate']:g} is out of range; give the usable share, such as 0.8")
    return fields


def numbers(value: object) -> dict[float, float]:
    """Return a mapping from numbers to numbers; YAML reads `1e8` as a string. Raises ValueError with the remedy."""
    if not isinstance(value, dict):
        raise ValueError("must be a mapping from one number to another, such as {0.5: 0.4}")
    converted: dict[float, float] = {}
    for before, after in value.items():
        number = _number(before)
        if number in converted:
            raise ValueError(f"{shown(before)} is given twice; remove one")
        converted[number] = _number(after)
    return converted


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError(f"{shown(value)} is not a number")
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{shown(value)} is not a number") from None


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


class Key(Struct, frozen=True):
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
        text = UNITS[self.unit].text(value) if self.unit in UNITS else f"{value:g}"
        return None if good else f"{text} is out of range; use {self.range}"

    def _unknown(self, value: object) -> str | None:
        several = not isinstance(value, str)
        for item in value if isinstance(value, tuple) else (value,):
            if item not in self.words:
                how = "any of" if several else "one of"
                return f"{shown(item)} is unknown; use {how} {', '.join(self.words)}"
        return None

    def _number(self, bound: str) -> float:
        return float(bound) if self.unit is None else UNITS[self.unit].read(bound)


def duration_key(what: str, least: str, most: str, *, restart: bool = False, example: str = "") -> Key:
    return Key(what, Notation.DURATION, least, most=most, restart=restart, example=example)


def size_key(what: str, least: str, most: str, *, restart: bool = False) -> Key:
    return Key(what, Notation.SIZE, least, most=most, restart=restart)


UNITS: dict[Notation | None, Units] = {Notation.DURATION: _DURATION, Notation.POWER: _POWER, Notation.SIZE: _SIZE}
