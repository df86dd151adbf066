"""The ports that this node has or had, and which of a port's sysfs files feeds which row.

A file without a row in the catalogue gets its own row. Files stay known while their device is gone, so that
its absence is reported and its return needs no search.
"""

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache

from msgspec import Struct

from agent.backends.file_reader_pool import CaughtRead, DeviceReads, FileReaderPool, UnansweredError
from agent.backends.infiniband.sysfs_attribute import DECODERS, LinkStateTracker, SysfsAttribute, text_file
from agent.backends.protocol import AbsentError, device_error
from agent.backends.sysfs import list_names, printable
from agent.catalogue.bindings import PortFile
from agent.catalogue.infiniband import DIRECTORIES, FILES, INFO, STATE_ID, driver_counter
from agent.model import Gap, IbPort, Labels, Lane, Metric, Series

ALWAYS = frozenset(file.path for row in DECODERS for file in row.origin if isinstance(file, PortFile))
"""Files that every port has (`ib_port_attribute` in the kernel's core), outside the counters' directories."""

CATALOGUED = frozenset(file.path for row in FILES for file in row.origin if isinstance(file, PortFile))


class PortMetrics(Struct, frozen=True):
    """The rows that a port's files feed: those of the fast lane first, then the catalogue's, then the driver's own.

    `sizes` says how many rows there are up to each of the three; `unnamed` files feed no row, since drivers offer more
    names than there may be rows. Ports of one driver have the same files, `present`, and share a shape.
    """

    present: frozenset[str]
    rows: tuple[tuple[str, Metric, float], ...]
    sizes: tuple[int, int, int]
    unnamed: int


@lru_cache(maxsize=512)  # drivers, and what each does not offer on some ports
def shape_of(present: frozenset[str], usable: frozenset[str]) -> PortMetrics:
    """Return the shape of a port with these files; `usable` are those of `competing_files` that hold a number."""
    catalogued = []
    for row in FILES:
        files = _candidates(row, present)
        if files:
            first = next((f for f in files if f.path in usable), files[0])
            catalogued.append((first.path, row, first.scale))
    fast = [c for c in catalogued if c[1].lane is Lane.FAST]
    slow = [c for c in catalogued if c[1].lane is not Lane.FAST]
    rest = sorted(present.difference(path for path, _, _ in catalogued))
    named = [(path, driver_counter(path)) for path in rest]
    own = [(path, row, 1.0) for path, row in named if row is not None]
    sizes = (len(fast), len(catalogued), len(catalogued) + len(own))
    return PortMetrics(present, (*fast, *slow, *own), sizes, len(rest) - len(own))


def competing_files(present: frozenset[str]) -> list[str]:
    """Return the files that compete for a row with another one."""
    files = [_candidates(row, present) for row in FILES]
    return [f.path for group in files if len(group) > 1 for f in group]


def _candidates(row: Metric, present: frozenset[str]) -> list[PortFile]:
    return [o for o in row.origin if isinstance(o, PortFile) and o.path in present]


class RdmaPort:
    """One port: its entity, its directory, and a `SysfsAttribute` for each of its files that is shown.

    `lasting` is whether it belongs to hardware: virtual functions and software devices come and go as they are used.
    """

    __slots__ = ("_info", "_watch", "attributes", "device", "directory", "entity", "facts", "lasting", "left_out",
                 "number", "present", "shape")  # fmt: skip

    def __init__(self, root: str, device: str, number: str) -> None:
        self.entity = IbPort(printable(device), printable(number))
        self.device = device
        self.number = number
        self.directory = f"{root}/{device}/ports/{number}"
        self.attributes: dict[str, SysfsAttribute] = {}
        self.present: frozenset[str] = frozenset()
        self.shape = PortMetrics(frozenset(), (), (0, 0, 0), 0)
        self.lasting = True
        self.facts: dict[str, str] = {}
        """The last content of each file of facts."""
        self.left_out = 0
        """Files beyond those in `present`."""
        self._watch = LinkStateTracker(self.entity)
        self._info: Series | None = None

    def attributes_in(self, lane: Lane) -> Iterator[SysfsAttribute]:
        return (attribute for attribute in self.attributes.values() if attribute.series.metric.lane is lane)

    def set_depth(self, depth: int) -> None:
        """Show the rows of the shape up to a depth, 0 to 2."""
        rows = self.shape.rows[: self.shape.sizes[depth]]
        before, self.attributes = self.attributes, {}
        for path, row, scale in rows:
            attribute = before.get(path)
            if attribute is None or attribute.series.metric is not row:
                watch = self._watch if row is STATE_ID else None
                attribute = SysfsAttribute(f"{self.directory}/{path}", Series(row, self.entity), scale, watch)
            self.attributes[path] = attribute

    def info(self, facts: Labels) -> Series:
        """Return the info series with these facts; the same object while they are the same."""
        if self._info is None or self._info.labels != facts:
            self._info = Series(INFO, self.entity, facts)
        return self._info


