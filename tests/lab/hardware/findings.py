"""What the hardware checks found: a verdict for each check, tables to read, and a report as Markdown or JSON.

A check that did not run is SKIPPED with its reason and never counts as well. MEASURED is a number without
a judgement. Nothing here reads a clock or a device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import partialmethod

from tests.lab.bench.report import markdown


class Verdict(Enum):
    OK = "ok"
    FAILED = "FAILED"
    SKIPPED = "skipped"
    MEASURED = "measured"


@dataclass(frozen=True)
class Check:
    name: str
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Table:
    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class Section:
    step: str
    title: str
    checks: list[Check] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)

    def add(self, verdict: Verdict, name: str, text: str) -> None:
        self.checks.append(Check(name, verdict, text))

    failed = partialmethod(add, Verdict.FAILED)
    skipped = partialmethod(add, Verdict.SKIPPED)
    measured = partialmethod(add, Verdict.MEASURED)

    def judge(self, name: str, good: bool, text: str) -> None:
        self.add(Verdict.OK if good else Verdict.FAILED, name, text)


STAND_IN = "A STAND-IN LIBRARY ANSWERED, NO REAL GPU: this shows that the checks run, and nothing about hardware."


@dataclass
class Report:
    """Everything that one run found, and what it ran on. `scrub` takes identifiers out of the text."""

    provenance: dict[str, str] = field(default_factory=dict)
    stand_in: bool = False
    sections: list[Section] = field(default_factory=list)
    scrub: Callable[[str], str] = str

    def add(self, step: str, title: str) -> Section:
        self.sections.append(Section(step, title))
        return self.sections[-1]

    def having(self, verdict: Verdict) -> list[str]:
        """The checks that ended so, each with its step."""
        found = ((section, check) for section in self.sections for check in section.checks)
        return [f"{check.name} ({section.step})" for section, check in found if check.verdict is verdict]

    def summary(self) -> str:
        """One sentence; skipped checks are always named as such."""
        counts = {verdict: len(self.having(verdict)) for verdict in Verdict}
        text = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
        return f"{sum(counts.values())} checks: {text}" if text else "no check ran"

    def markdown(self) -> str:
        parts = ["## Hardware checks", *([f"**{STAND_IN}**"] if self.stand_in else [])]
        parts += [markdown(("", ""), self.provenance.items()), f"Result: **{self.summary()}**"]
        for section in self.sections:
            checks = [f"- **{check.verdict.value}** {check.name}: {check.text}" for check in section.checks]
            parts += [f"### {section.title}", "\n".join(checks)]
            for table in section.tables:
                cells = ([each.replace("|", "\\|").replace("\n", " ") for each in row] for row in table.rows)
                parts += [f"{table.title}:", markdown(table.header, cells)]
        return self.scrub("\n\n".join(part.strip() for part in parts) + "\n")

    def json(self) -> str:
        told = {"provenance": self.provenance, "stand_in": self.stand_in, "summary": self.summary(),
                "sections": [asdict(section) for section in self.sections]}  # fmt: skip
        return self.scrub(json.dumps(told, indent=1, ensure_ascii=False, default=lambda verdict: verdict.value) + "\n")
