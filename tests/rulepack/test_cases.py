"""The pack's own unit tests: promtool and coldplate say the same of each file, and of deliberately broken copies."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
RULES = ROOT / "alerts" / "rules"

BREAKS = {
    "another severity expected": (r"severity: \"\w+\"", 'severity: "none"'),
    "another summary expected": (r"summary: '", "summary: 'Not so: "),
    "an alert not expected": (r"exp_alerts:\n(?: {4,}.*\n)+", "exp_alerts: []\n"),
    "another label expected": (r"(exp_labels: \{)", r'\1stray: "1", '),
}

SLOW = {"imbalance.test", "rack.test", "rack-state.test"}
FOR_SLOW = "another summary expected"
"""The one break of the file whose cases take seconds."""

of_each_file = pytest.mark.parametrize("path", CASES, ids=[path.name.partition(".")[0] for path in CASES])


def test_every_rule_file_has_its_cases() -> None:
    assert [path.name for path in CASES] == [f"{path.stem}.test.yml" for path in sorted(RULES.glob("*.yml"))]


@of_each_file
def test_both_say_that_all_is_well(path: Path, promtool: Any, coldplate: Any) -> None:
    assert (promtool("test", path), coldplate("test", path)) == (0, 0)


@pytest.mark.parametrize(
    ("path", "broken"),
    [(path, broken) for path in CASES for broken in BREAKS if path.stem not in SLOW or broken == FOR_SLOW],
    ids=lambda value: value.stem if isinstance(value, Path) else value,
)
def test_both_fail_on_a_broken_copy(path: Path, broken: str, tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    text = path.read_text().replace("../rules", str(RULES))
    pattern, replacement = BREAKS[broken]
    changed, count = re.subn(pattern, replacement, text, count=1)
    assert count == 1
    copy = tmp_path / path.name
    copy.write_text(changed)
    assert (promtool("test", copy), coldplate("test", copy)) == (1, 1)
