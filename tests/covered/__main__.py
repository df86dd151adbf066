"""What share of the product's lines the tests run through, by folder: `make coverage` has measured it.

Lines of daemons, workers and commands count, which are processes of their own. A process that is killed tells nothing.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import coverage

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("agent", "alerts", "dashboards", "exporters")
FLOOR = 0.90
"""Of all lines; a little less than what it is: 94.5 to 97 %, since a process that is killed while it writes what it ran
loses that."""
FLOOR_OF_A_FOLDER = 0.75
UNSEEN = frozenset({"dashboards/boards"})
"""Folders whose files are loaded by their path, under names that the measurement does not know."""

Lines = Mapping[str, tuple[int, int]]
"""By file, from the root: the lines that can be run, and those that were."""


def measured(data: coverage.Coverage) -> Lines:
    """Every file of the product, those that nothing imported as well."""
    found = {}
    for path in (path for part in PARTS for path in sorted((ROOT / part).rglob("*.py"))):
        _, lines, _, missing, _ = data.analysis2(str(path))
        found[str(path.relative_to(ROOT))] = (len(lines), len(lines) - len(missing))
    return found


def by_folder(files: Lines) -> dict[str, tuple[int, int]]:
    """The same by folder, without those that have no lines."""
    able: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for path, (lines, run) in files.items():
        folder = path.rpartition("/")[0]
        able[folder] += lines
        done[folder] += run
    return {folder: (able[folder], done[folder]) for folder in sorted(able) if able[folder]}


def judge(files: Lines, floor: float = FLOOR, of_a_folder: float = FLOOR_OF_A_FOLDER) -> tuple[list[str], list[str]]:
    """The table, and what is below its floor."""
    folders = by_folder(files)
    rows = [
        ("folder", "lines", "run"),
        *((name, str(able), share(able, done)) for name, (able, done) in folders.items()),
    ]
    able, done = (sum(column) for column in zip(*folders.values(), strict=True))
    rows.append(("all", str(able), share(able, done)))
    table = [f"{name:34}{lines:>8}{run:>8}" for name, lines, run in rows]
    low = [
        f"{name}: {share(lines, run)} of the lines are run by tests, and {of_a_folder:.0%} is the least"
        for name, (lines, run) in folders.items()
        if run < of_a_folder * lines and name not in UNSEEN
    ]
    if done < floor * able:
        low.append(f"{share(able, done)} of all lines are run by tests, and {floor:.0%} is the least")
    return table, low


def share(able: int, done: int) -> str:
    """Rounded down: 100% is all of them."""
    return f"{1000 * done // able / 10:.1f}%"


def say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def main() -> int:
    """1 where something is below its floor."""
    data = coverage.Coverage()
    data.load()
    table, low = judge(measured(data))
    say(table)
    say(low)
    return int(bool(low))


if __name__ == "__main__":
    sys.exit(main())
