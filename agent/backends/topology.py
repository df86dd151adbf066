"""Which HCA sits nearest to which GPU, from the PCI paths in sysfs.

A slow rail is found by asking for the HCA of the slow GPU; `nvidia-smi topo` knows, but not as a metric.
The labels use its words. This module reads directory names and NUMA nodes only, never the devices. Where a device sits
does not change: one that does not answer now keeps its place.
"""

import os
import re
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from agent.backends.file_reader_pool import CaughtRead, FileReaderPool, PathRead, UnansweredError
from agent.backends.protocol import BackendSample
from agent.backends.registration import BackendContext
from agent.backends.sysfs import list_names, printable, text
from agent.catalogue.infiniband import NEAREST_HCA
from agent.model import Gap, Gpu, GpuIdentity, Instant, Lane, Reading, Series

HCAS = 1_280
"""Most adapters that are looked at: eight with 127 virtual functions each, and some to spare."""
OF_GPU = 64
"""Most adapters at the same distance that are shown for a GPU."""

_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,}:[0-9a-f]{2}")
"""How sysfs names a root complex: the first part of every PCI device's path."""


class PciDistance(IntEnum):
    """How far apart two PCI devices are, in the words of `nvidia-smi topo`; less is nearer."""

    PIX = 0  # through one PCIe switch at most
    PXB = 1  # through several PCIe switches, but not the host bridge
    PHB = 2  # through the host bridge
    NODE = 3  # through two host bridges of one NUMA node
    SYS = 4  # through the link between NUMA nodes, or no shorter path is known


class PciPath(NamedTuple):
    """Where a PCI device sits: the names from its host bridge down to itself, and its NUMA node (-1: unknown)."""

    path: tuple[str, ...]
    numa: int


def _place_of(device: str) -> PciPath | None:
    """Return the place of a device's folder or link; None if it is not there, or not on PCI, as soft RoCE."""
    parts = Path(os.path.realpath(device)).parts
    start = next((index for index, part in enumerate(parts) if _HOST_BRIDGE.fullmatch(part)), None)
    if start is None or start + 1 == len(parts):
        return None
    return PciPath(parts[start:], _numa(f"{device}/numa_node"))


class TopologyBackend:
    """Which HCA is nearest to each GPU that `gpus` gives: a fact of the board, read in the cold lane."""

    name = "topology"
    lanes = frozenset({Lane.COLD})
    shortest = 1.0

    def __init__(self, sysfs: Path | str, gpus: Callable[[], list[GpuIdentity]]) -> None:
        self._sysfs = os.fspath(sysfs)
        self._gpus = gpus
        self._pool = FileReaderPool(self.name)
        self._places: dict[str, PciPath | None] = {}
        self._adapters: list[str] = []

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - it has one lane
        """Return for each GPU `coldplate_gpu_nearest_hca_info` for every HCA at the least distance.

        A GPU or an HCA that is not in sysfs (lost, or not on PCI) has no distance and is left out. No HCA is
        absent hardware, not a failure.
        """
        gpus = [identity for identity in self._gpus() if identity.slot]
        root = f"{self._sysfs}/class/infiniband"
        listed = self._pool.read(CaughtRead(root, list_names, OSError), now.mono)
        if not isinstance(listed, UnansweredError):  # without InfiniBand, which its own backend reports, none
            self._adapters = listed[:HCAS] if isinstance(listed, list) else []
        adapters = {name: f"{root}/{name}/device" for name in self._adapters}
        slots = {identity.gpu: f"{self._sysfs}/bus/pci/devices/{identity.slot}" for identity in gpus}
        silent = self._find_places((*adapters.values(), *slots.values()), now.mono)
        hcas = {printable(name): place for name, path in adapters.items() if (place := self._places.get(path))}
        readings: list[Reading] = []
        left_out = 0
        for gpu, path in slots.items():
            here = self._places.get(path)
            near = nearest_adapters(here, hcas) if here else []
            left_out += max(len(near) - OF_GPU, 0)
            readings += [Reading(_series(gpu, device, distance.name), 1) for device, distance in near[:OF_GPU]]
        gaps = [Gap(NEAREST_HCA, gpu, error.reason, error.detail) for gpu in slots for error in silent[:1]]
        return BackendSample(readings, gaps, calls=len(adapters) + len(slots), left_out=left_out)

    def close(self) -> None:
        self._pool.close()

    def _find_places(self, paths: Sequence[str], mono: float) -> list[UnansweredError]:
        """Find out where the devices sit; returns why for each device whose place is still not known."""
        answers = self._pool.read_each([PathRead(path, _place_of) for path in paths], mono)
        previous, self._places = self._places, {}
        silent = []
        for path, answer in zip(paths, answers, strict=True):
            if not isinstance(answer, UnansweredError):
                self._places[path] = answer
            elif path in previous:
                self._places[path] = previous[path]
            else:
                silent.append(answer)
        return silent


def make_backend(context: BackendContext) -> TopologyBackend | None:
    """Return the backend, if GPUs of this node are read."""
    return TopologyBackend(context.sysfs, context.gpus) if context.has_driver else None


def nearest_adapters(here: PciPath, hcas: dict[str, PciPath]) -> list[tuple[str, PciDistance]]:
    distances = {device: distance(here, there) for device, there in hcas.items()}
    least = min(distances.values(), default=PciDistance.SYS)
    return [(device, d) for device, d in distances.items() if d is least]


def distance(one: PciPath, other: PciPath) -> PciDistance:
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one.path, other.path, strict=False)))
    if shared == 0:
        return PciDistance.NODE if one.numa == other.numa >= 0 else PciDistance.SYS
    if shared == 1:
        return PciDistance.PHB
    # What is left of a path below the last shared bridge: the device itself, and above it a port of the shared switch.
    # If more is left, there is another switch in between.
    rest = max(len(one.path), len(other.path)) - shared
    return PciDistance.PIX if rest <= 2 else PciDistance.PXB


@lru_cache(maxsize=1024)
def _series(gpu: Gpu, device: str, name: str) -> Series:
    return Series(NEAREST_HCA, gpu, (("device", device), ("distance", name)))


def _numa(path: str) -> int:
    try:
        return int(text(path, 16))
    except (OSError, ValueError):
        return -1
