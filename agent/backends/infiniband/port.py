"""One port and the sysfs files that it has: which row each of them feeds, decided once for each port.

No file is left out: one that no row of the catalogue knows gets a row of its own. Files stay known
while their device is gone, so that its absence is told and its return needs no search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from agent.backends.infiniband import parse
from agent.catalogue.bindings import PortFile
from agent.catalogue.infiniband import (
    ACTIVE,
    FILES,
    INFO,
    LINK_DOWN_EVENTS,
    PHYSICAL_STATE_ID,
    PORT_UP,
    RATE,
    STATE_ID,
    driver_counter,
)
from agent.model import Gap, IbPort, Labels, Lane, Metric, Reading, Reason, Series

Decode = Callable[[bytes], int]

DECODERS: dict[Metric, Decode] = {STATE_ID: parse.code, PHYSICAL_STATE_ID: parse.code, RATE: parse.rate}
"""Rows whose file is no plain number."""

ALWAYS = frozenset(file.path for row in DECODERS for file in row.origin if isinstance(file, PortFile))
"""Files that every port has (`ib_port_attribute` in the kernel's core), outside the counters' directories."""

KNOWN = frozenset(file.path for row in FILES for file in row.origin if isinstance(file, PortFile))


class Attribute:
    """A sysfs attribute of a port, its series, and the descriptor that is kept open on it (-1: none)."""

    __slots__ = ("decode", "fd", "path", "scale", "series", "watch")

    def __init__(self, path: str, series: Series, scale: float, watch: LinkWatch | None = None) -> None:
        self.path = path
        self.series = series
        self.scale = int(scale) if scale == int(scale) else scale  # so that counters stay exact integers
        self.decode = DECODERS.get(series.metric, parse.counter)
        self.watch = watch
        self.fd = -1

    def gap(self, reason: Reason, why: str) -> Gap:
        return Gap(self.series.metric, self.series.entity, reason, f"{self.path}: {why}")


class LinkWatch:
    """Follows one port's state: is it up, and how often did it leave the active state."""

    __slots__ = ("_active", "_count", "_events", "_up")

    def __init__(self, entity: IbPort) -> None:
        self._up = Series(PORT_UP, entity)
        self._events = Series(LINK_DOWN_EVENTS, entity)
        self._active = False
        self._count = 0

    def saw(self, state: int) -> tuple[Reading, Reading]:
        """Take note of a state. One that could not be read changes nothing: it may be the same."""
        active = state == ACTIVE
        if self._active and not active:
            self._count += 1
        self._active = active
        return Reading(self._up, 1 if active else 0), Reading(self._events, self._count)

    def missed(self, gap: Gap) -> tuple[Gap, Reading]:
        """The state could not be read: whether the link is up is unknown, what was counted stays."""
        return Gap(PORT_UP, gap.entity, gap.reason, gap.detail), Reading(self._events, self._count)


class Port:
    """One port: its entity, its directory, and an `Attribute` for each of its files."""

    __slots__ = ("_info", "_watch", "attributes", "device", "directory", "entity")

    def __init__(self, device: Path, port: str) -> None:
        self.entity = IbPort(device.name, port)
        self.device = device
        self.directory = device / "ports" / port
        self.attributes: dict[str, Attribute] = {}
        self._watch = LinkWatch(self.entity)
        self._info: Series | None = None

    def of(self, lane: Lane) -> Iterator[Attribute]:
        return (each for each in self.attributes.values() if each.series.metric.lane is lane)

    def adopt(self, present: frozenset[str], usable: Callable[[str], bool]) -> list[Attribute]:
        """Know exactly the files `present`; what came before and is there no more is returned.

        `usable` tells whether a file of the port, by its full path, holds a number: asked only where
        two files of a driver could feed the same row.
        """
        rows = dict(self._rows(present, usable))
        gone = [each for path, each in self.attributes.items() if path not in rows]
        self.attributes = {path: self.attributes.get(path) or self._attribute(path, *rows[path]) for path in rows}
        return gone

    def info(self, facts: Labels) -> Series:
        """The info series with these facts; the same object while they are the same."""
        if self._info is None or self._info.labels != facts:
            self._info = Series(INFO, self.entity, facts)
        return self._info

    def _rows(
        self, present: frozenset[str], usable: Callable[[str], bool]
    ) -> Iterable[tuple[str, tuple[Metric, float]]]:
        taken: set[str] = set()
        for row in FILES:
            files = [each for each in row.origin if isinstance(each, PortFile) and each.path in present]
            if files:
                first = files[0]
                if len(files) > 1:
                    first = next((each for each in files if usable(f"{self.directory}/{each.path}")), first)
                taken.add(first.path)
                yield first.path, (row, first.scale)
        for path in sorted(present - taken):
            yield path, (driver_counter(path), 1)

    def _attribute(self, path: str, row: Metric, scale: float) -> Attribute:
        watch = self._watch if row is STATE_ID else None
        return Attribute(f"{self.directory}/{path}", Series(row, self.entity), scale, watch)
