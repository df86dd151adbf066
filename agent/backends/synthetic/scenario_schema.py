"""The vocabulary of a scenario file: the kinds, the parameters of each, and how values are parsed.

A parser gets a YAML value and returns a number or a word; a ValueError says what is wrong with it.
"""

import re
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Union

from msgspec import Struct

from agent.backends.synthetic.synthetic_faults import SENTINELS
from agent.backends.synthetic.synthetic_ports import LANES
from agent.catalogue import BY_NAME, ROWS, optics
from agent.catalogue.bindings import Field
from agent.catalogue.equipment import LEAK_STATES
from agent.lib.wording import meant, shown
from agent.model import Gpu, IbPort, Kind, NvLink, Reason

Value = Union[float, str]
Parser = Callable[[object], Value]

REQUIRED: None = None
PORT_PREFIX = "coldplate_infiniband_"
LINK_ERROR_TYPES = tuple(
    binding.labels[0] for binding in BY_NAME["coldplate_nvlink_errors_total"].origin if isinstance(binding, Field)
)


class Parameter(Struct, frozen=True):
    """How a key's value is parsed, and its default; None if the key is required."""

    parse: Parser
    default: Value | None


class FaultKind(Struct, frozen=True):
    """What a fault applies to, the parameters it takes, and what it does, for the documentation."""

    targets: tuple[str, ...]  # of gpu, link, port, optic, detector, pump, feed; two alternatives are "gpu|port"
    parameters: dict[str, Parameter]
    help: str


class PhaseKind(Struct, frozen=True):
    """The parameters of a kind of work, and what it looks like, for the documentation."""

    parameters: dict[str, Parameter]
    help: str


_QUANTITY = re.compile(r"\s*([-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)\s*([A-Za-z/%]*)\s*")


