"""The reference of all metrics, as Markdown, generated from the catalogue."""

from agent.catalogue import SECTIONS, with_statistics
from agent.catalogue.groups import Profile, profile_of
from agent.model import Metric, Shown
from exporters.compatibility import PROFILES
from exporters.compatibility.foreign_names import MHZ, MIB, MILLI, NANO, PERCENT, ForeignProfile, Term

_INTRODUCTION = """\
# Metrics

<!-- Generated from the catalogue by `coldplate render metrics`. Do not edit. -->

```
curl -s localhost:19400/metrics | grep coldplate_gpu_power_watts
coldplate_gpu_power_watts{gpu="0",uuid="GPU-68ae06f1-..."} 687.2
```

Every metric that coldplate can expose, and the origin of its value. A metric that a device does not offer
has no series: never 0, and never a placeholder. `coldplate_metric_missing` shows which are absent, and why.

* **Type** as exposed; a *state* is a gauge of 0 or 1, an *info* is always 1 and carries its information in labels.
* **Lane** is how often the value is read: `fast`, `slow` and `cold` are the periods under `sampling` in the
  configuration (1 s, 15 s and 60 s by default), `event` is when it happens.
* **Origin**: several sources are alternatives (the first that a device supports is used), or one for each label value.
* **Profile**: the smallest that shows it: `lean`, `default` or `full`. A `counted` one shows each series from its first
  error on in the default profile (a state while it is 1), and from the start in the full one. How many series that
  makes, and how to switch groups off: [configuration.md](configuration.md#how-many-series).
* **Also as**: the name of the same value in another exporter, and how to convert it to coldplate's.
"""


_HEAD = """\
## {}

Group `{}`.

| Name | Type | Unit | Labels | Meaning | Origin | Lane | Profile | Also as |
|---|---|---|---|---|---|---|---|---|"""


def render() -> str:
    """Return docs/metrics.md."""
    lines = [_INTRODUCTION]
    for word, title, rows in SECTIONS:
        lines += [_HEAD.format(title, word), *map(_line, with_statistics(rows)), ""]
    return "\n".join(lines)


def _line(row: Metric) -> str:
    profile = profile_of(row)
    cells = (
        f"`{row.name}`",
        row.kind.value,
        row.unit.value,
        ", ".join(f"`{name}`" for name in row.label_names),
        row.help,
        ", ".join(dict.fromkeys(map(str, row.origin))),
        row.lane.value,
        row.shown.value if profile is Profile.DEFAULT and row.shown is Shown.COUNTED else profile.word,
        _foreign_names(row),
    )
    return "| " + " | ".join(cell.replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"


_FACTORS = {
    1.0: "the same value",
    PERCENT: "percent; divide it by 100",
    MILLI: "millijoules; divide it by 1,000",
    NANO: "nanoseconds; divide it by 1,000,000,000",
    MHZ: "MHz; multiply it by 1,000,000",
    MIB: "MiB; multiply it by 1,048,576",
}
"""Another exporter's unit by the factor from ours to theirs, and the way back, with which a query is rewritten."""


def _foreign_names(row: Metric) -> str:
    return "<br>".join(
        _also_as(row, profile, name.name, term)
        for profile in PROFILES.values()
        for name in profile.names
        for term in (*name.terms, *name.divisor)
        if term.row == row.name and (term is name.simple or term.rate)
    )


def _also_as(row: Metric, profile: ForeignProfile, name: str, term: Term) -> str:
    which = ", ".join(f"{label} {value}" for label, value in zip(row.labels, term.labels, strict=False))
    how = "its growth in a second" if term.rate else _FACTORS[term.factor]
    return f"`{name}` ({profile.word}{f', {which}' if which else ''}): {how}"
