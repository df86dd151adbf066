"""What the hardware checks found: a verdict for each check, tables to read, and a report as Markdown or JSON.

A check that did not run is SKIPPED with its reason and never counts as well. MEASURED is a number without
a judgement. Nothing here reads a clock or a device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum


class Verdict(Enum):
    """How a check ended."""

    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"
    MEASURED = "measured"


@dataclass(frozen=True)
class Check:
    """One question that was put to the machine."""

    name: str
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Table:
    """Rows of text under a heading."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Section:
    """The findings of one step."""

    step: str
    title: str
    checks: list[Check] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def ok(self, name: str, text: str) -> None:
        self.checks.append(Check(name, Verdict.OK, text))

    def failed(self, name: str, text: str) -> None:
        self.checks.append(Check(name, Verdict.FAILED, text))

    def skipped(self, name: str, text: str) -> None:
        self.checks.append(Check(name, Verdict.SKIPPED, text))

    def measured(self, name: str, text: str) -> None:
        self.checks.append(Check(name, Verdict.MEASURED, text))

    def judge(self, name: str, good: bool, text: str) -> None:
        """OK or FAILED."""
        self.checks.append(Check(name, Verdict.OK if good else Verdict.FAILED, text))


STAND_IN = "A STAND-IN LIBRARY ANSWERED, NO REAL GPU: this shows that the checks run, and nothing about hardware."


@dataclass
class Report:
    """Everything that one run found, and what it ran on. `scrub` takes identifiers out of the text."""

    provenance: dict[str, str] = field(default_factory=dict)
    stand_in: bool = False
    sections: list[Section] = field(default_factory=list)
    scrub: Callable[[str], str] = str

    def add(self, step: str, title: str) -> Section:
        section = Section(step, title)
        self.sections.append(section)
        return section

    def count(self, verdict: Verdict) -> int:
        return sum(check.verdict is verdict for section in self.sections for check in section.checks)

    def summary(self) -> str:
        """One sentence; skipped checks are always named as such."""
        counts = {verdict: self.count(verdict) for verdict in Verdict}
        text = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
        return f"{sum(counts.values())} checks: {text}" if text else "no check ran"

    def markdown(self) -> str:
        """The report as Markdown, to be read or kept."""
        lines = ["## Hardware checks", ""]
        if self.stand_in:
            lines += [f"**{STAND_IN}**", ""]
        lines += ["| | |", "|---|---|", *(f"| {key} | {_cell(value)} |" for key, value in self.provenance.items()), ""]
        lines += [f"Result: **{self.summary()}**", ""]
        for section in self.sections:
            lines += [f"### {section.title}", ""]
            lines += [f"- **{check.verdict.value}** {check.name}: {check.text}" for check in section.checks]
            lines.append("")
            for table in section.tables:
                lines += [*_rows(table), ""]
        return self.scrub("\n".join(lines).rstrip() + "\n")

    def json(self) -> str:
        """The same as JSON."""
        told: Mapping[str, object] = {
            "provenance": self.provenance,
            "stand_in": self.stand_in,
            "summary": self.summary(),
            "sections": [
                {
                    "step": section.step,
                    "title": section.title,
                    "checks": [{"name": c.name, "verdict": c.verdict.value, "text": c.text} for c in section.checks],
                    "tables": [
                        {"title": t.title, "rows": [dict(zip(t.header, row, strict=True)) for row in t.rows]}
                        for t in section.tables
                    ],
                }
                for section in self.sections
            ],
        }
        return self.scrub(json.dumps(told, indent=1, ensure_ascii=False) + "\n")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _rows(table: Table) -> list[str]:
    """A table whose columns line up in plain text too."""
    cells = [[_cell(each) for each in row] for row in (table.header, *table.rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(table.header))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return [f"{table.title}:", "", *lines]


def quantile(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed (nearest rank). Raises ValueError without any."""
    if not values:
        raise ValueError("no values to take a quantile of")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