def quantity(units: dict[str, float], example: str, low: float = 0.0, high: float = 1e15) -> Parser:
    """Return a parser of a number, or a number with one of these units; a bare number is in base units."""

    def parse(raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
            raise ValueError(f"expected a number or a quantity such as {example}, found {shown(raw)}")
        if isinstance(raw, str):
            match = _QUANTITY.fullmatch(raw)
            if match is None or (match[2] and match[2] not in units):
                raise ValueError(f"expected a quantity such as {example}, found {shown(raw)}")
            value = float(match[1]) * units.get(match[2], 1.0)
        else:
            value = float(raw)
        if not isfinite(value) or not low <= value <= high:
            raise ValueError(f"{shown(raw)} is not between {low:g} and {high:g}")
        return value

    return parse


duration = quantity({"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}, "90s, 5m or 250ms")
span = quantity({"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}, "90s, 5m or 250ms", low=0.01)
watts = quantity({"W": 1.0, "kW": 1e3, "MW": 1e6}, "500W or 2.7kW")
bandwidth = quantity({"Gb/s": 1e9 / 8, "GB/s": 1e9, "B/s": 1.0}, "200Gb/s")
ratio = quantity({"%": 0.01}, "0.05 or 5%", high=1.0)
number = quantity({}, "3")
degrees = quantity({"C": 1.0}, "5", high=60.0)


def whole(low: int, high: int) -> Parser:

    def parse(raw: object) -> float:
        if isinstance(raw, bool) or not isinstance(raw, int) or not low <= raw <= high:
            raise ValueError(f"expected a whole number from {low} to {high}, found {shown(raw)}")
        return float(raw)

    return parse


def flag(raw: object) -> float:
    if not isinstance(raw, bool):
        raise ValueError(f"expected true or false, found {shown(raw)}")
    return float(raw)


def text(raw: object) -> str:
    """Read a word; a number is taken as written."""
    if isinstance(raw, bool) or not isinstance(raw, (str, int)):
        raise ValueError(f"expected text, found {shown(raw)}")
    return str(raw)


def choice(allowed: Iterable[str]) -> Parser:
    words = tuple(allowed)

    def parse(raw: object) -> str:
        word = text(raw)
        if word not in words:
            raise ValueError(f"unknown value {shown(word)}{meant(word, words)}")
        return word

    return parse


_SPOILABLE = choice(row.name for row in ROWS if row.entity in (Gpu, IbPort))
_COUNTERS = choice(row.name for row in ROWS if row.entity in (Gpu, IbPort) and row.kind is Kind.COUNTER)
_PORT_COUNTERS = choice(
    row.name.removeprefix(PORT_PREFIX) for row in ROWS if row.entity is IbPort and row.kind is Kind.COUNTER
)
_REASONS = choice(reason.value for reason in Reason)
_SETTABLE = choice(row.name for row in ROWS if row.entity in (Gpu, NvLink, IbPort) or row in optics.ROWS)

PHASES: dict[str, PhaseKind] = {
    "idle": PhaseKind({}, "The process holds its memory and launches no kernels."),
    "loading": PhaseKind({}, "Start-up: memory fills over the phase's duration, data arrives over PCIe."),
    "training": PhaseKind(
        {"power": Parameter(ratio, 0.985), "utilization": Parameter(ratio, 1.0), "iteration": Parameter(span, 2.37)},
        "Compute, an exchange of gradients, a short gap on the host; `power` is a share of the power limit.",
    ),
    "inference": PhaseKind({"load": Parameter(ratio, 0.45)}, "Requests in bursts: prefill and decoding."),
    "data-starved": PhaseKind(
        {"utilization": Parameter(ratio, 0.25)}, "Short bursts of compute between waits for the next batch."
    ),
    "power-swing": PhaseKind(
        {"high": Parameter(span, 12.0), "low": Parameter(span, 8.0)},
        "The whole job computes for `high`, then waits for `low`, in step.",
    ),
    "waiting": PhaseKind({}, "A collective that never completes: full utilization, no work."),
}  # fmt: skip

_ON_GPU = ("gpu",)
_ON_PORT = ("port",)
_ON_OPTIC = ("optic",)
_ON_EITHER = ("gpu|port",)
_ZERO = Parameter(number, 0.0)
_ANY = quantity({}, "3", low=-1e15)
_XID_WORDS = ("unknown", "fatal", "nonfatal")
_SXID_WORDS = ("fatal", "nonfatal")

FAULTS: dict[str, FaultKind] = {
    "straggler": FaultKind(
        _ON_GPU, {"utilization": Parameter(ratio, 0.05)}, "The GPU gets little work; the job's other GPUs do not wait."
    ),
    "checkpoint-stall": FaultKind(
        _ON_GPU, {"every": Parameter(span, 120.0), "takes": Parameter(span, 117.0)},
        "The GPU writes a checkpoint for `takes` out of `every`, while the job's other GPUs spin.",
    ),
    "slow": FaultKind(
        _ON_GPU, {"factor": Parameter(ratio, 0.6)},
        "Power and clock at `factor`, with the utilization and the work of its peers and no throttle reason.",
    ),
    "hot": FaultKind(
        _ON_GPU,
        {"resistance": Parameter(quantity({}, "1.6", low=1.0, high=10.0), 1.6), "inlet": Parameter(degrees, 0.0)},
        "Thermal resistance times `resistance`, and air that is `inlet` degrees warmer.",
    ),
    "power-brake": FaultKind(
        _ON_GPU, {"power": Parameter(ratio, 0.45), "clock": Parameter(ratio, 0.5)},
        "The facility or the power supply asserts the hardware power brake.",
    ),
    "power-limit": FaultKind(_ON_GPU, {"watts": Parameter(watts, REQUIRED)}, "A lower power limit is set."),
    "lost": FaultKind(_ON_GPU, {}, "The GPU falls off the bus (XID 79); the job's other GPUs spin."),
    "hang": FaultKind(_ON_GPU, {}, "Reads of the GPU do not return (XID 119 first)."),
    "driver-unloaded": FaultKind((), {}, "The driver is unloaded: every read fails."),
    "xid": FaultKind(
        _ON_GPU, {"code": Parameter(whole(1, 999), REQUIRED), "words": Parameter(choice(_XID_WORDS), _XID_WORDS[0])},
        "An XID error at each onset; for 144 to 150, `words` is how grave its log line says that it is.",
    ),
    "sxid": FaultKind(
        (),
        {"code": Parameter(whole(1, 999_999), REQUIRED), "switch": Parameter(whole(0, 5), 0.0),
         "words": Parameter(choice(_SXID_WORDS), _SXID_WORDS[0]), "times": Parameter(whole(1, 1000), 1.0)},
        "SXids of an NVSwitch in the kernel log: `times` at each onset, called what `words` is.",
    ),
    "ecc": FaultKind(
        _ON_GPU, {"corrected": _ZERO, "corrected_rate": _ZERO, "uncorrected": _ZERO, "uncorrected_rate": _ZERO},
        "ECC errors: a number at each onset, and a rate per second.",
    ),
    "row-remap": FaultKind(
        _ON_GPU,
        {"correctable": _ZERO, "uncorrectable": Parameter(number, 1.0), "pending": Parameter(flag, 1.0),
         "failure": Parameter(flag, 0.0)},
        "Rows remapped at each onset; pending or failed while the fault lasts.",
    ),
    "clique": FaultKind(
        _ON_GPU, {"clique": Parameter(whole(0, 255), 1.0)},
        "The GPU is in another clique of its NVLink domain. Only machines whose domain spans nodes start in clique 0.",
    ),
    "nvlink-down": FaultKind(("gpu", "link"), {}, "The link is inactive."),
    "nvlink-errors": FaultKind(
        ("gpu", "link"), {"type": Parameter(choice(LINK_ERROR_TYPES), "crc"), "rate": _ZERO, "burst": _ZERO},
        "Errors of the link: `burst` at each onset, `rate` a second.",
    ),
    "pcie": FaultKind(
        _ON_GPU,
        {"width": Parameter(whole(1, 16), 8.0), "generation": Parameter(whole(1, 6), 5.0), "replays": _ZERO,
         "replay_rate": _ZERO},
        "The PCIe link is narrower, slower or retransmits.",
    ),
    "ib-down": FaultKind(_ON_PORT, {}, "The port is down and carries nothing; with `repeat`, it flaps."),
    "ib-errors": FaultKind(
        _ON_PORT, {"counter": Parameter(_PORT_COUNTERS, REQUIRED), "rate": _ZERO, "burst": _ZERO},
        "A counter of the port grows by `burst` at each onset and `rate` per second.",
    ),
    "ib-share": FaultKind(
        _ON_PORT, {"share": Parameter(ratio, REQUIRED)},
        "The port carries only `share` of its traffic; the job does not notice.",
    ),
    "ib-rate": FaultKind(_ON_PORT, {"rate": Parameter(bandwidth, REQUIRED)}, "The link trained to a lower rate."),
    "light-loss": FaultKind(
        _ON_OPTIC,
        {"loss": Parameter(quantity({"dB": 1.0}, "6dB", high=8.0), REQUIRED), "ramp": Parameter(duration, 0.0),
         "lane": Parameter(whole(0, LANES), 0.0)},
        "The module receives `loss` decibels less light on `lane` (0: on all), lost over `ramp`, and errors follow.",
    ),
    "module-swap": FaultKind(
        _ON_OPTIC, {"out": Parameter(span, 30.0)},
        "The module is taken out at each onset, and after `out` one with another serial number is in its place.",
    ),
    "leak": FaultKind(
        ("detector",), {"state": Parameter(choice(LEAK_STATES[1:]), "critical")},
        "The detector says so; `unavailable` is one that cannot be read.",
    ),
    "pump-failure": FaultKind(
        ("pump",), {},
        "A pump of the rack's distribution unit fails; without any, coolant stands still and all GPUs overheat.",
    ),
    "feed-lost": FaultKind(
        ("feed",), {}, "The rack's power shelves on the feed have no input, and those on the other carry the rack."
    ),
    "supply-failure": FaultKind(("shelf",), {}, "A power supply of this power shelf of the rack fails."),
    "reservoir-low": FaultKind((), {}, "The reservoir of the rack's distribution unit is low."),
    "humid-air": FaultKind(
        (), {"humidity": Parameter(ratio, REQUIRED)},
        "The air at the rack's distribution unit has this relative humidity.",
    ),
    "coolant-slow": FaultKind(
        (), {"flow": Parameter(quantity({"%": 0.01}, "0.75 or 75%", low=0.05, high=1.0), REQUIRED)},
        "Only `flow` of the coolant flows, which returns warmer; the GPUs stay as they are.",
    ),
    "coolant-warm": FaultKind(
        (), {"degrees": Parameter(degrees, REQUIRED)},
        "The coolant comes in so much warmer, and all GPUs get warmer with it.",
    ),
    "node-power": FaultKind(
        (), {"watts": Parameter(watts, REQUIRED), "ramp": Parameter(duration, 0.0)},
        "The node draws more power besides its GPUs, rising over `ramp`.",
    ),
    "meter-lost": FaultKind((), {}, "The node's power meter does not answer."),
    "missing": FaultKind(
        _ON_EITHER, {"metric": Parameter(_SPOILABLE, REQUIRED), "reason": Parameter(_REASONS, "unsupported")},
        "The metric is replaced by a gap.",
    ),
    "sentinel": FaultKind(
        _ON_EITHER, {"metric": Parameter(_SPOILABLE, REQUIRED), "value": Parameter(choice(SENTINELS), "nan")},
        "An implausible value: nan, inf, huge (1e19) or negative (-1).",
    ),
    "counter-back": FaultKind(
        _ON_EITHER, {"metric": Parameter(_COUNTERS, REQUIRED), "by": Parameter(quantity({}, "1e6", low=1e-9), 1e6)},
        "A counter reads too low by `by`.",
    ),
    "reading": FaultKind(
        ("gpu|port|optic",),
        {"metric": Parameter(_SETTABLE, REQUIRED), "value": Parameter(_ANY, REQUIRED), "label": Parameter(text, "")},
        "The metric reads `value`: in all its series, or in those with `label` as the value of a label.",
    ),
}  # fmt: skip
