"""The queries of a board, and the titles, units and legends of metrics in Grafana.

A board writes `max by (gpu) (coldplate_gpu_power_watts)`; the matchers that its variables need are added here, for the
labels that each metric has. Queries are text here: the tests show that they parse.
"""

import re
from collections.abc import Mapping

from agent.catalogue import BY_NAME
from agent.model import Backend, Gpu, IbPort, Metric, NvLink, Rack, Unit
from dashboards.alert_thresholds import recorded_series

UNITS = {
    Unit.CELSIUS: "celsius",
    Unit.WATTS: "watt",
    Unit.JOULES: "joule",
    Unit.BYTES: "bytes",
    Unit.SECONDS: "s",
    Unit.HERTZ: "hertz",
    Unit.LITERS: "litre",
    Unit.PASCALS: "pressurepa",
    Unit.VOLTS: "volt",
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
_IDENTITY: dict[type, tuple[str, ...]] = {
    Gpu: ("GPU {{gpu}}",), NvLink: ("GPU {{gpu}} link {{link}}",), IbPort: ("{{device}}/{{port}}",),
    Rack: ("{{rack}}",), Backend: ("{{backend}}",),
}  # fmt: skip
_SHOWN = {"instance": "{{instance}}", "gpu": "GPU {{gpu}}", "link": "link {{link}}", "xid": "XID {{xid}}", "uuid": ""}


def title_of(name: str) -> str:
    """Return the name as a title: coldplate_gpu_sm_active_ratio is GPU SM active."""
    stem = name.removeprefix("coldplate_").removesuffix("_total")
    stem = stem.split(":")[1] if ":" in stem else stem
    for ending in _ENDINGS:
        stem = stem.removesuffix(ending)
    words = [_SPELLING.get(word, word) for word in stem.split("_")]
    text = " ".join(word for word in words if word)
    return text[0].upper() + text[1:]


def unit_of(name: str) -> str:
    """Return Grafana's unit for the values of a metric or a recorded series."""
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
    """Return Grafana's unit for the result of a query about that metric.

    Conditions (`and`, `unless`) choose series, and change no unit.
    """
    unit = unit_of(name)
    if re.match(r"\s*(count|changes)\b", expr):
        return "short"
    measured = re.split(r"\b(?:and|unless)\b", expr)[0]
    return PER_SECOND.get(unit, unit) if re.search(r"\b(i?rate|deriv)\(", measured) else unit


def legend_of(row: Metric, pinned: frozenset[str]) -> str:
    """Return a legend that distinguishes series of the metric; the labels in `pinned` have one value."""
    parts = ["{{instance}}"] if "instance" not in pinned and row.entity is not Rack else []
    if row.entity is not Rack or "rack" not in pinned:
        parts += _IDENTITY.get(row.entity, ())
    parts += [f"{{{{{label}}}}}" for label in row.labels if label not in pinned]
    return " ".join(parts)


TOKEN = re.compile(r'"[^"]*"|\$?\{\w[^}]*\}|\$\w+|[a-zA-Z_:][a-zA-Z0-9_:]*')
BUILTIN = {"up": ("cluster", "instance")}
"""Series that Prometheus itself makes, with the labels by which they can be narrowed."""
ACTIVE_ALERTS = "cluster:alert:active"
"""The firing alerts of agents and servers that no other alert inhibits, with their summaries."""
_LEVELS = {
    "cluster": ("cluster",), "node": ("cluster", "instance"), "gpu": ("instance", "gpu"), "port": ("instance",),
    "job": ("instance", "job_id"), "rack": ("rack",), "feed": ("rack",),
}  # fmt: skip
_BY = re.compile(r"\bby \(([^)]*)\)")
_BARE = re.compile(r"\s*(?:(?:i?rate|increase|changes|\w+_over_time)\()?(coldplate_\w+)(\{[^}]*\})?(?:\[[^\]]*\]\))?"
                   r"(?:\s*(?:==|!=|>|<)\s*\d+)?\s*")  # fmt: skip


def is_series(token: str) -> bool:
    """Return whether a token names a series that exists: in the catalogue, in the rule files, or Prometheus's own."""
    return token in BY_NAME or token in recorded_series() or token in BUILTIN


def names_in(expr: str) -> list[str]:
    """Return the series that a query reads, in order."""
    return [each[0] for each in TOKEN.finditer(expr) if is_series(each[0])]


def labels_of(name: str) -> tuple[str, ...]:
    """Return the labels of a series by which a board may narrow it."""
    row = BY_NAME.get(name)
    if row is not None:
        own = ("gpu",) if row.entity in (Gpu, NvLink) else ("rack",) if row.entity is Rack else ()
        return ("cluster", "instance", *own, *(each for each in row.labels if each == "job_id"))
    if name in BUILTIN:
        return BUILTIN[name]
    if name == ACTIVE_ALERTS:
        return ("cluster", "instance")
    level = _LEVELS[name.split(":")[0]]
    return (*level, "job_id") if name.startswith("gpu:") and _knows_job(name) else level


def _knows_job(name: str) -> bool:
    """Return whether a recorded series of GPUs has the label of their job, by its query or the series in it."""
    expr = recorded_series().get(name, "")
    return "job_id" in expr or any(_knows_job(each) for each in names_in(expr) if each in recorded_series())


def narrowed(expr: str, matchers: Mapping[str, str]) -> str:
    """Return the query with each series narrowed by the matchers for the labels that it has."""
    made, last = [], 0
    for token in TOKEN.finditer(expr):
        if not is_series(token[0]) or expr[token.end() :].lstrip()[:1] == "(":
            continue
        rest = expr[token.end() :]
        given = rest[1 : rest.index("}")] if rest.startswith("{") else ""
        conditions = [
            matchers[label]
            for label in labels_of(token[0])
            if label in matchers and not re.search(rf"(^|[\s,]){label}\s*[=!]", given)
        ]
        end = token.end() + (len(given) + 2 if rest.startswith("{") else 0)
        inside = ", ".join(filter(None, [*conditions, given]))
        made += [expr[last : token.end()], f"{{{inside}}}" if inside else ""]
        last = end
    return "".join((*made, expr[last:]))


def legend_for(expr: str, title: str, pinned: frozenset[str]) -> str:
    """Return a legend made from the labels of the query's result that are not pinned, or else the title."""
    bare = _BARE.fullmatch(expr)
    if bare is not None:
        return legend_of(BY_NAME[bare[1]], pinned) or title
    by = _BY.search(expr)
    labels = [each.strip() for each in by[1].split(",")] if by else []
    shown = (_SHOWN.get(each, f"{{{{{each}}}}}") for each in labels if each not in pinned)
    return " ".join(filter(None, shown)).replace("{{device}} {{port}}", _IDENTITY[IbPort][0]) or title


RATE = "[$__rate_interval]"
HARMFUL = 'reason!~"gpu_idle|low_utilization|sw_power_cap"'
"""Reasons that cost work: not those of an idle GPU, nor the power cap at which a busy GPU lives."""
THROTTLED = f"clamp_max(rate(coldplate_gpu_throttle_seconds_total{{{HARMFUL}}}[$__rate_interval]), 1)"
"""Share of time in which each of them held a GPU down; rate() extrapolates, so it may exceed 1 without the limit."""
FORECAST = (
    "(rack:time_to_breach_seconds:linear5m and on (rack) rack:power_ratio:max > 0.7"
    " and on (rack) deriv(rack:power_watts:mean5s[5m]) * 300 > 2.8 * stddev_over_time(rack:power_watts:mean5s[5m]))"
)
"""When a rack reaches its budget if its power keeps rising.

As RackPowerBreachSoon, only from 70% of the budget on. And only if the line explains at least two thirds of how power
varied in these 5 minutes (a perfect line rises by 3.5 standard deviations): the noise of a steady load has a slope as
well, half of the time towards the budget.
"""
BREACH = f"({FORECAST} or (rack:power_ratio:max > 1) * 0)"
"""The same; 0 if the rack is already over its budget."""
OVER: tuple[tuple[float, str, str], ...] = ((0, "already over", "red"),)
"""How a rack that is over its budget is shown where others have the time until they reach it."""

AGENT = (
    '(label_replace(topk(1, up{job=~".*coldplate.*", instance!=""}) >= bool 0, "agent", "$1", "instance", "(.+)")'
    " or on () vector(1))"
)
"""1 with the label `agent`, the address of an agent that is up if one is: every agent has all runbooks."""

ITS_GPUS = 'coldplate_gpu_job_info{mig="0"}'
"""Whole GPUs of the job: the agent names no job on one that several hold."""


def held(since: str) -> str:
    """Return the job's GPUs, and those that it held when they were lost: the driver no longer reports who uses them."""
    return (
        f"max by (instance, gpu) ({ITS_GPUS} or "
        f"last_over_time({ITS_GPUS}[{since}]) and on (instance, gpu, uuid) coldplate_gpu_up == 0)"
    )


def alerts_of_job(since: str) -> str:
    """Return firing alerts about the job, its GPUs and its nodes: an alert about a GPU has no label of its job."""
    return (
        f'{ACTIVE_ALERTS}{{job_id="$job"}}'
        f' or {ACTIVE_ALERTS}{{job_id="", gpu!=""}} and on (instance, gpu) {held(since)}'
        f' or {ACTIVE_ALERTS}{{job_id="", gpu=""}} and on (instance) {held(since)}'
    )


def count_of(matching: str, among: str) -> str:
    """Return how many series match: 0 if there are others of their kind, and nothing if nothing is known of them."""
    return f"count({matching}) or 0 * count({among})"


def of_job(expr: str) -> str:
    """Return the GPU series of the GPUs that the job holds alone."""
    return f"({expr}) * on (instance, gpu, uuid) group_left () {ITS_GPUS}"


def in_rack(expr: str) -> str:
    """Return the node series of the nodes that belong to the rack."""
    return f"({expr}) and on (instance) coldplate_rack_nodes_expected"


def per_gpu(operator: str, expr: str) -> str:
    """Return one value for each GPU of a table."""
    return f"{operator} by (instance, gpu) ({expr})"
