"""The ports that this node has or had, and the files of each.

A hardware port that was once seen stays known, so that its absence is reported. Virtual functions and software devices
are forgotten when they disappear: they come and go with the containers that use them.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.backends.file_relay import FileRelay, Leg, Unread
from agent.backends.infiniband.attribute import Pread, TextFile
from agent.backends.infiniband.folders import ClassFolder, DeviceFolder, Found
from agent.backends.infiniband.parse import reason_of, why
from agent.backends.infiniband.port import Port, Shape, rivals, shape_of
from agent.backends.protocol import AbsentError, DeviceError
from agent.backends.sysfs import printable
from agent.catalogue.infiniband import INFO
from agent.model import Gap, IbPort

PORTS = 1_280
"""Most ports that are known: eight adapters with 127 virtual functions each, and some to spare."""
DEVICES = 2_048
"""Most devices that are looked into."""


class Census:
    """Looks for ports. Belongs to one thread; its reads are the relay's."""

    def __init__(self, root: str, relay: FileRelay, pread: Pread) -> None:
        self.ports: dict[IbPort, Port] = {}
        self.ignored = 0
        """Files of ports beyond the known ones; a device that is not looked into counts as one."""
        self._root = root
        self._relay = relay
        self._pread = pread
        self._shapes: dict[tuple[frozenset[str], frozenset[str]], tuple[frozenset[str], Shape]] = {}
        """Shapes, by a port's files and the usable rivals among them. Ports of one driver have the same file names."""

    def take(self, mono: float) -> tuple[bool, list[Gap]]:
        """Find out what there is now: whether it changed, and a gap for each device that cannot be looked into.

        Raises AbsentError if no port was ever seen, and DeviceError if that cannot be known.
        """
        ignored = self.ignored
        devices = self._devices(mono)
        if devices is None:
            return False, []
        beyond, devices = len(devices) - DEVICES, devices[:DEVICES]
        legs = [Leg(name, [DeviceFolder(f"{self._root}/{name}")]) for name in devices]
        answers = [answer for (answer,) in self._relay.round(legs, mono)]
        found = {name: answer for name, answer in zip(devices, answers, strict=True) if isinstance(answer, Found)}
        silent = {name for name, answer in zip(devices, answers, strict=True) if isinstance(answer, Unread)}
        known = {port.device for port in self.ports.values()}
        gaps = [
            self._gap(name, answer)
            for name, answer in zip(devices, answers, strict=True)
            if isinstance(answer, OSError) or (isinstance(answer, Unread) and name not in known)
        ]
        forgot = self._forget(found, silent)
        changed = self._meet(found)
        self.ignored += max(beyond, 0)
        self._learn(changed, mono)
        if not self.ports and not gaps:
            raise AbsentError(f"{self._root} has no ports: no InfiniBand or RoCE device, or its driver is not loaded")
        return forgot or bool(changed) or ignored != self.ignored, gaps

    def _devices(self, mono: float) -> list[str] | None:
        """The names of the devices; None if they cannot be listed but ports are known, which report themselves."""
        ((answer,),) = self._relay.round([Leg("", [ClassFolder(self._root)])], mono)
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
        if isinstance(answer, Unread):
            raise DeviceError(answer.reason, f"{self._root}: {answer.detail}")
        raise DeviceError(reason_of(answer), f"{self._root}: {why(answer)}")

    def _gap(self, device: str, answer: OSError | Unread) -> Gap:
        reason, detail = (
            (answer.reason, answer.detail) if isinstance(answer, Unread) else (reason_of(answer), why(answer))
        )
        return Gap(INFO, IbPort(printable(device), ""), reason, f"{self._root}/{device}/ports: {detail}")

    def _forget(self, found: dict[str, Found], silent: set[str]) -> bool:
        """Drop virtual ports that are gone, and the oldest of the lost hardware ports if there are too many."""
        gone = [
            port
            for port in self.ports.values()
            if port.device not in silent
            and port.number not in (found[port.device].ports if port.device in found else ())
        ]
        surplus = sum(len(each.ports) for each in found.values()) + len(gone) - PORTS
        drop = [port for port in gone if not port.lasting]
        drop += [port for port in gone if port.lasting][: max(surplus - len(drop), 0)]
        for port in drop:
            del self.ports[port.entity]
        return bool(drop)

    def _meet(self, found: dict[str, Found]) -> list[Port]:
        """Take in the ports that were found; returns those that are new or whose files have changed."""
        changed = []
        self.ignored = sum(each.left_out for each in found.values())
        # Hardware first: if there are too many, the virtual functions are left out.
        for device, each in sorted(found.items(), key=lambda item: not item[1].lasting):
            for number, files in each.ports.items():
                port = self._port(device, number)
                if port is None:
                    self.ignored += len(files.present) + files.left_out
                    continue
                port.lasting = each.lasting
                if (port.present, port.left_out) != (files.present, files.left_out):
                    port.present, port.left_out = files.present, files.left_out
                    changed.append(port)
        return changed

    def _port(self, device: str, number: str) -> Port | None:
        """The port; None if there are too many already, or if another one has the same labels."""
        entity = IbPort(printable(device), printable(number))
        port = self.ports.get(entity)
        if port is None and len(self.ports) < PORTS:
            port = self.ports[entity] = Port(self._root, device, number)
        return port if port is not None and (port.device, port.number) == (device, number) else None

    def _learn(self, changed: Sequence[Port], mono: float) -> None:
        """Decide which row each file feeds. Files are read only where two of one driver could feed the same row."""
        contested = [(port, paths) for port in changed if (paths := rivals(port.present))]
        legs = [
            Leg(port.device, [TextFile(f"{port.directory}/{path}", self._pread) for path in paths])
            for port, paths in contested
        ]
        usable = {
            port.entity: frozenset(
                path for path, text in zip(paths, texts, strict=True) if isinstance(text, str) and text.isdigit()
            )
            for (port, paths), texts in zip(contested, self._relay.round(legs, mono), strict=True)
        }
        for port in changed:
            key = (port.present, usable.get(port.entity, frozenset()))
            if key not in self._shapes:
                self._shapes[key] = (port.present, shape_of(*key))
            port.present, port.shape = self._shapes[key]
        used = {id(port.shape) for port in self.ports.values()}
        self._shapes = {key: known for key, known in self._shapes.items() if id(known[1]) in used}
