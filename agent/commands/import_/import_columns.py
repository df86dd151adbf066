"""What imports share: columns of other programs as our rows, what is wrong with a file, and snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

from msgspec import Struct, field

from agent.model import Framer, Gpu, Instant, Labels, Metric, Reading, Series, Snapshot, Unit

FACTORS: dict[Unit, dict[str, float]] = {
    Unit.RATIO: {"%": 0.01, "": 1.0},
    Unit.BYTES: {"B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30},
    Unit.WATTS: {"W": 1.0, "mW": 1e-3},
    Unit.HERTZ: {"MHz": 1e6},
    Unit.CELSIUS: {"C": 1.0, "": 1.0},
    Unit.JOULES: {"mJ": 1e-3, "J": 1.0},
    Unit.NONE: {"": 1.0},
}
"""What one of another unit is in ours. A unit that is not here is not known, and its column is left out."""
MOST_PROBLEMS = 20
_INDEX_DIGITS = 4
_NAME_CHARACTERS = 128


class LogFormatError(Exception):
    """A file is not what it should be; the text names it, the line and the remedy."""


class ImportedSample(NamedTuple):
    """What a node had at a moment in wall seconds; a log does not name its node."""

    wall: float
    readings: tuple[Reading, ...]
    node: str = ""


class ImportColumn(Struct):
    """Where a column's values go: a row of the catalogue with its label's value, and the factor to its unit."""

    metric: Metric
    factor: float = 1.0
    label: str = ""

    def reading(self, gpu: Gpu, number: float) -> Reading | None:
        """Return the reading; None if the value is outside the valid range."""
        value = number * self.factor
        low, high = self.metric.span
        if not low <= value <= high or not isfinite(value):
            return None
        labels: Labels = ((self.metric.labels[0], self.label),) if self.label else ()
        return Reading(Series(self.metric, gpu, labels), value)


class ImportProblems(Struct):
    """The problems of a file whose remainder is of use; the first ones are listed one by one."""

    file: str
    texts: list[str] = field(default_factory=list)
    count: int = 0

    def note(self, line: int | None, text: str) -> None:
        where = self.file if line is None else f"{self.file}:{line}"
        if f"{where}: {text}" in self.texts:
            return
        self.count += 1
        if len(self.texts) < MOST_PROBLEMS:
            self.texts.append(f"{where}: {text}")

    def all(self) -> Iterator[str]:
        yield from self.texts
        if self.count > len(self.texts):
            yield f"{self.file}: and {self.count - len(self.texts)} problems more"


def is_index(text: str) -> bool:
    """Return whether a text is a GPU's number on its node."""
    return text.isascii() and text.isdigit() and len(text) <= _INDEX_DIGITS


def is_name(text: str) -> bool:
    """Return whether a text can be a UUID or a bus address: what a label may hold."""
    return text.isprintable() and len(text) <= _NAME_CHARACTERS


class SnapshotMaker:
    """Makes snapshots of what was read every `period` seconds. Their numbers show where some are missing."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._framer = Framer()
        self._sequence = 0
        self._last: float | None = None

    def make(self, tick: ImportedSample) -> Snapshot | None:
        """Return the snapshot; None where time did not go on."""
        missing = 0
        if self._last is not None:
            passed = tick.wall - self._last
            if passed <= 0:
                return None
            missing = round(passed / self._period) - 1 if passed > 2 * self._period else 0
        self._sequence += 1 + missing
        self._last = tick.wall
        # There is one clock only: its seconds count as those of the monotonic one.
        return Snapshot(self._sequence, Instant(tick.wall, tick.wall), (self._framer.frame(tick.readings),))
