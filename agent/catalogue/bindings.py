"""Rows of the catalogue: where a value comes from, as data, and how fast a counter can plausibly grow.

Bindings with the same `labels` are alternatives in order of preference: the first that the device supports wins.
A counter that grows faster than its bound is left out. The bounds leave room for what is sold next, and must catch
what a damaged counter shows: all ones in 32 or in 64 bits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from agent.model import Kind, Lane, Metric, Unit

ALL_LINKS = 0xFFFFFFFF
"""The scope id that asks an NVLink field for the sum over all links."""


@dataclass(frozen=True, slots=True)
class Field:
    """A value of `nvmlDeviceGetFieldValues`: `raw * scale` is in the row's unit.

    `labels` are the values of the row's own labels, in order. `per_link` asks once for each link,
    with the link number as scope; a row of the GPU takes the sum of them. `packed` is for a bit error ratio that the
    driver gives as a mantissa and an exponent; of these, which have no sum, a row of the GPU takes the highest.
    """

    id: int
    scale: float = 1.0
    scope: int = 0
    labels: tuple[str, ...] = ()
    per_link: bool = False
    packed: bool = False

    def __str__(self) -> str:
        return f"NVML field {self.id}"


@dataclass(frozen=True, slots=True)
class Call:
    """A value that one NVML function gives; the NVML backend knows how to call it.

    `lane` is for a value whose call would cost too much in the row's own lane. `bit` is for a function that answers
    with a mask: the value is whether this bit is set.
    """

    name: str
    labels: tuple[str, ...] = ()
    lane: Lane | None = None
    bit: int | None = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Gpm:
    """A GPU performance monitoring metric (Hopper and newer): `raw * scale` is in the row's unit.

    `total` is for a counter of which GPM gives the mean growth per second: the sampler adds it up.
    """

    id: int
    scale: float = 0.01
    labels: tuple[str, ...] = ()
    total: bool = False

    def __str__(self) -> str:
        return f"GPM metric {self.id}"


@dataclass(frozen=True, slots=True)
class PortFile:
    """A file below `/sys/class/infiniband/DEVICE/ports/PORT/`: `raw * scale` is in the row's unit."""

    path: str
    scale: float = 1.0

    def __str__(self) -> str:
        return f"ports/N/{self.path}"


@dataclass(frozen=True, slots=True)
class Source:
    """A value that a backend's own code reads; the text names the file, call or library."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class DeviceValue:
    """A value read by another family of devices than NVIDIA's: its word in `backends.devices`, and the file or call."""

    family: str
    text: str

    def __str__(self) -> str:
        return f"{self.family}: {self.text}"


@dataclass(frozen=True, slots=True)
class Derived:
    """A value that the agent computes; the text says from what."""

    how: str

    def __str__(self) -> str:
        return f"derived: {self.how}"


USUAL = {
    # Joules: no GPU draws 5 kW. Seconds: of one device's time share, which cannot exceed 1, with room for the device's
    # own clock. Bytes: all NVLinks of a Blackwell GPU carry 1.8 TB/s (both ways), of a Rubin GPU 3.6 TB/s.
    Unit.JOULES: 5_000.0,
    Unit.SECONDS: 2.0,
    Unit.BYTES: 4e12,
    # Errors and events, and packets of a slow port.
    Unit.NONE: 1e9,
}
"""Most growth per second, in the unit."""

PACKETS = 1e10
"""Packets a second, in one direction: 800 Gb/s carry 1.2e9 of the shortest, of 84 bytes with their gap."""
PROCESSORS = 1e5
"""Processor seconds a second: as many as there are processors, of which Linux serves 8,192."""
NODE_WATTS = 1e5
"""Joules a second for a counter of part of a node."""
JOB_WATTS = 1e6
"""Joules a second for all GPUs that one job has on a node."""
GPU_SECONDS = 2048.0
"""Seconds a second, added up over the GPUs of a node: at most 1,024 of them."""
ANYTHING = 4e12
"""For an unknown counter, which may count bytes."""


def growth_of(row: Metric) -> float:
    """Return the most that a counter can grow in a second, in its row's unit."""
    return row.growth if row.growth is not None else USUAL.get(row.unit, inf)


def is_measured(row: Metric) -> bool:
    """Return whether a device gives the row, rather than the agent computing it."""
    return row.lane is not Lane.EVENT and not all(isinstance(binding, Derived) for binding in row.origin)


_UNITS = {unit.value: unit for unit in Unit}


def _maker(kind: Kind, **usual: Any) -> Callable[..., Metric]:
    def make(name: str, entity: type, help: str, lane: Lane, *origin: object, **more: Any) -> Metric:
        word = name.removesuffix("_total").removesuffix("_per_second").rpartition("_")[2]
        return Metric(name, kind, _UNITS.get(word, Unit.NONE), entity, help, lane, origin, **{**usual, **more})

    return make


# Each takes name, entity, help and lane, then the bindings of the origin, then further fields of `Metric` by name.
gauge = _maker(Kind.GAUGE)
counter = _maker(Kind.COUNTER)
state = _maker(Kind.STATE, span=(0, 1))
info = _maker(Kind.INFO, span=(1, 1))
