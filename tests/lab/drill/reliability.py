"""The drill's table, as text for a terminal and as Markdown in docs/dev/reliability.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.lab.bench.processes import MIB
from tests.lab.bench.report import milliseconds
from tests.lab.bench.rig import ROOT
from tests.lab.drill.measured_fault import MeasuredFault

DOCUMENT = ROOT / "docs" / "dev" / "reliability.md"
BEGINS, ENDS = "<!-- the drill writes from here -->", "<!-- to here -->"
HEAD = ("fault", "expected", "noticed", "back", "whole", "memory", "p99", "lost", "")


def row(found: MeasuredFault) -> tuple[str, ...]:
    """One fault, in the order of HEAD."""
    if found.why:
        return (found.fault.title, found.fault.expected, "", "", "", "", "", "", f"NOT RUN: {found.why}")
    missed = found.missed()
    return (
        found.fault.title,
        found.fault.expected,
        _seconds(found.noticed),
        _seconds(found.back),
        _seconds(found.whole),
        f"{found.memory / MIB:+.1f} MiB",
        milliseconds(found.latency) if found.scrapes else "-",
        found.lost(),
        f"**missed**: {'; '.join(missed)}" if missed else "met",
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def markdown(measured: Sequence[MeasuredFault]) -> str:
    """All of them as a table."""
    rows = [HEAD, ("---",) * len(HEAD), *map(row, measured)]
    return "".join(f"| {' | '.join(each)} |\n" for each in rows)


def plain(measured: Sequence[MeasuredFault]) -> str:
    """All of them for a terminal, without what was expected."""
    rows = [(each[0], *each[2:]) for each in (HEAD, *map(row, measured))]
    widths = [max(len(each[column]) for each in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(each, [*widths, 0], strict=True)).rstrip().replace("**", "")
        for each in rows
    )


def write(measured: Sequence[MeasuredFault], machine: str, document: Path = DOCUMENT) -> None:
    """Put the table in the place of the one that is there. Raises ValueError where the marks are missing."""
    put_between(document, BEGINS, ENDS, f"{machine}\n\n{markdown(measured)}")


def put_between(document: Path, begins: str, ends: str, text: str) -> None:
    """Replace what stands between two marks. Raises ValueError unless each of them is there once."""
    whole = document.read_text()
    if whole.count(begins) != 1 or whole.count(ends) != 1:
        raise ValueError(f"{document}: the lines {begins!r} and {ends!r} say where the table goes: put them back")
    head, tail = whole.split(begins)[0], whole.split(ends)[1]
    document.write_text(f"{head}{begins}\n\n{text}\n{ends}{tail}")
