"""Which files are read in which lane, which of them are exposed, and which stay open.

The number of exposed files is limited: a page of a hundred thousand counters would cost a node more than it is worth.
The fast rows of all ports come first, then the other rows of the catalogue, then counters that only the driver knows.
Descriptors are assigned in the same order.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Collection, Iterable

from agent.backends.file_relay import FileRelay, Leg
from agent.backends.infiniband.attribute import Attribute, Pread
from agent.backends.infiniband.port import Port
from agent.backends.infiniband.watch import LinkWatch
from agent.model import Gap, Lane, Reading

log = logging.getLogger("coldplate.infiniband")

SERIES = 20_000
"""Most rows of all ports together: twice the fast rows of the most ports."""
DESCRIPTORS = 2_048
"""Most files kept open: for each open file of sysfs the kernel holds some 5 KiB, of which a page is the content."""
SAMPLED = (Lane.FAST, Lane.SLOW)


def spare_descriptors() -> int:
    """How many may be kept open: half of the process's limit; the rest is for connections and everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft // 2, DESCRIPTORS)


class FileLayout:
    """For each lane, one leg per device. Belongs to one thread."""

    def __init__(self, relay: FileRelay, pread: Pread, descriptors: Callable[[], int]) -> None:
        self.attributes: dict[Lane, list[list[Attribute]]] = {lane: [] for lane in SAMPLED}
        self.legs: dict[Lane, list[Leg[Reading | Gap]]] = {lane: [] for lane in SAMPLED}
        """The legs that hold these attributes, in the same order."""
        self.watches: dict[Lane, list[list[tuple[int, LinkWatch]]]] = {lane: [] for lane in SAMPLED}
        """For each leg, the positions of the attributes that a watch follows."""
        self.left_out = 0
        """Files that the driver offers and that are not shown."""
        self._relay = relay
        self._pread = pread
        self._descriptors = descriptors
        self._budget = -1
        self._orphans: list[tuple[str, Attribute]] = []

    def renew(self, ports: Collection[Port], ignored: int) -> None:
        """Make the layout again after ports or files have come or gone."""
        depths = _depths(ports)
        for port in ports:
            port.adopt(depths[port], self._pread)
        shown = {id(each) for port in ports for each in port.attributes.values()}
        for lane in SAMPLED:
            for leg, attributes in zip(self.legs[lane], self.attributes[lane], strict=True):
                self._orphans += [(leg.name, each) for each in attributes if id(each) not in shown]
            by_device: dict[str, list[Attribute]] = {}
            for port in ports:
                by_device.setdefault(port.device, []).extend(port.of(lane))
            self.attributes[lane] = [each for each in by_device.values() if each]
            self.legs[lane] = [Leg(device, each) for device, each in by_device.items() if each]
            self.watches[lane] = [
                [(place, each.watch) for place, each in enumerate(attributes) if each.watch is not None]
                for attributes in self.attributes[lane]
            ]
        self._count(ports, depths, ignored)
        self._budget = -1

    def share_descriptors(self) -> None:
        """Decide which files may stay open with the room there is now; the process's limit may have changed, too."""
        budget = self._descriptors()
        if budget != self._budget:
            self._budget = budget
            for leg, attribute in self._all():
                attribute.keep = budget > 0
                budget -= 1
                if not attribute.keep:
                    self._orphans.append((leg, attribute))
        self._close_orphans()

    def release(self) -> None:
        """Close every descriptor."""
        self._orphans += self._all()
        self._close_orphans()

    def _all(self) -> Iterable[tuple[str, Attribute]]:
        for lane in SAMPLED:
            for leg, attributes in zip(self.legs[lane], self.attributes[lane], strict=True):
                for attribute in attributes:
                    yield leg.name, attribute

    def _close_orphans(self) -> None:
        """Close what should no longer be open; a file in which a reader hangs is closed when the reader is out."""
        waiting = []
        for device, attribute in self._orphans:
            if self._relay.holds(device, attribute.path):
                waiting.append((device, attribute))
            else:
                attribute.release()
        self._orphans = waiting

    def _count(self, ports: Collection[Port], depths: dict[Port, int], ignored: int) -> None:
        before = self.left_out
        self.left_out = ignored + sum(
            port.left_out + port.shape.unnamed + port.shape.sizes[-1] - port.shape.sizes[depths[port]] for port in ports
        )
        if self.left_out and not before:
            facts = {"left_out": self.left_out, "ports": len(ports), "most": SERIES}
            log.warning("driver counters over the limit are not exposed", extra={"facts": facts})
        elif before and not self.left_out:
            log.info("all driver counters are exposed again")


def _depths(ports: Collection[Port]) -> dict[Port, int]:
    """How many levels of its rows each port shows: every port gets a level before any port gets the next."""
    depths = dict.fromkeys(ports, 0)
    room = SERIES - sum(port.shape.sizes[0] for port in ports)
    for depth in (1, 2):
        for port in ports:
            need = port.shape.sizes[depth] - port.shape.sizes[depth - 1]
            if depths[port] == depth - 1 and need <= room:
                depths[port] = depth
                room -= need
    return depths
