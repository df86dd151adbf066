"""The result of reading one group of figures, and why it may be empty."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import lru_cache

from agent.backends.sysfs import printable
from agent.lib.wording import one_line
from agent.model import Gap, Metric, Node, Reading, Reason, Series


def gap_reason(error: Exception) -> Reason:
    """Return why a group of figures is absent, from the error that its reading raised."""
    code = error.errno if isinstance(error, OSError) else None
    if code in (errno.ENOENT, errno.ENOTDIR, errno.EOPNOTSUPP, errno.ENOSYS):
        return Reason.UNSUPPORTED  # EOPNOTSUPP: a kernel that was started with psi=0
    if code in (errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE):
        return Reason.DENIED
    return Reason.LOST if code is not None else Reason.MALFORMED


@lru_cache(maxsize=8_192)  # disks come and go
def _series(row: Metric, labels: tuple[str, ...]) -> Series:
    return Series(row, Node(), tuple(zip(row.labels, labels, strict=True)))


class GroupReadings:
    """The readings and gaps of one group; `left_out` counts series beyond those that are shown."""

    def __init__(self) -> None:
        self._readings: dict[Series, Reading] = {}
        self.gaps: list[Gap] = []
        self.left_out = 0

    @property
    def readings(self) -> list[Reading]:
        return list(self._readings.values())

    def add(self, row: Metric, value: float, *labels: str) -> None:
        """Add a value. If the names of two devices look alike, only the first one is shown."""
        series = _series(row, tuple(map(printable, labels)))
        self._readings.setdefault(series, Reading(series, float(value)))

    def miss(self, error: Exception, *rows: Metric, of: str = "") -> None:
        """Add a gap for each of these rows, which are absent because of this error."""
        detail = f"{of}{type(error).__name__}: {one_line(str(error))}"  # psutil quotes whole lines
        self.gaps.extend(Gap(row, Node(), gap_reason(error), detail) for row in rows)


class ReadingGroup:
    """Figures that are read together, and missing together; `path` names what they are read from."""

    def __init__(self, path: str, take: Callable[[GroupReadings], None], rows: Sequence[Metric], of: str = "") -> None:
        self.path = path
        self.rows = rows
        self._take = take
        self._of = of

    def read(self) -> GroupReadings:
        """Return the figures; if anything goes wrong, a gap for each row and no partial figures.

        Catches whatever psutil raises for unexpected content: a file with too few fields is a TypeError.
        """
        figures = GroupReadings()
        try:
            self._take(figures)
        except Exception as error:
            figures = GroupReadings()
            figures.miss(error, *self.rows, of=self._of)
        return figures
