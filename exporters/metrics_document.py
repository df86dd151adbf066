"""The reference of all metrics, as Markdown, generated from the catalogue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType

from agent.catalogue import ROLLING, agent, gpu, infiniband, jobs, links, node, rack
from agent.model import Alias, Backend, Gpu, IbPort, Lane, Metric, Node, NvLink, Rack

_MODULES: tuple[tuple[str, ModuleType], ...] = (
    ("GPU", gpu),
    ("Jobs", jobs),
    ("Links", links),
    ("InfiniBand", infiniband),
    ("Node", node),
    ("Rack", rack),
    ("Agent", agent),
)
_TITLES = {
    "POWER": "power, heat, clocks",
    "MIG": "MIG",
    "NVLINK": "NVLink",
    "PCIE": "PCIe",
    "FABRIC": "NVLink fabric",
}
_LANES = {Lane.FAST: "fast", Lane.SLOW: "slow", Lane.COLD: "cold", Lane.EVENT: "event"}
_EXAMPLES = (Node(), Gpu("", ""), NvLink(Gpu("", ""), 0), IbPort("", ""), Rack(""), Backend(""))
_ENTITY_LABELS = {type(example): tuple(name for name, _ in example.labels) for example in _EXAMPLES}

_INTRODUCTION = """\
# Metrics

<!-- Generated from the catalogue by `coldplate render metrics`. Do not edit. -->

Every metric that coldplate can expose, and the origin of its value. A metric that a device does not offer
has no series: never 0, and never a placeholder. `coldplate_metric_missing` shows which are absent, and why.

* **Type** as exposed; a *state* is a gauge of 0 or 1, an *info* is always 1 and carries its information in labels.
* **Lane** is how often the value is read: `fast`, `slow` and `cold` are the periods under `sampling` in the
  configuration (1 s, 15 s and 60 s by default), `event` is when it happens.
* **Origin**: several sources are alternatives (the first that a device supports is used), or one for each label value.
* **Shown**: by `default`; `counted`, each series from its first error on; or as a `detail`, on request. How to ask, and
  how many series that makes: [configuration.md](configuration.md#how-many-series).
* **Also as**: the name of the same value in another exporter, and how to convert it to ours.
"""


def render() -> str:
    """docs/metrics.md."""
    sections = [_section(title, rows) for title, rows in sections_of_catalogue()]
    return "\n".join([_INTRODUCTION, *sections])


def sections_of_catalogue() -> Iterator[tuple[str, Sequence[Metric]]]:
    """Every row of the catalogue once, under the title of its group, in the catalogue's order."""
    for title, module in _MODULES:
        rest = list(module.ROWS)
        for name, value in vars(module).items():
            if name == "ROWS" or name.startswith("_") or not _is_group(value, rest):
                continue
            yield f"{title}: {_TITLES.get(name, name.lower().replace('_', ' '))}", _with_statistics(value)
            rest = [row for row in rest if row not in value]
        if rest:
            yield title, _with_statistics(rest)


def _is_group(value: object, rows: Sequence[Metric]) -> bool:
    return isinstance(value, tuple) and len(value) > 0 and all(each in rows for each in value)


def _with_statistics(rows: Sequence[Metric]) -> list[Metric]:
    """The rows, each rolling one followed by its minimum, mean and maximum."""
    return [each for row in rows for each in (row, *ROLLING.get(row.name, ()))]


def _section(title: str, rows: Sequence[Metric]) -> str:
    lines = [
        f"## {title}",
        "",
        "| Name | Type | Unit | Labels | Meaning | Origin | Lane | Shown | Also as |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(row) for row in rows),
        "",
    ]
    return "\n".join(lines)


def _line(row: Metric) -> str:
    labels = labels_of(row)
    cells = (
        _code(row.name),
        row.kind.value,
        row.unit.value,
        ", ".join(_code(name) for name in labels),
        row.help,
        _origin(row),
        _LANES[row.lane],
        row.shown.value,
        "<br>".join(_alias(row, alias) for alias in row.aliases),
    )
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def labels_of(row: Metric) -> tuple[str, ...]:
    """Every label that a series of the row may have, in the order in which they are exposed."""
    return (*_ENTITY_LABELS[row.entity], *row.labels, *row.further_labels)


def _origin(row: Metric) -> str:
    return ", ".join(dict.fromkeys(str(binding) for binding in row.origin))


_FACTORS = {
    1.0: "the same value",
    100.0: "percent; ours is theirs / 100",
    1000.0: "millijoules; ours is theirs / 1,000",
    1e9: "nanoseconds; ours is theirs / 1,000,000,000",
    1e-6: "MHz; ours is theirs × 1,000,000",
    1 / 2**20: "MiB; ours is theirs × 1,048,576",
}
"""Another exporter's unit by the factor from ours to theirs, and the way back, with which a query is rewritten."""


def _alias(row: Metric, alias: Alias) -> str:
    which = ", ".join(f"{name} {value}" for name, value in zip(row.labels, alias.labels, strict=False))
    return f"{_code(alias.name)} ({alias.profile}{f', {which}' if which else ''}): {_FACTORS[alias.factor]}"


def _code(text: str) -> str:
    return f"`{text}`"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
