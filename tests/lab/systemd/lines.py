"""What the checks in the machine say, line by line, until they are through."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

END = "CHECKS-END"
"""The line with which the checks say that they are through."""


@dataclass(slots=True)
class Report:
    """Lines by how they begin: `ok`, `FAIL`. `complete` says whether the checks came to their end."""

    lines: list[str] = field(default_factory=list)
    complete: bool = False

    def add(self, line: str) -> None:
        if line.startswith(END):
            self.complete = True
            return
        self.lines.append(line)
        print(line, flush=True)

    def count(self, word: str) -> int:
        return sum(line.startswith(word) for line in self.lines)

    @property
    def good(self) -> bool:
        return self.complete and self.count("FAIL") == 0 and self.count("ok") > 0


def follow(path: Path, patience: float, alive: Callable[[], bool]) -> Report:
    """Read the file as it grows, until its last line, its writer's end or `patience` seconds."""
    report = Report()
    until = time.monotonic() + patience
    at = 0
    while not report.complete:
        over = not alive() or time.monotonic() > until
        text = path.read_bytes()[at:] if path.exists() else b""
        whole = text.rpartition(b"\n")[0]
        for line in whole.decode(errors="replace").replace("\r", "").split("\n") if whole else ():
            report.add(line)
        at += len(whole) + 1 if whole else 0
        if over:
            break
        time.sleep(0.2)
    if not report.complete:
        print("FAIL the machine ended, or ran out of time, before the checks were through", file=sys.stderr)
    return report