MAX_UNKNOWN_FILES = 1_024
"""Most files of one directory without a row in the catalogue; hfi1 has some hundreds."""


class PortFiles(Struct, frozen=True):
    """The files of a port as `DIRECTORY/FILE`, and how many more there are."""

    present: frozenset[str]
    left_out: int


class DeviceListing(Struct, frozen=True):
    """The ports of a device by number. `lasting`: it is hardware, which does not come and go with its users."""

    lasting: bool
    ports: dict[str, PortFiles]


def _listing_of(folder: str) -> DeviceListing:
    """Return what is in the folder of a device's ports: some 3 directories for each. Raises OSError."""
    ports = {number: _files(f"{folder}/{number}") for number in list_names(folder)}
    hardware = f"{folder.removesuffix('/ports')}/device"
    lasting = os.path.lexists(hardware) and not os.path.lexists(f"{hardware}/physfn")
    return DeviceListing(lasting, ports)


def _files(port: str) -> PortFiles:
    present, left_out = set(ALWAYS), 0
    for directory in DIRECTORIES:
        try:
            listed = [f"{directory}/{name}" for name in list_names(f"{port}/{directory}")]
        except FileNotFoundError:
            continue  # irdma and EFA have no `counters`, mlx4 no `hw_counters`
        except OSError:  # the directory may not be listed: try the files that are known
            listed = [path for path in CATALOGUED if path.startswith(f"{directory}/")]
        unknown = [path for path in listed if path not in CATALOGUED]
        present.update(CATALOGUED.intersection(listed), unknown[:MAX_UNKNOWN_FILES])
        left_out += max(len(unknown) - MAX_UNKNOWN_FILES, 0)
    return PortFiles(frozenset(present), left_out)


MAX_PORTS = 1_280
"""Most ports that are known: eight adapters with 127 virtual functions each, and some to spare."""
MAX_DEVICES = 2_048
"""Most devices that are looked into."""


