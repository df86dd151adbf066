"""What imports share: the samples that were read, what is wrong with a file, and the snapshots made of them."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct, field

from agent.model import Framer, Instant, Reading, Snapshot

MOST_PROBLEMS = 20


class LogFormatError(Exception):
    """A file is not what it should be; the text names it, the line and the remedy."""


class ImportedSample(NamedTuple):
    """What a node had at a moment in wall seconds; a log does not name its node."""

    wall: float
    readings: tuple[Reading, ...]
    node: str = ""


class ImportProblems(Struct):
    """The problems of a file whose remainder is of use; the first ones are listed one by one."""

    file: str
    texts: list[str] = field(default_factory=list)
    count: int = 0

    def add(self, line: int | None, text: str) -> None:
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
