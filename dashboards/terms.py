"""What the catalogue's names, kinds and units are called in Grafana: titles, units, legends.

It handles only names, and makes no queries.
"""

from __future__ import annotations

import re

from agent.catalogue import BY_NAME
from agent.model import Backend, Gpu, IbPort, Kind, Metric, NvLink, Rack, Unit

UNITS = {
    Unit.CELSIUS: "celsius",
    Unit.WATTS: "watt",
    Unit.JOULES: "joule",
    Unit.BYTES: "bytes",
    Unit.SECONDS: "s",
    Unit.HERTZ: "hertz",
    Unit.LITERS: "litre",
    Unit.PASCALS: "pressurepa",
    Unit.AMPERES: "amp",
    Unit.RATIO: "percentunit",
    Unit.NONE: "short",
}
PER_SECOND = {"joule": "watt", "bytes": "Bps", "s": "percentunit", "short": "cps"}
"""The unit of a rate: joules a second are watts, seconds a second a share of the time."""

TIMESTAMP = "dateTimeAsIso"

_SPELLING = {
    "cpu": "CPU", "cpus": "CPUs", "dram": "DRAM", "ecc": "ECC", "gpu": "GPU", "gpus": "GPUs", "id": "",
    "infiniband": "InfiniBand", "nvlink": "NVLink", "nvswitch": "NVSwitch", "pcie": "PCIe", "rapl": "RAPL", "sm": "SM",
    "sxid": "SXid", "vl15": "VL15", "xid": "XID",
}  # fmt: skip
_ENDINGS = ("_bytes_per_second", "_celsius", "_watts", "_joules", "_bytes", "_seconds", "_hertz", "_ratio", "_info")
_IDENTITY = {Gpu: ("GPU {{gpu}}",), NvLink: ("GPU {{gpu}} link {{link}}",), IbPort: ("{{device}}/{{port}}",),
             Rack: ("{{rack}}",), Backend: ("{{backend}}",)}  # fmt: skip
_SHOWN = {"instance": "{{instance}}", "gpu": "GPU {{gpu}}", "link": "link {{link}}", "xid": "XID {{xid}}", "uuid": ""}


def title_of(name: str) -> str:
    """The name in words: coldplate_gpu_sm_active_ratio is GPU SM active."""
    stem = name.removeprefix("coldplate_").removesuffix("_total")
    stem = stem.split(":")[1] if ":" in stem else stem
    for ending in _ENDINGS:
        stem = stem.removesuffix(ending)
    words = [_SPELLING.get(word, word) for word in stem.split("_")]
    text = " ".join(word for word in words if word)
    return text[0].upper() + text[1:]


def unit_of(name: str) -> str:
    """Grafana's unit for the values of a metric or a recorded series."""
    bare = name.split(":")[1] if ":" in name else name
    if bare.endswith("_timestamp_seconds"):
        return TIMESTAMP
    if bare.endswith("_bytes_per_second"):
        return "Bps"
    row = BY_NAME.get(name)
    if row is not None:
        return UNITS[row.unit]
    for unit, shown in UNITS.items():
        if unit is not Unit.NONE and bare.endswith(f"_{unit.value}"):
            return shown
    return "short"


def unit_of_query(expr: str, name: str) -> str:
    """Grafana's unit for the result of a query about that metric."""
    unit = unit_of(name)
    if re.match(r"\s*(count|changes)\b", expr):
        return "short"
    return PER_SECOND.get(unit, unit) if re.search(r"\b(i?rate|deriv)\(", expr) else unit


def legend_of(row: Metric, pinned: frozenset[str]) -> str:
    """A legend that distinguishes a series of the metric from others, on a board where some labels have one value."""
    parts = ["{{instance}}"] if "instance" not in pinned and row.entity is not Rack else []
    if row.entity is not Rack or "rack" not in pinned:
        parts += _IDENTITY.get(row.entity, ())
    parts += [f"{{{{{label}}}}}" for label in row.labels if label not in pinned]
    return " ".join(parts)


def legend_by(labels: tuple[str, ...], pinned: frozenset[str]) -> str:
    """The legend of a query that is aggregated by those labels."""
    return " ".join(filter(None, (_SHOWN.get(each, f"{{{{{each}}}}}") for each in labels if each not in pinned)))


def is_state(name: str) -> bool:
    """Whether the values of a metric are codes, most often 0 and 1."""
    return name in BY_NAME and BY_NAME[name].kind is Kind.STATE
