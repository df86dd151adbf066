"""Which HCA sits nearest to which GPU, from the PCI paths in sysfs.

A slow rail is found by asking for the HCA of the slow GPU; `nvidia-smi topo` knows, but not as a metric.
The labels use its words. This module reads directory names and NUMA nodes only, never the devices. Where a device sits
does not change: one that does not answer now keeps its place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from agent.backends.file_reader_pool import FileRelay, Leg, Unread
from agent.backends.protocol import BackendSample
from agent.backends.registration import BackendContext
from agent.backends.sysfs import names, printable, text
from agent.catalogue import metric
from agent.catalogue.infiniband import NEAREST_HCA
from agent.model import Backend, Gap, Gpu, GpuIdentity, Instant, Lane, Reading, Series

HCAS = 1_280
"""Most adapters that are looked at: eight with 127 virtual functions each, and some to spare."""
OF_GPU = 64
"""Most adapters at the same distance that are shown for a GPU."""
LEFT_OUT = Series(metric("coldplate_backend_series_left_out"), Backend("topology"))

_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
"""How sysfs names a root complex: the first part of every PCI device's path."""


class Distance(IntEnum):
    """How far apart two PCI devices are, in the words of `nvidia-smi topo`; less is nearer."""

    PIX = 0  # through one PCIe switch at most
    PXB = 1  # through several PCIe switches, but not the host bridge
    PHB = 2  # through the host bridge
    NODE = 3  # through two host bridges of one NUMA node
    SYS = 4  # through the link between NUMA nodes, or no shorter path is known


class PciPlace(NamedTuple):
    """Where a PCI device sits: the names from its host bridge down to itself, and its NUMA node (-1: unknown)."""

    path: tuple[str, ...]
    numa: int


class Seat:
    """Where a device sits, for a relay; `path` is its folder or a link to it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> PciPlace | None:
        """Its place; None if there is no such device, or it is not on PCI, such as soft RoCE."""
        parts = Path(os.path.realpath(self.path)).parts
        start = next((index for index, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), None)
        if start is None or start + 1 == len(parts):
            return None
        return PciPlace(parts[start:], _numa(f"{self.path}/numa_node"))


class AdapterNames:
    """The names of the adapters, for a relay."""

    def __init__(self, path: str) -> None:
        self.path = path

    def read(self) -> list[str]:
        """The names in order; none without InfiniBand, which its own backend reports."""
        try:
            return names(self.path)
        except OSError:
            return []


class TopologyBackend:
    """Which HCA is nearest to each GPU that `gpus` gives: a fact of the board, read in the cold lane."""

    name = "topology"
    lanes = frozenset({Lane.COLD})
    shortest = 1.0

    def __init__(self, sysfs: Path | str, gpus: Callable[[], list[GpuIdentity]]) -> None:
        self._sysfs = os.fspath(sysfs)
        self._gpus = gpus
        self._relay = FileRelay(self.name)
        self._places: dict[str, PciPlace | None] = {}
        self._adapters: list[str] = []

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - it has one lane
        """For each GPU, `coldplate_gpu_nearest_hca_info` for every HCA at the least distance.

        A GPU or an HCA that is not in sysfs (lost, or not on PCI) has no distance and is left out. No HCA is
        absent hardware, not a failure.
        """
        gpus = [each for each in self._gpus() if each.slot]
        root = f"{self._sysfs}/class/infiniband"
        ((listed,),) = self._relay.round([Leg(root, [AdapterNames(root)])], now.mono)
        if isinstance(listed, list):
            self._adapters = listed[:HCAS]
        adapters = {name: f"{root}/{name}/device" for name in self._adapters}
        slots = {each.gpu: f"{self._sysfs}/bus/pci/devices/{each.slot}" for each in gpus}
        silent = self._look((*adapters.values(), *slots.values()), now.mono)
        hcas = {printable(name): place for name, path in adapters.items() if (place := self._places.get(path))}
        readings: list[Reading] = []
        left_out = 0
        for gpu, path in slots.items():
            here = self._places.get(path)
            near = nearest(here, hcas) if here else []
            left_out += max(len(near) - OF_GPU, 0)
            readings += [Reading(_series(gpu, device, each.name), 1) for device, each in near[:OF_GPU]]
        if left_out:
            readings.append(Reading(LEFT_OUT, left_out))
        gaps = [Gap(NEAREST_HCA, gpu, told.reason, told.detail) for gpu in slots for told in silent[:1]]
        return BackendSample(readings, gaps, calls=len(adapters) + len(slots))

    def close(self) -> None:
        """End the reader."""
        self._relay.close()

    def _look(self, paths: Iterable[str], mono: float) -> list[Unread]:
        """Find out where the devices sit; returns why for each device whose place is still not known."""
        legs = [Leg(path, [Seat(path)]) for path in paths]
        known, self._places = self._places, {}
        silent = []
        for leg, (answer,) in zip(legs, self._relay.round(legs, mono), strict=True):
            if not isinstance(answer, Unread):
                self._places[leg.name] = answer
            elif leg.name in known:
                self._places[leg.name] = known[leg.name]
            else:
                silent.append(Unread(answer.reason, f"{leg.name}: {answer.detail}"))
        return silent


def make_backend(context: BackendContext) -> TopologyBackend | None:
    """The backend, if GPUs of this node are read."""
    return TopologyBackend(context.sysfs, context.gpus) if context.has_driver else None


def nearest(here: PciPlace, hcas: dict[str, PciPlace]) -> list[tuple[str, Distance]]:
    """The HCAs at the least distance."""
    distances = {device: distance(here, there) for device, there in hcas.items()}
    least = min(distances.values(), default=Distance.SYS)
    return [(device, each) for device, each in distances.items() if each is least]


def distance(one: PciPlace, other: PciPlace) -> Distance:
    """How far apart two PCI devices are."""
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.path, other.path, strict=False)))
    if shared == 0:
        return Distance.NODE if one.numa == other.numa >= 0 else Distance.SYS
    if shared == 1:
        return Distance.PHB
    # What is left of a path below the last shared bridge: the device itself, and above it a port of the shared switch.
    # If more is left, there is another switch in between.
    rest = max(len(one.path), len(other.path)) - shared
    return Distance.PIX if rest <= 2 else Distance.PXB


@lru_cache(maxsize=1024)
def _series(gpu: Gpu, device: str, name: str) -> Series:
    return Series(NEAREST_HCA, gpu, (("device", device), ("distance", name)))


def _numa(path: str) -> int:
    try:
        return int(text(path, 16))
    except (OSError, ValueError):
        return -1
