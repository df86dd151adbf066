"""The InfiniBand backend: one read of a lane over all ports.

All reads go through a pool, one batch for each adapter: a file that hangs affects only itself, and an adapter whose
firmware does not answer only its own ports. A file that hangs is a gap with the reason `timeout`, never a stale value.
"""

import logging
import resource
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import NamedTuple, TypeGuard

from agent.backends.file_reader_pool import DeviceReads, FileReaderPool, UnansweredError
from agent.backends.infiniband.infiniband_ports import PortDiscovery, RdmaPort
from agent.backends.infiniband.sysfs_attribute import LinkStateTracker, SysfsAttribute, text_file
from agent.backends.protocol import AbsentError, BackendSample, device_error
from agent.backends.sysfs import printable
from agent.catalogue.infiniband import INFO
from agent.model import Gap, Instant, Lane, Reading

log = logging.getLogger("coldplate.infiniband")

SERIES = 20_000
"""Most rows of all ports together: twice the fast rows of the most ports."""
DESCRIPTORS = 2_048
"""Most files kept open: for each open file of sysfs the kernel holds some 5 KiB, of which a page is the content."""
SAMPLED = (Lane.FAST, Lane.SLOW)


def descriptor_budget() -> int:
    """Return how many may be kept open: half of the process's limit; the rest is for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft // 2, DESCRIPTORS)


class DeviceLane(NamedTuple):
    """What one lane reads of one device; `trackers` are the positions of the attributes that hold a port's state."""

    reads: DeviceReads[Reading | Gap]
    attributes: list[SysfsAttribute]
    trackers: list[tuple[int, LinkStateTracker]]


class PortReadPlan:
    """Which files are read in which lane, which of them are exposed, and which stay open. Belongs to one thread.

    The number of exposed files is limited: a page of a hundred thousand counters would cost a node more than it is
    worth. The fast rows of all ports come first, then the other rows of the catalogue, then counters that only the
    driver knows. Descriptors are assigned in the same order.
    """

    def __init__(self, pool: FileReaderPool, descriptors: Callable[[], int]) -> None:
        self.devices: dict[Lane, list[DeviceLane]] = {lane: [] for lane in SAMPLED}
        self.left_out = 0
        """Files that the driver offers and that are not shown."""
        self._pool = pool
        self._descriptors = descriptors
        self._budget = -1
        self._orphans: list[tuple[str, SysfsAttribute]] = []

    def renew(self, ports: Collection[RdmaPort], ignored: int) -> None:
        depths = _depths(ports)
        for port in ports:
            port.set_depth(depths[port])
        planned = {id(attribute) for port in ports for attribute in port.attributes.values()}
        self._orphans += [(device, attribute) for device, attribute in self._all() if id(attribute) not in planned]
        for lane in SAMPLED:
            by_device: dict[str, list[SysfsAttribute]] = {}
            for port in ports:
                by_device.setdefault(port.device, []).extend(port.attributes_in(lane))
            self.devices[lane] = []
            for device, attributes in by_device.items():
                trackers = [
                    (place, attribute.tracker)
                    for place, attribute in enumerate(attributes)
                    if attribute.tracker is not None
                ]
                if attributes:
                    self.devices[lane].append(DeviceLane(DeviceReads(device, attributes), attributes, trackers))
        self._count(ports, depths, ignored)
        self._budget = -1

    def share_descriptors(self) -> None:
        """Decide which files may stay open with the room there is now; the process's limit may have changed, too."""
        budget = self._descriptors()
        if budget != self._budget:
            self._budget = budget
            for device, attribute in self._all():
                attribute.keep_open = budget > 0
                budget -= 1
                if not attribute.keep_open:
                    self._orphans.append((device, attribute))
        self._close_orphans()

    def release(self) -> None:
        self._orphans += self._all()
        self._close_orphans()

    def _all(self) -> Iterable[tuple[str, SysfsAttribute]]:
        for lane in SAMPLED:
            for device in self.devices[lane]:
                for attribute in device.attributes:
                    yield device.reads.name, attribute

    def _close_orphans(self) -> None:
        """Close what should no longer be open; a file in which a reader hangs is closed when the reader is out."""
        waiting = []
        for device, attribute in self._orphans:
            if self._pool.is_hanging(device, attribute.path):
                waiting.append((device, attribute))
            else:
                attribute.release()
        self._orphans = waiting

    def _count(self, ports: Collection[RdmaPort], depths: dict[RdmaPort, int], ignored: int) -> None:
        before = self.left_out
        self.left_out = ignored + sum(
            port.left_out + port.shape.unnamed + port.shape.sizes[-1] - port.shape.sizes[depths[port]] for port in ports
        )
        if self.left_out and not before:
            facts = {"left_out": self.left_out, "ports": len(ports), "most": SERIES}
            log.warning("driver counters over the limit are not exposed", extra={"facts": facts})
        elif before and not self.left_out:
            log.info("all driver counters are exposed again")


def _depths(ports: Collection[RdmaPort]) -> dict[RdmaPort, int]:
    """Return how many levels of its rows each port shows: every port gets a level before any port gets the next."""
    depths = dict.fromkeys(ports, 0)
    room = SERIES - sum(port.shape.sizes[0] for port in ports)
    for depth in (1, 2):
        for port in ports:
            need = port.shape.sizes[depth] - port.shape.sizes[depth - 1]
            if depths[port] == depth - 1 and need <= room:
                depths[port] = depth
                room -= need
    return depths


