"""Where a row's value comes from, as data.

A backend walks the rows and compiles the bindings that it understands, so that a metric which the
driver or sysfs already serves costs one row and no code. Several bindings with the same `labels` are
alternatives in order of preference: the first one that the device supports wins.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.model import Lane

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
    """A GPU performance monitoring metric (Hopper and newer): `raw * scale` is in the row's unit."""

    id: int
    scale: float = 0.01
    labels: tuple[str, ...] = ()

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


Binding = Field | Call | Gpm | DeviceValue | PortFile | Source | Derived
