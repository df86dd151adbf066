"""What came of one place, and the table of all."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.lab.bench.report import columns

CANNOT_BE_HAD = (
    # (what a test that was left out says, why it could not be had)
    (r"this user may not read the kernel log", "dmesg_restrict keeps an ordinary user from the kernel log"),
    (r"grafana-foundation-sdk .* Python 3\.10", "its releases begin with Python 3.11"),
    (r"zsh is not installed", "a shell looks for its functions below /usr, where one that is unpacked has none"),
    (r"(mandoc|groff) is not installed", "not brought: man pages are formatted where somebody has it"),
    (r"this is no checkout", "the bare root gets the files that git lists, without the history"),
    (r"PyTorch is not installed", "hundreds of megabytes for one test of its calls on a processor"),
)
COLUMNS = (
    "suite",
    "user",
    "Python",
    "set-up s",
    ".venv MB",
    ".programs MB",
    "passed",
    "failed",
    "skipped",
    "seconds",
    "",
)


@dataclass
class Outcome:
    suite: str
    user: str
    python: str = "?"
    passed: int = 0
    failed: int = 0
    skips: Counter[str] = field(default_factory=Counter)
    set_up_seconds: float = 0.0
    megabytes: dict[str, int] = field(default_factory=dict)
    """Disk use of the folders that the set-up makes."""
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
        outcome.set_up_seconds, outcome.megabytes = result["set_up_seconds"], result["megabytes"]
        for case in report.iter("testcase"):
            outcome._count(case)
        outcome.wrong += [each for each in (result["run"], result["again"]) if each]
        outcome.wrong += [f"touched outside the checkout: {each}" for each in touched]
        outcome.wrong += [f"left out, though it could be had: {each}" for each in outcome.skips if not excused(each)]
        if result["status"] != 0 and not outcome.failed:
            outcome.wrong.append(f"make test ended with {result['status']}: {(out / 'test.log').read_text()[-2000:]}")
        if not outcome.passed:
            outcome.wrong.append("no test passed")
        return outcome

    def _count(self, case: ET.Element) -> None:
        skipped = case.find("skipped")
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        if broken is not None:
            self.failed += 1
            name = f"{case.get('classname')}::{case.get('name')}"
            self.wrong.append(f"failed: {name}: {(broken.get('message') or '').splitlines()[:1]}")
        elif skipped is not None:
            self.skips[skipped.get("message") or ""] += 1
        else:
            self.passed += 1

    @property
    def good(self) -> bool:
        return not self.failed and not self.wrong

    def words(self) -> str:
        left_out = (f"left out {count}: {reason}" for reason, count in self.skips.items())
        return "\n".join([*self.wrong, *left_out])


def excused(reason: str) -> bool:
    return any(re.search(pattern, reason) for pattern, _ in CANNOT_BE_HAD)


def table(outcomes: Sequence[Outcome]) -> str:
    rows: list[tuple[str, ...]] = [COLUMNS]
    for each in outcomes:
        sizes = (str(each.megabytes.get(folder, "?")) for folder in (".venv", ".programs"))
        counts = (str(count) for count in (each.passed, each.failed, sum(each.skips.values())))
        verdict = "good" if each.good else "NOT good"
        set_up, seconds = f"{each.set_up_seconds:.0f}", f"{each.seconds:.0f}"
        rows.append((each.suite, each.user, each.python, set_up, *sizes, *counts, seconds, verdict))
    reasons = sorted({reason for each in outcomes for reason in each.skips})
    return "\n".join([columns(rows), *(f"left out: {reason}" for reason in reasons)])