DEVICE_FACTS = (("board_id", "board_id"), ("firmware_version", "fw_ver"), ("hca_type", "hca_type"))
PORT_FACT = ("link_layer", "link_layer")

Answer = str | OSError | UnansweredError


def describe(root: str, ports: Collection[RdmaPort], pool: FileReaderPool, mono: float) -> BackendSample:
    """Return for each port its facts, which are labels of one row, or why they are missing.

    They describe a port, not its activity, so a known fact stays while its file hangs.
    """
    of_device: dict[str, dict[str, None]] = {}
    for port in ports:
        of_device.setdefault(port.device, {}).update(dict.fromkeys(_fact_files(root, port)))
    batches = [DeviceReads(device, [text_file(path) for path in paths]) for device, paths in of_device.items()]
    answers: dict[str, Answer] = {}
    for paths, batch in zip(of_device.values(), pool.round(batches, mono), strict=True):
        answers.update(zip(paths, batch, strict=True))
    described = [_reading_of(port, {path: answers[path] for path in _fact_files(root, port)}) for port in ports]
    readings = [d for d in described if isinstance(d, Reading)]
    return BackendSample(readings, [d for d in described if isinstance(d, Gap)], calls=len(described))


def _fact_files(root: str, port: RdmaPort) -> list[str]:
    return [*(f"{root}/{port.device}/{file}" for _, file in DEVICE_FACTS), f"{port.directory}/{PORT_FACT[1]}"]


def _reading_of(port: RdmaPort, answers: dict[str, Answer]) -> Reading | Gap:
    """Return the facts; one that cannot be read is empty. The row is a gap if none can be, or an unknown one hangs."""
    for path, answer in answers.items():
        if isinstance(answer, str):
            port.facts[path] = answer
        elif isinstance(answer, UnansweredError):
            if path not in port.facts:
                return Gap(INFO, port.entity, answer.reason, answer.detail)
            answers[path] = port.facts[path]
    errors = [(path, error) for path, error in answers.items() if isinstance(error, OSError)]
    texts = [printable(answer) if isinstance(answer, str) else "" for answer in answers.values()]
    if errors and not any(texts):
        failed = device_error(*errors[-1])
        return Gap(INFO, port.entity, failed.reason, failed.detail)
    labels = (*(label for label, _ in DEVICE_FACTS), PORT_FACT[0])
    return Reading(port.info(tuple(zip(labels, texts, strict=True))), 1)


class InfinibandBackend:
    """Every file of every port under `sysfs`/class/infiniband.

    `descriptors` returns how many may be kept open.
    """

    name = "infiniband"
    lanes = frozenset({Lane.FAST, Lane.SLOW, Lane.COLD})
    shortest = 0.0

    def __init__(self, sysfs: Path | str, *, descriptors: Callable[[], int] = descriptor_budget) -> None:
        self._root = f"{sysfs}/class/infiniband"
        self._pool = FileReaderPool(self.name)
        self._census = PortDiscovery(self._root, self._pool)
        self._layout = PortReadPlan(self._pool, descriptors)

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """Read one lane. Raises AbsentError while this node has never shown a port."""
        gaps: list[Gap] = []
        if lane is Lane.SLOW or not self._census.ports:
            gaps = self._update_ports(now.mono)
        if lane is Lane.COLD:
            return describe(self._root, self._census.ports.values(), self._pool, now.mono)
        return self._sample(lane, now.mono, gaps if lane is Lane.SLOW else [])

    def close(self) -> None:
        self._layout.release()
        self._pool.close()

    def _update_ports(self, mono: float) -> list[Gap]:
        try:
            changed, gaps = self._census.update(mono)
        except AbsentError:
            self._layout.release()
            raise
        if changed:
            self._layout.renew(self._census.ports.values(), self._census.ignored)
        self._layout.share_descriptors()
        return gaps

    def _sample(self, lane: Lane, mono: float, gaps: list[Gap]) -> BackendSample:
        readings: list[Reading] = []
        files = unread = 0
        devices = self._layout.devices[lane]
        answers = self._pool.round([device.reads for device in devices], mono)
        for (_, attributes, trackers), batch in zip(devices, answers, strict=True):
            files += len(batch)
            if _all_read(batch):  # nearly always, and it saves a check of each file
                readings += batch
            else:
                for attribute, answer in zip(attributes, batch, strict=True):
                    if isinstance(answer, Reading):
                        readings.append(answer)
                    else:
                        unread += isinstance(answer, UnansweredError)
                        gaps.append(attribute.gap(answer) if isinstance(answer, UnansweredError) else answer)
            for place, tracker in trackers:
                tracker.follow(batch[place], readings, gaps)
        left_out = self._layout.left_out if lane is Lane.SLOW else 0
        return BackendSample(readings, gaps, calls=files - unread, left_out=left_out)


def _all_read(batch: list[Reading | Gap | UnansweredError]) -> TypeGuard[list[Reading]]:
    return {Reading}.issuperset(map(type, batch))