class PortDiscovery:
    """Finds the ports, and the files of each. Belongs to one thread; its reads are the pool's.

    A hardware port that was once seen stays known, so that its absence is reported. Virtual functions and software
    devices are forgotten when they disappear: they come and go with the containers that use them.
    """

    def __init__(self, root: str, pool: FileReaderPool) -> None:
        self.ports: dict[IbPort, RdmaPort] = {}
        self.ignored = 0
        """Files of ports beyond the known ones; a device that is not looked into counts as one."""
        self._root = root
        self._pool = pool

    def update(self, mono: float) -> tuple[bool, list[Gap]]:
        """Find out what there is now: whether it changed, and a gap for each device that cannot be looked into.

        Raises AbsentError if no port was ever seen, and DeviceError if that cannot be known.
        """
        ignored = self.ignored
        devices = self._devices(mono)
        if devices is None:
            return False, []
        beyond, devices = len(devices) - MAX_DEVICES, devices[:MAX_DEVICES]
        batches = [
            DeviceReads(name, [CaughtRead(f"{self._root}/{name}/ports", _listing_of, OSError)]) for name in devices
        ]
        answers = dict(zip(devices, (answer for (answer,) in self._pool.round(batches, mono)), strict=True))
        listings = {name: answer for name, answer in answers.items() if isinstance(answer, DeviceListing)}
        silent = {name for name, answer in answers.items() if isinstance(answer, UnansweredError)}
        known_devices = {port.device for port in self.ports.values()}
        gaps = [
            self._gap(name, answer)
            for name, answer in answers.items()
            if isinstance(answer, OSError) or (isinstance(answer, UnansweredError) and name not in known_devices)
        ]
        forgot = self._forget(listings, silent)
        changed = self._update_files(listings)
        self.ignored += max(beyond, 0)
        self._update_shapes(changed, mono)
        if not self.ports and not gaps:
            raise AbsentError(f"{self._root} has no ports: no InfiniBand or RoCE device, or its driver is not loaded")
        return forgot or bool(changed) or ignored != self.ignored, gaps

    def _devices(self, mono: float) -> list[str] | None:
        """Return the names of the devices; None if they cannot be listed and known ports report themselves."""
        answer = self._pool.read(CaughtRead(self._root, list_names, OSError), mono)
        if isinstance(answer, list):
            return answer
        if isinstance(answer, (FileNotFoundError, NotADirectoryError)):
            if self.ports:
                return []  # the driver was unloaded; what was seen before is lost, not absent
            raise AbsentError(
                f"{self._root} does not exist: this node has no InfiniBand or RoCE device, "
                "or its driver is not loaded, or sysfs is mounted elsewhere (--path.sysfs)"
            )
        if self.ports:
            return None
        raise answer if isinstance(answer, UnansweredError) else device_error(self._root, answer)

    def _gap(self, device: str, answer: OSError | UnansweredError) -> Gap:
        error = answer if isinstance(answer, UnansweredError) else device_error(f"{self._root}/{device}/ports", answer)
        return Gap(INFO, IbPort(printable(device), ""), error.reason, error.detail)

    def _forget(self, listings: dict[str, DeviceListing], silent: set[str]) -> bool:
        """Drop virtual ports that are gone, and the oldest of the lost hardware ports if there are too many."""
        missing = [
            port
            for port in self.ports.values()
            if port.device not in silent
            and port.number not in (listings[port.device].ports if port.device in listings else ())
        ]
        surplus = sum(len(listing.ports) for listing in listings.values()) + len(missing) - MAX_PORTS
        drop = [port for port in missing if not port.lasting]
        drop += [port for port in missing if port.lasting][: max(surplus - len(drop), 0)]
        for port in drop:
            del self.ports[port.entity]
        return bool(drop)

    def _update_files(self, listings: dict[str, DeviceListing]) -> list[RdmaPort]:
        """Take in the ports that were found; returns those that are new or whose files have changed."""
        changed = []
        self.ignored = 0
        # Hardware first: if there are too many, the virtual functions are left out.
        for device, listing in sorted(listings.items(), key=lambda item: not item[1].lasting):
            for number, files in listing.ports.items():
                port = self._port(device, number)
                if port is None:
                    self.ignored += len(files.present) + files.left_out
                    continue
                port.lasting = listing.lasting
                if (port.present, port.left_out) != (files.present, files.left_out):
                    port.present, port.left_out = files.present, files.left_out
                    changed.append(port)
        return changed

    def _port(self, device: str, number: str) -> RdmaPort | None:
        """Return the port; None if there are too many already, or if another one has the same labels."""
        entity = IbPort(printable(device), printable(number))
        port = self.ports.get(entity)
        if port is None and len(self.ports) < MAX_PORTS:
            port = self.ports[entity] = RdmaPort(self._root, device, number)
        return port if port is not None and (port.device, port.number) == (device, number) else None

    def _update_shapes(self, changed: Sequence[RdmaPort], mono: float) -> None:
        """Decide which row each file feeds. Files are read only where two of one driver could feed the same row."""
        contested = [(port, paths) for port in changed if (paths := competing_files(port.present))]
        batches = [
            DeviceReads(port.device, [text_file(f"{port.directory}/{path}") for path in paths])
            for port, paths in contested
        ]
        usable = {
            port.entity: frozenset(
                path for path, text in zip(paths, texts, strict=True) if isinstance(text, str) and text.isdigit()
            )
            for (port, paths), texts in zip(contested, self._pool.round(batches, mono), strict=True)
        }
        for port in changed:
            port.shape = shape_of(port.present, usable.get(port.entity, frozenset()))
            port.present = port.shape.present  # the names of one, not of each port
