"""The soak's table, as text for a terminal and as Markdown in docs/dev/reliability.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.lab.drill.reliability import DOCUMENT, put_between
from tests.lab.soak.real_time import Soaked
from tests.lab.soak.trend import Trend

BEGINS, ENDS = "<!-- the soak {name} writes from here -->", "<!-- the soak {name} writes to here -->"
HEAD = ("figure", "when it began to count", "growth", "limit", "")


def rows(soaked: Soaked) -> Iterator[tuple[str, ...]]:
    """One figure after the other, in the order of HEAD; then what else went wrong."""
    for trend in soaked.trends:
        yield _row(trend, soaked.warm)
    for trouble in soaked.troubles:
        yield (trouble, "", "", "", "**missed**")


def _row(trend: Trend, warm: float) -> tuple[str, ...]:
    samples = trend.after(warm)
    first = trend.show(samples[0][1]).lstrip("+") if samples else "-"
    limit = "" if trend.limit is None else f"< {trend.show(trend.limit).lstrip('+')}"
    verdict = "" if trend.limit is None else "**missed**" if trend.missed(warm) else "met"
    return (trend.what, first, trend.show(trend.growth(warm)), limit, verdict)


def title(name: str, soaked: Soaked) -> str:
    return f"{soaked.seconds:,.0f} s {name}; counted from {soaked.warm:,.0f} s on; {soaked.told}"


def plain(name: str, soaked: Soaked) -> str:
    """The table for a terminal."""
    table = [HEAD, *rows(soaked)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEAD))]
    lines = (
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip().replace("**", "")
        for row in table
    )
    return "\n".join((title(name, soaked), *lines))


def markdown(name: str, soaked: Soaked) -> str:
    """The table for a document."""
    table = [HEAD, ("---",) * len(HEAD), *((row[0].strip(), *row[1:]) for row in rows(soaked))]
    return f"{title(name, soaked)}:\n\n" + "".join(f"| {' | '.join(row)} |\n" for row in table)


def write(name: str, soaked: Soaked, machine: str, document: Path = DOCUMENT) -> None:
    """Put the table in the place of the one of the same name. Raises ValueError where its marks are missing."""
    begins, ends = (mark.format(name=name) for mark in (BEGINS, ENDS))
    put_between(document, begins, ends, f"{machine}\n\n{markdown(name, soaked)}")
