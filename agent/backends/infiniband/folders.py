"""Lists devices, ports and files: reads directories, but no files."""

from __future__ import annotations

import os
from dataclasses import dataclass

from agent.backends.infiniband.port import ALWAYS, KNOWN
from agent.backends.sysfs import names
from agent.catalogue.infiniband import DIRECTORIES

PORTS = 255
"""Most ports of one device: port numbers have eight bits."""
FILES = 1_024
"""Most files of one directory without a row in the catalogue; hfi1 has some hundreds."""


@dataclass(frozen=True, slots=True)
class PortFiles:
    """The files of a port as `DIRECTORY/FILE`, and how many more there are."""

    present: frozenset[str]
    left_out: int


@dataclass(frozen=True, slots=True)
class Found:
    """The ports of a device by number. `lasting`: it is hardware, which does not come and go with its users."""

    lasting: bool
    ports: dict[str, PortFiles]
    left_out: int


class ClassFolder:
    """The folder of all devices, /sys/class/infiniband."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> list[str] | OSError:
        """The names of the devices."""
        try:
            return names(self.path)
        except OSError as error:
            return error


class DeviceFolder:
    """The folder of one device: some 3 directories for each port."""

    __slots__ = ("_device", "path")

    def __init__(self, device: str) -> None:
        self._device = device
        self.path = f"{device}/ports"

    def read(self) -> Found | OSError:
        """What was found, or the error if the ports cannot be listed."""
        try:
            ports = names(self.path)
        except OSError as error:
            return error
        hardware = f"{self._device}/device"
        lasting = os.path.lexists(hardware) and not os.path.lexists(f"{hardware}/physfn")
        shown = {number: _files(f"{self.path}/{number}") for number in ports[:PORTS]}
        return Found(lasting, shown, len(ports) - len(shown))


def _files(port: str) -> PortFiles:
    present, left_out = set(ALWAYS), 0
    for directory in DIRECTORIES:
        try:
            listed = [f"{directory}/{name}" for name in names(f"{port}/{directory}")]
        except FileNotFoundError:
            continue  # irdma and EFA have no `counters`, mlx4 no `hw_counters`
        except OSError:  # the directory may not be listed: try the files that are known
            listed = [path for path in KNOWN if path.startswith(f"{directory}/")]
        unknown = [path for path in listed if path not in KNOWN]
        present.update(KNOWN.intersection(listed), unknown[:FILES])
        left_out += max(len(unknown) - FILES, 0)
    return PortFiles(frozenset(present), left_out)
