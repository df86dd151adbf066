"""One port, and which of its sysfs files feeds which row.

A file without a row in the catalogue gets its own row. Files stay known while their device is gone, so that
its absence is reported and its return needs no search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.backends.infiniband.attribute import Attribute, Pread
from agent.backends.infiniband.parse import DECODERS
from agent.backends.infiniband.watch import LinkWatch
from agent.backends.sysfs import printable
from agent.catalogue.bindings import PortFile
from agent.catalogue.infiniband import FILES, INFO, STATE_ID, driver_counter
from agent.model import IbPort, Labels, Lane, Metric, Series

ALWAYS = frozenset(file.path for row in DECODERS for file in row.origin if isinstance(file, PortFile))
"""Files that every port has (`ib_port_attribute` in the kernel's core), outside the counters' directories."""

KNOWN = frozenset(file.path for row in FILES for file in row.origin if isinstance(file, PortFile))


@dataclass(frozen=True, slots=True)
class Shape:
    """The rows that a port's files feed: those of the fast lane first, then the catalogue's, then the driver's own.

    `sizes` says how many rows there are up to each of the three; `unnamed` files feed no row, since drivers offer more
    names than there may be rows. Ports of one driver share a shape.
    """

    rows: tuple[tuple[str, Metric, float], ...]
    sizes: tuple[int, int, int]
    unnamed: int


def shape_of(present: frozenset[str], usable: frozenset[str]) -> Shape:
    """The shape of a port with these files; `usable` are those of `rivals` that hold a number."""
    catalogued = []
    for row in FILES:
        files = _candidates(row, present)
        if files:
            first = next((each for each in files if each.path in usable), files[0])
            catalogued.append((first.path, row, first.scale))
    fast = [each for each in catalogued if each[1].lane is Lane.FAST]
    slow = [each for each in catalogued if each[1].lane is not Lane.FAST]
    rest = sorted(present.difference(path for path, _, _ in catalogued))
    named = [(path, driver_counter(path)) for path in rest]
    own = [(path, row, 1.0) for path, row in named if row is not None]
    sizes = (len(fast), len(catalogued), len(catalogued) + len(own))
    return Shape((*fast, *slow, *own), sizes, len(rest) - len(own))


def rivals(present: frozenset[str]) -> list[str]:
    """The files that compete for a row with another one."""
    files = [_candidates(row, present) for row in FILES]
    return [each.path for group in files if len(group) > 1 for each in group]


def _candidates(row: Metric, present: frozenset[str]) -> list[PortFile]:
    return [each for each in row.origin if isinstance(each, PortFile) and each.path in present]


class Port:
    """One port: its entity, its directory, and an `Attribute` for each of its files that is shown.

    `lasting` is whether it belongs to hardware: virtual functions and software devices come and go as they are used.
    """

    __slots__ = (
        "_info",
        "_watch",
        "attributes",
        "device",
        "directory",
        "entity",
        "facts",
        "lasting",
        "left_out",
        "number",
        "present",
        "shape",
    )

    def __init__(self, root: str, device: str, number: str) -> None:
        self.entity = IbPort(printable(device), printable(number))
        self.device = device
        self.number = number
        self.directory = f"{root}/{device}/ports/{number}"
        self.attributes: dict[str, Attribute] = {}
        self.present: frozenset[str] = frozenset()
        self.shape = Shape((), (0, 0, 0), 0)
        self.lasting = True
        self.facts: dict[str, str] = {}
        """The last content of each file of facts."""
        self.left_out = 0
        """Files beyond those in `present`."""
        self._watch = LinkWatch(self.entity)
        self._info: Series | None = None

    def of(self, lane: Lane) -> Iterator[Attribute]:
        """The attributes that are read in a lane."""
        return (each for each in self.attributes.values() if each.series.metric.lane is lane)

    def adopt(self, depth: int, pread: Pread) -> None:
        """Show the rows of the shape up to a depth, 0 to 2."""
        rows = self.shape.rows[: self.shape.sizes[depth]]
        before, self.attributes = self.attributes, {}
        for path, row, scale in rows:
            known = before.get(path)
            if known is None or known.series.metric is not row:
                watch = self._watch if row is STATE_ID else None
                known = Attribute(f"{self.directory}/{path}", Series(row, self.entity), scale, pread, watch)
            self.attributes[path] = known

    def info(self, facts: Labels) -> Series:
        """The info series with these facts; the same object while they are the same."""
        if self._info is None or self._info.labels != facts:
            self._info = Series(INFO, self.entity, facts)
        return self._info
