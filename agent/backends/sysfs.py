"""Read directories, small files, numbers and the PCI bus of sysfs and procfs, within bounds, whatever is in them.

A driver decides what is there: how many entries a directory has, how long a file is, which bytes are in a name.
"""

import os
from collections.abc import Collection
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from agent.backends.protocol import DeviceError, device_error
from agent.model import Reason

ENTRIES = 1 << 17
"""Most entries of one directory that are looked at: no directory of devices has more."""
PAGE = 4096
"""Most bytes of a file of sysfs (Documentation/filesystems/sysfs.rst)."""
LABEL = 256
"""Most characters of a label's value."""

FLAGS = os.O_RDONLY | os.O_CLOEXEC


def list_names(directory: Path | str) -> list[str]:
    """Return the names in a directory, in order. Raises OSError."""
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in islice(entries, ENTRIES))


def list_if_possible(directory: Path | str) -> list[str]:
    """Return the same; none of a directory that is not there or cannot be listed."""
    try:
        return list_names(directory)
    except OSError:
        return []


def text(path: Path | str, size: int = PAGE) -> str:
    """Return a file's first bytes as text, without the white space around it. Raises OSError."""
    fd = os.open(path, FLAGS)
    try:
        return os.read(fd, size).decode("utf-8", "replace").strip("\0 \t\r\n")
    finally:
        os.close(fd)


def text_if_possible(path: Path | str, size: int = PAGE) -> str:
    """Return the same; "" of a file that is not there or cannot be read."""
    try:
        return text(path, size)
    except OSError:
        return ""


def printable(name: str) -> str:
    """Return a name as a label's value: what no terminal should get is escaped, and a long name is cut."""
    escaped = name if name.isprintable() else name.encode("unicode_escape").decode("ascii")
    return escaped[:LABEL]


def is_physical_interface(sysfs: str, interface: str) -> bool:
    """Return whether a network interface is a port of hardware.

    Bridges, veth, bonds, VLANs and lo have no `device`. A virtual function of a card has one, and in it the way back to
    its physical function, which counts for the whole card.
    """
    hardware = f"{sysfs}/class/net/{interface}/device"
    return os.path.exists(hardware) and not os.path.exists(f"{hardware}/physfn")  # noqa: PTH110 - Path's may raise


NVIDIA = 0x10DE
DISPLAY_CONTROLLER = 0x03
"""PCI class of GPUs, those without a display output included (pci.ids)."""


COMPUTE_CLASS = 0x0302
"""PCI class of GPUs without a display output, 3D controllers: those of data centres (pci.ids)."""


class PciDevice(NamedTuple):
    """Address, vendor, class (24 bits) and model number of one device."""

    address: str
    vendor: int
    kind: int
    model: int


def pci_devices(sysfs: Path) -> tuple[PciDevice, ...]:
    """Return all devices on the bus, with or without a driver; none where there is no such bus.

    A device that cannot be read is left out.
    """
    folder = sysfs / "bus/pci/devices"
    devices = []
    for address in list_if_possible(folder):
        try:
            vendor, kind = (int(text(folder / address / name, 32), 16) for name in ("vendor", "class"))
        except (OSError, ValueError):
            continue
        try:
            model = int(text(folder / address / "device", 32), 16)
        except (OSError, ValueError):
            model = -1
        devices.append(PciDevice(address, vendor, kind, model))
    return tuple(devices)


def nvidia_gpus(sysfs: Path) -> list[str]:
    """Return the addresses of NVIDIA's GPUs, except those that are passed through to virtual machines."""
    return [device.address for device in _host_gpus(sysfs)]


def unclaimed_gpus(sysfs: Path, served: Collection[str]) -> list[str]:
    """Return the addresses of NVIDIA's GPUs that should be among those that the driver serves, and that no driver has.

    `served` are the addresses of the driver's GPUs. A driver whose probe of a GPU failed has no link from it. Display
    adapters that this driver does not support look the same, so a GPU counts only if it has no display output, or is
    of the same model as one that is served.
    """
    gpus = _host_gpus(sysfs)
    served_models = {device.model for device in gpus if device.address in served and device.model >= 0}
    return [
        device.address
        for device in gpus
        if device.address not in served
        and (device.kind >> 8 == COMPUTE_CLASS or device.model in served_models)
        and not _driver_of(sysfs, device)
    ]


def _host_gpus(sysfs: Path) -> list[PciDevice]:
    """Return NVIDIA's GPUs, except those that are passed through to virtual machines."""
    return [
        device
        for device in pci_devices(sysfs)
        if device.vendor == NVIDIA and device.kind >> 16 == DISPLAY_CONTROLLER and not _is_passed_through(sysfs, device)
    ]


def _driver_of(sysfs: Path, device: PciDevice) -> str:
    """Return the name of the kernel driver that has a device; "" without one."""
    link = sysfs / "bus/pci/devices" / device.address / "driver"
    return os.path.basename(os.path.realpath(link)) if os.path.lexists(link) else ""  # noqa: PTH119 - it may dangle


def _is_passed_through(sysfs: Path, device: PciDevice) -> bool:
    """Return True for a virtual function, and for a device of a driver such as vfio-pci or nvgrace-gpu-vfio-pci."""
    driver = _driver_of(sysfs, device)
    handed_over = "vfio" in driver or driver in ("pci-stub", "pciback", "xen-pciback")
    return handed_over or os.path.lexists(sysfs / "bus/pci/devices" / device.address / "physfn")


def read_text(path: str) -> str:
    """Return the file's text without white space around it. Raises DeviceError naming the file."""
    try:
        return text(path)
    except OSError as error:
        raise device_error(path, error, missing=Reason.UNSUPPORTED) from error


def read_name(path: str) -> str:
    """Return the words that name a device. Raises DeviceError naming the file."""
    name = read_text(path)
    if not name or len(name) > 64 or not name.isprintable():
        raise DeviceError(Reason.MALFORMED, f"{path}: {name[:40]!a} is not a valid name")
    return name


def read_number(path: str) -> int:
    """Return a whole number that is not negative. Raises DeviceError naming the file."""
    content = read_text(path)
    if not (content.isascii() and content.isdigit() and len(content) <= 20):
        raise DeviceError(Reason.MALFORMED, f"{path}: {content[:40]!a} is not a whole number")
    return int(content)


def list_paths(directory: str, prefix: str) -> list[str]:
    """Return the paths of the entries with this prefix; none without the directory. Raises DeviceError."""
    try:
        return [f"{directory}/{name}" for name in list_names(directory) if name.startswith(prefix)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise device_error(directory, error, missing=Reason.UNSUPPORTED) from error
