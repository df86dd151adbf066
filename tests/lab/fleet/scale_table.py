"""The table of a scale study, in Markdown: what each number of nodes took, and which rules take longest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

SLOWEST = 12
SHARD = 6400
"""Nodes of the shard for which evaluation is judged."""
MIB = 2**20
Times = dict[tuple[str, str], float]
"""Processor seconds of an evaluation, by the rule's group and name; of an alert with several levels, of all of them."""


class Figures(NamedTuple):
    """What was measured with one number of nodes."""

    nodes: int
    samples: float
    series: int
    memory: int
    ingesting: float
    disk: float
    whole: Times
    shard: Times
    store_memory: int
    store_cpu: float
    scraper_memory: int
    scraper_cpu: float
    store_disk: float


def table(figures: Sequence[Figures], profile: str, load: float) -> str:
    """Three tables: the servers, the groups of rules, and the slowest rules."""
    sizes = " | ".join(f"{each.nodes:,} nodes" for each in figures)
    head = f"| | {sizes} |\n|---|{'---|' * len(figures)}\n"

    def row(what: str, tell: Callable[[Figures], str]) -> str:
        return f"| {what} | {' | '.join(tell(each) for each in figures)} |\n"

    return (
        f"Profile `{profile}`, each node scraped every 15 s. Load average of the machine at the end: {load:.1f}.\n\n"
        + head
        + row("samples a page", lambda it: f"{it.samples * 15 / it.nodes:.0f}")
        + row("samples a second", lambda it: f"{it.samples:,.0f}")
        + row("series of Prometheus, with what rules record", lambda it: f"{it.series:,}")
        + row("its memory, MiB", lambda it: f"{it.memory / MIB:,.0f}")
        + row("its memory, KiB a series", lambda it: f"{it.memory / 1024 / it.series:.1f}")
        + row("its log on disk, MiB after four minutes", lambda it: f"{it.disk / MIB:,.0f}")
        + row("processor of scraping, cores", lambda it: f"{it.ingesting:.2f}")
        + row("memory of VictoriaMetrics, MiB", lambda it: f"{it.store_memory / MIB:,.0f}")
        + row("processor of VictoriaMetrics, cores", lambda it: f"{it.store_cpu:.2f}")
        + row("memory of vmagent, MiB", lambda it: f"{it.scraper_memory / MIB:,.0f}")
        + row("processor of vmagent, cores", lambda it: f"{it.scraper_cpu:.2f}")
        + "\nProcessor seconds of one evaluation of each group. The last column is the last size, carried in "
        f"proportion to {SHARD:,} nodes.\n\n"
        + _groups("The whole pack", figures, lambda it: it.whole)
        + "\n"
        + _groups("A shard's rules", figures, lambda it: it.shard)
        + "\nThe slowest rules of both, with the last size:\n\n"
        + _slowest(figures[-1])
    )


def _groups(title: str, figures: Sequence[Figures], times: Callable[[Figures], Times]) -> str:
    sums: list[defaultdict[str, float]] = []
    for each in figures:
        spent: defaultdict[str, float] = defaultdict(float)
        for (group, _), took in times(each).items():
            spent[group] += took
            spent["all"] += took
        sums.append(spent)
    last, scale = sums[-1], SHARD / figures[-1].nodes
    lines = [f"| {title} | {' | '.join(f'{each.nodes:,}' for each in figures)} | {SHARD:,}, extrapolated |"]
    lines.append("|---|" + "---|" * (len(figures) + 1))
    for group in sorted(last, key=lambda name: -last[name]):
        cells = " | ".join(f"{spent[group]:.3f}" for spent in sums)
        lines.append(f"| `{group}` | {cells} | {last[group] * scale:.2f} |")
    return "\n".join(lines) + "\n"


def _slowest(figures: Figures) -> str:
    every = [(took, "whole", *rule) for rule, took in figures.whole.items()]
    every += [(took, "shard", *rule) for rule, took in figures.shard.items()]
    lines = ["| rule | of | seconds |", "|---|---|---|"]
    for took, kind, group, name in sorted(every)[-1 : -SLOWEST - 1 : -1]:
        lines.append(f"| `{name}` | {kind}, `{group}` | {took:.3f} |")
    return "\n".join(lines) + "\n"
