"""The result of reading one group of figures, and why it may be empty."""

from collections.abc import Callable, Sequence
from functools import lru_cache

from msgspec import Struct

from agent.backends.protocol import reason_of
from agent.backends.sysfs import printable
from agent.model import Metric, Node, Reading, Reason, Series


def gap_reason(error: Exception) -> Reason:
    """Return why a group of figures is absent, from the error that its reading raised."""
    # EOPNOTSUPP: a kernel that was started with psi=0
    return reason_of(error, missing=Reason.UNSUPPORTED) if isinstance(error, OSError) else Reason.MALFORMED


@lru_cache(maxsize=8_192)  # disks come and go
def _series(row: Metric, labels: tuple[str, ...]) -> Series:
    return Series(row, Node(), tuple(zip(row.labels, labels, strict=True)))


class GroupReadings:
    """The readings of one group; `left_out` counts series beyond those that are shown."""

    def __init__(self) -> None:
        self._readings: dict[Series, Reading] = {}
        self.left_out = 0

    @property
    def readings(self) -> list[Reading]:
        return list(self._readings.values())

    def add(self, row: Metric, value: float, *labels: str) -> None:
        """Add a value. If the names of two devices look alike, only the first one is shown."""
        series = _series(row, tuple(map(printable, labels)))
        self._readings.setdefault(series, Reading(series, float(value)))


class ReadingGroup(Struct):
    """Figures that are read together, and missing together; `path` names what they are read from.

    `prefix` comes before the reason why they are missing.
    """

    path: str
    fill: Callable[[GroupReadings], None]
    rows: Sequence[Metric]
    prefix: str = ""

    def read(self) -> GroupReadings | Exception:
        """Return the figures, or what went wrong: psutil raises a TypeError for a file with too few fields."""
        figures = GroupReadings()
        try:
            self.fill(figures)
        except Exception as error:
            return error
        return figures
