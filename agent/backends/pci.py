"""Lists the devices on the PCI bus, as sysfs shows them: what is plugged in, with or without a driver."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from agent.backends.sysfs import names, text

NVIDIA = 0x10DE
DISPLAY_CONTROLLER = 0x03
"""PCI class of GPUs, those without a display output included (pci.ids)."""


class PciDevice(NamedTuple):
    """Address, vendor and class (24 bits) of one device."""

    address: str
    vendor: int
    kind: int


def pci_devices(sysfs: Path) -> tuple[PciDevice, ...]:
    """Return all devices; none where there is no such bus. A device that cannot be read is left out."""
    folder = sysfs / "bus/pci/devices"
    found = []
    try:
        addresses = names(folder)
    except OSError:
        return ()
    for address in addresses:
        try:
            vendor, kind = (int(text(folder / address / name, 32), 16) for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        found.append(PciDevice(address, vendor, kind))
    return tuple(found)


def nvidia_gpus(sysfs: Path) -> list[str]:
    """Return the addresses of NVIDIA's GPUs, except those that are passed through to virtual machines."""
    return [
        each.address
        for each in pci_devices(sysfs)
        if each.vendor == NVIDIA and each.kind >> 16 == DISPLAY_CONTROLLER and not _is_passed_through(sysfs, each)
    ]


def _is_passed_through(sysfs: Path, device: PciDevice) -> bool:
    folder = sysfs / "bus/pci/devices" / device.address
    driver = os.path.basename(os.path.realpath(folder / "driver"))  # noqa: PTH119 - of a link that may be dangling
    return driver == "vfio-pci" or os.path.lexists(folder / "physfn")
