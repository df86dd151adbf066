"""The InfiniBand backend: which ports there are, and one read of a lane over all of them.

Descriptors stay open, and each sample is one pread per file: a tenth of the cost of opening (sysfs
makes the content anew for a read at offset 0). A port that was once seen stays known: while its device
is gone, its files are gaps with the reason `lost`, and when it comes back they are read again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from agent.backends.infiniband.parse import SIZE, UnreadableError, reason_of
from agent.backends.infiniband.port import ALWAYS, KNOWN, Attribute, Port
from agent.backends.protocol import AbsentError, Sample
from agent.catalogue.infiniband import DIRECTORIES, INFO
from agent.model import Gap, IbPort, Instant, Lane, Reading, Reason

STALE = frozenset({errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.ENOENT, errno.EBADF})
"""What a descriptor answers whose device went away; a new one may stand at the same path."""

FLAGS = os.O_RDONLY | os.O_CLOEXEC
DEVICE_FACTS = (("board_id", "board_id"), ("firmware_version", "fw_ver"), ("hca_type", "hca_type"))


class InfinibandBackend:
    """Every file of every port under `sysfs`/class/infiniband.

    `descriptors` is the most that are kept open for slow files (Omni-Path has hundreds of them for each
    port); beyond it they are opened for each read. `pread` is `os.pread`, or what a test puts in its
    place.
    """

    name = "infiniband"
    lanes = frozenset({Lane.FAST, Lane.SLOW, Lane.COLD})
    shortest = 0.0

    def __init__(
        self,
        sysfs: Path | str = "/sys",
        *,
        descriptors: int = 512,
        pread: Callable[[int, int, int], bytes] = os.pread,
    ) -> None:
        self._root = Path(sysfs) / "class" / "infiniband"
        self._budget = descriptors
        self._pread = pread
        self._ports: dict[IbPort, Port] = {}
        self._lanes: dict[Lane, list[Attribute]] = {}
        self._kept = 0
        self._calls = 0

    def read(self, lane: Lane, now: Instant) -> Sample:  # noqa: ARG002 - the protocol's; sysfs has no time
        """Read one lane. Raises AbsentError while this node has never shown a port."""
        self._calls = 0
        gaps: list[Gap] = []
        if lane is Lane.SLOW or not self._ports:
            self._scan(gaps)
        readings: list[Reading] = []
        if lane is Lane.COLD:
            for port in self._ports.values():
                self._describe(port, readings, gaps)
        else:
            self._sample(self._lanes.get(lane, ()), readings, gaps)
        return Sample(readings, gaps, calls=self._calls)

    def close(self) -> None:
        """Close every descriptor."""
        for attributes in self._lanes.values():
            for attribute in attributes:
                self._release(attribute)

    def _sample(self, attributes: list[Attribute] | tuple[()], readings: list[Reading], gaps: list[Gap]) -> None:
        for attribute in attributes:
            try:
                value = attribute.decode(self._content(attribute))
            except UnreadableError as error:
                gap = attribute.gap(error.reason, error.why)
            except OSError as error:
                gap = attribute.gap(self._reason(attribute.path, error), os.strerror(error.errno or errno.EIO))
            else:
                readings.append(Reading(attribute.series, value * attribute.scale))
                if attribute.watch is not None:
                    readings += attribute.watch.saw(value)
                continue
            gaps.append(gap)
            if attribute.watch is not None:
                unknown, counted = attribute.watch.missed(gap)
                gaps.append(unknown)
                readings.append(counted)

    def _content(self, attribute: Attribute) -> bytes:
        if attribute.fd >= 0:
            self._calls += 1
            try:
                return self._pread(attribute.fd, SIZE, 0)
            except OSError as error:
                if error.errno not in STALE:
                    raise
                self._release(attribute)
        return self._open(attribute)

    def _open(self, attribute: Attribute) -> bytes:
        """Read a file that is not open; its descriptor is kept if it is good and the budget allows."""
        fd = os.open(attribute.path, FLAGS)
        keep = False
        try:
            self._calls += 1
            content = self._pread(fd, SIZE, 0)
            keep = self._kept < self._budget or attribute.series.metric.lane is Lane.FAST
        finally:
            if keep:
                attribute.fd = fd
                self._kept += attribute.series.metric.lane is not Lane.FAST
            else:
                os.close(fd)
        return content

    def _release(self, attribute: Attribute) -> None:
        if attribute.fd >= 0:
            os.close(attribute.fd)
            attribute.fd = -1
            self._kept -= attribute.series.metric.lane is not Lane.FAST

    def _reason(self, path: str, error: OSError) -> Reason:
        """A file that is missing from a port which is there is a file that the driver does not offer."""
        if error.errno == errno.ENOENT and Path(path).parent.is_dir():
            return Reason.UNSUPPORTED
        return reason_of(error)

    def _scan(self, gaps: list[Gap]) -> None:
        """Learn which ports and files there are: some 3 directories for each port, and no file is read."""
        for device in self._devices():
            try:
                ports = _names(device / "ports")
            except OSError as error:
                detail = f"{device / 'ports'}: {os.strerror(error.errno or errno.EIO)}"
                gaps.append(Gap(INFO, IbPort(device.name, ""), reason_of(error), detail))
                continue
            for number in ports:
                entity = IbPort(device.name, number)
                port = self._ports.get(entity)
                if port is None:
                    port = self._ports[entity] = Port(device, number)
                self._learn(port)
        if not self._ports:
            raise AbsentError(f"{self._root} shows no port: no InfiniBand or RoCE device, or its driver is not loaded")

    def _devices(self) -> list[Path]:
        try:
            return [self._root / name for name in _names(self._root)]
        except (FileNotFoundError, NotADirectoryError) as error:
            if self._ports:
                return []  # the driver was unloaded; what was seen before is lost, not absent
            raise AbsentError(
                f"{self._root} does not exist: this node has no InfiniBand or RoCE device, "
                "or its driver is not loaded, or sysfs is elsewhere (--path.sysfs)"
            ) from error

    def _learn(self, port: Port) -> None:
        present = ALWAYS.union(*(_files(port.directory / each) for each in DIRECTORIES))
        if port.attributes.keys() == present:
            return
        for gone in port.adopt(present, self._usable):
            self._release(gone)
        self._lanes = {
            lane: [each for known in self._ports.values() for each in known.of(lane)] for lane in (Lane.FAST, Lane.SLOW)
        }

    def _usable(self, path: str) -> bool:
        try:
            return self._text(path).isdigit()
        except OSError:
            return False

    def _describe(self, port: Port, readings: list[Reading], gaps: list[Gap]) -> None:
        """The port's facts. A fact that cannot be read is an empty label; without any the row is a gap."""
        files = [*((label, port.device / file) for label, file in DEVICE_FACTS)]
        files.append(("link_layer", port.directory / "link_layer"))
        facts: list[tuple[str, str]] = []
        problem: OSError | None = None
        for label, path in files:
            try:
                facts.append((label, self._text(os.fspath(path))))
            except OSError as error:
                facts.append((label, ""))
                problem = error
        if problem is not None and not any(value for _, value in facts):
            detail = f"{files[-1][1]}: {os.strerror(problem.errno or errno.EIO)}"
            gaps.append(Gap(INFO, port.entity, reason_of(problem), detail))
        else:
            readings.append(Reading(port.info(tuple(facts)), 1))

    def _text(self, path: str) -> str:
        """A file that is read too seldom to stay open."""
        fd = os.open(path, FLAGS)
        try:
            self._calls += 1
            return self._pread(fd, 4096, 0).decode("utf-8", "replace").strip("\0 \t\n")
        finally:
            os.close(fd)


def _names(directory: Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries)


def _files(directory: Path) -> list[str]:
    """The files of a counters directory as `DIRECTORY/FILE`; the known ones when it may not be listed."""
    try:
        return [f"{directory.name}/{file}" for file in _names(directory)]
    except FileNotFoundError:
        return []  # irdma and EFA have no `counters`, mlx4 no `hw_counters`
    except OSError:
        return [path for path in KNOWN if path.startswith(f"{directory.name}/")]
