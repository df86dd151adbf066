"""The table of covered lines adds up, and what is below its floor is named."""

from __future__ import annotations

from pathlib import Path

import coverage

from tests.covered.__main__ import by_folder, judge, measured

FILES = {"agent/a.py": (10, 10), "agent/b.py": (10, 5), "agent/lib/c.py": (3, 3), "agent/lib/__init__.py": (0, 0)}


def test_lines_are_added_up_by_folder() -> None:
    assert by_folder(FILES) == {"agent": (20, 15), "agent/lib": (3, 3)}
    table, low = judge(FILES, floor=0.5, of_a_folder=0.5)
    assert [line.split() for line in table[1:]] == [
        ["agent", "20", "75.0%"], ["agent/lib", "3", "100.0%"], ["all", "23", "78.2%"]
    ]  # fmt: skip
    assert low == []


def test_what_is_below_its_floor_is_named() -> None:
    _, low = judge(FILES, floor=0.79, of_a_folder=0.76)
    assert [each.partition(" ")[0] for each in low] == ["agent:", "78.2%"]


def test_a_file_that_nothing_imported_counts(tmp_path: Path) -> None:
    files = measured(coverage.Coverage(data_file=str(tmp_path / "none")))
    able, run = files["agent/sampler/sampler.py"]
    assert (able > 100, run) == (True, 0)
