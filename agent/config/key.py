"""Metadata of a configuration key besides its type and default, attached to the key in the schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from agent.config import quantities
from agent.lib.wording import shown


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
    Notation.DURATION: quantities.duration,
    Notation.POWER: quantities.power,
    Notation.SIZE: quantities.size,
}
_SUFFIXES: dict[Notation | None, str] = {Notation.DURATION: "s", Notation.POWER: " W", Notation.SIZE: " B"}
