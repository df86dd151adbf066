"""The drill's table, as text for a terminal and as Markdown in docs/dev/reliability.md."""

from collections.abc import Sequence

from tests.lab.bench.processes import MIB
from tests.lab.bench.report import columns, markdown, milliseconds, put_between
from tests.lab.bench.rig import ROOT
from tests.lab.drill.measured_fault import MeasuredFault

DOCUMENT = ROOT / "docs" / "dev" / "reliability.md"
BEGINS, ENDS = "<!-- the drill writes from here -->", "<!-- to here -->"
HEAD = ("fault", "expected", "noticed", "back", "whole", "memory", "p99", "lost", "")


def row(found: MeasuredFault) -> tuple[str, ...]:
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


def plain(measured: Sequence[MeasuredFault]) -> str:
    return columns([(each[0], *each[2:]) for each in (HEAD, *map(row, measured))]).replace("**", "")


def write(measured: Sequence[MeasuredFault], machine: str) -> None:
    """Put the table in the place of the one that is there. Raises ValueError where the marks are missing."""
    put_between(DOCUMENT, BEGINS, ENDS, f"{machine}\n\n{markdown(HEAD, map(row, measured))}")
