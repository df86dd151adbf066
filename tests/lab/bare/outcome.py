"""What came of one place, and the table of all."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

CANNOT_BE_HAD = (
    # (what a test that was left out says, why it could not be had)
    (r"this user may not read the kernel log", "dmesg_restrict keeps an ordinary user from the kernel log"),
    (r"grafana-foundation-sdk .* Python 3\.10", "its releases begin with Python 3.11"),
    (r"(zsh|fish) is not installed", "a shell looks for its functions below /usr, where one that is unpacked has none"),
    (r"(mandoc|groff) is not installed", "not brought: man pages are formatted where somebody has it"),
    (r"PyTorch is not installed", "hundreds of megabytes for one test of its calls on a processor"),
    (r"pyarrow is not installed", "fifty megabytes for one test of one form of export"),
)  # fmt: skip
COLUMNS = ("suite", "user", "Python", "passed", "failed", "skipped", "seconds", "")


@dataclass
class Outcome:
    """One line of the table."""

    suite: str
    user: str
    python: str = "?"
    passed: int = 0
    failed: int = 0
    alone: list[str] = field(default_factory=list)
    """What failed beside other tests and passed when it was run again alone: a test that a busy machine breaks."""
    skips: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, suite: str, user: str, out: Path, touched: list[str]) -> Outcome:
        """From what `inside.py` and pytest wrote."""
        outcome = cls(suite, user)
        try:
            result = json.loads((out / "result.json").read_text())
            report = ET.parse(out / "junit.xml")
        except (OSError, ValueError, ET.ParseError) as error:
            logs = [each for each in (out / "place.log", out / "set-up.log", out / "test.log") if each.exists()]
            words = "\n".join(each.read_text(errors="replace")[-2000:] for each in logs)
            outcome.wrong.append(f"no result ({error}):\n{words}")
            return outcome
        outcome.python, outcome.seconds = result["python"], result["seconds"]
        alone = _passed(out / "alone.xml")
        for case in report.iter("testcase"):
            outcome._count(case, alone)
        outcome.wrong += [each for each in (result["run"], result["again"]) if each]
        outcome.wrong += [f"touched outside the checkout: {each}" for each in touched]
        outcome.wrong += [f"left out, though it could be had: {each}" for each in outcome.skips if not excused(each)]
        if result["status"] != 0 and not outcome.failed and not outcome.alone:
            outcome.wrong.append(f"make test ended with {result['status']}: {(out / 'test.log').read_text()[-2000:]}")
        if not outcome.passed:
            outcome.wrong.append("no test passed")
        return outcome

    def _count(self, case: ET.Element, alone: AbstractSet[str]) -> None:
        name = _name(case)
        skipped = case.find("skipped")
        broken = _broken(case)
        if broken is not None and name in alone:
            self.passed += 1
            self.alone.append(name)
        elif broken is not None:
            self.failed += 1
            self.wrong.append(f"failed: {name}: {(broken.get('message') or '').splitlines()[:1]}")
        elif skipped is not None:
            self.skips[skipped.get("message") or ""] += 1
        else:
            self.passed += 1

    @property
    def good(self) -> bool:
        return not self.failed and not self.wrong

    def words(self) -> str:
        alone = (f"FAILED BESIDE OTHER TESTS, and passed alone: {name}" for name in self.alone)
        left_out = (f"left out {count}: {reason}" for reason, count in self.skips.items())
        return "\n".join([*self.wrong, *alone, *left_out])


def _name(case: ET.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"


def _broken(case: ET.Element) -> ET.Element | None:
    return case.find("failure") if case.find("failure") is not None else case.find("error")


def _passed(path: Path) -> set[str]:
    """The tests that passed in a second run, if there was one."""
    try:
        cases = list(ET.parse(path).iter("testcase"))
    except (OSError, ET.ParseError):
        return set()
    return {_name(case) for case in cases if _broken(case) is None and case.find("skipped") is None}


def excused(reason: str) -> bool:
    return any(re.search(pattern, reason) for pattern, _ in CANNOT_BE_HAD)


def table(outcomes: Sequence[Outcome]) -> str:
    """All places, one a line."""
    rows = [COLUMNS]
    for each in outcomes:
        skipped = str(sum(each.skips.values()))
        rows.append((each.suite, each.user, each.python, str(each.passed), str(each.failed), skipped,
                     f"{each.seconds:.0f}", "good" if each.good else "NOT good"))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    reasons = sorted({reason for each in outcomes for reason in each.skips})
    return "\n".join([*lines, *(f"left out: {reason}" for reason in reasons)])
