"""Which HCA sits nearest to which GPU, from the PCI paths in sysfs.

A slow rail is found by asking for the HCA of the slow GPU; `nvidia-smi topo` knows, but not as a metric.
The labels are its own. This module reads directory names and NUMA nodes only, never the devices.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from agent.catalogue.infiniband import NEAREST_HCA
from agent.model import Gpu, GpuIdentity, Reading, Series

_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
"""How sysfs names a root complex: the first part of every PCI device's path."""


class Distance(IntEnum):
    """How far apart two PCI devices are, in the words of `nvidia-smi topo`; less is nearer."""

    PIX = 0  # through one PCIe switch at most
    PXB = 1  # through several PCIe switches, but not the host bridge
    PHB = 2  # through the host bridge
    NODE = 3  # through two host bridges of one NUMA node
    SYS = 4  # through the link between NUMA nodes, or no way that is known to be shorter


class Place(NamedTuple):
    """Where a PCI device sits: the names from its host bridge down to itself, and its NUMA node (-1: unknown)."""

    path: tuple[str, ...]
    numa: int


def nearest_hcas(sysfs: Path | str, gpus: Sequence[GpuIdentity]) -> list[Reading]:
    """For each GPU, a reading of `coldplate_gpu_nearest_hca_info` for every HCA at the least distance.

    A GPU or an HCA that is not in sysfs (lost, or not on PCI) has no distance and is left out.
    """
    root = Path(sysfs)
    hcas = _hcas(root)
    readings: list[Reading] = []
    for identity in gpus:
        here = _place(root / "bus" / "pci" / "devices" / identity.slot) if identity.slot else None
        if here is None:
            continue
        distances = {device: distance(here, there) for device, there in hcas.items()}
        least = min(distances.values(), default=Distance.SYS)
        readings.extend(
            Reading(_series(identity.gpu, device, each.name), 1) for device, each in distances.items() if each is least
        )
    return readings


def distance(one: Place, other: Place) -> Distance:
    """How far two PCI devices are apart."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.path, other.path, strict=False)))
    if shared == 0:
        return Distance.NODE if one.numa == other.numa >= 0 else Distance.SYS
    if shared == 1:
        return Distance.PHB
    # What is left of a path below the last shared bridge: the device itself, and above it a port of
    # the shared switch. A longer rest passes through a further switch.
    rest = max(len(one.path), len(other.path)) - shared
    return Distance.PIX if rest <= 2 else Distance.PXB


@lru_cache(maxsize=1024)
def _series(gpu: Gpu, device: str, name: str) -> Series:
    return Series(NEAREST_HCA, gpu, (("device", device), ("distance", name)))


def _hcas(root: Path) -> dict[str, Place]:
    directory = root / "class" / "infiniband"
    try:
        names = sorted(each.name for each in directory.iterdir())
    except OSError:
        return {}  # no InfiniBand, which its own backend tells
    places = {name: _place(directory / name / "device") for name in names}
    return {name: place for name, place in places.items() if place is not None}


def _place(device: Path) -> Place | None:
    parts = Path(os.path.realpath(device)).parts
    start = next((index for index, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), None)
    if start is None or start + 1 == len(parts):
        return None  # no such device, or one that is not on PCI, such as soft RoCE
    return Place(parts[start:], _numa(device))


def _numa(device: Path) -> int:
    try:
        return int((device / "numa_node").read_bytes())
    except (OSError, ValueError):
        return -1
