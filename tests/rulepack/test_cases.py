"""The pack's own unit tests: promtool and coldplate say the same of each file, and of deliberately broken copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
RULES = ROOT / "alerts" / "rules"

BREAKS: dict[str, dict[str, Any]] = {
    "other labels expected": {"exp_labels": {"severity": "none", "stray": "1"}},
    "another summary expected": {"exp_annotations": {"summary": "Not so"}},
}
UNEXPECTED = "an alert not expected"


def break_first(document: dict[str, Any], broken: str) -> dict[str, Any]:
    """The first alert that a file expects, alone, with something else expected."""
    for test in document["tests"]:
        for check in test.get("alert_rule_test", ()):
            if check.get("exp_alerts"):
                changed = check["exp_alerts"][0]
                for part, other in BREAKS.get(broken, {}).items():
                    changed[part] = {**changed[part], **other}
                if broken == UNEXPECTED:
                    check["exp_alerts"] = []
                return {**document, "tests": [{**test, "alert_rule_test": [check]}]}
    raise AssertionError("no test of this file expects an alert")


of_each_file = pytest.mark.parametrize("path", CASES, ids=[path.name.partition(".")[0] for path in CASES])


def test_every_rule_file_has_its_cases() -> None:
    assert [path.name for path in CASES] == [f"{path.stem}.test.yml" for path in sorted(RULES.glob("*.yml"))]


@of_each_file
def test_both_say_that_all_is_well(path: Path, promtool: Any, coldplate: Any) -> None:
    assert (promtool("test", path), coldplate("test", path)) == (0, 0)


@pytest.mark.parametrize("broken", [*BREAKS, UNEXPECTED])
@of_each_file
def test_both_fail_on_a_broken_copy(path: Path, broken: str, tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    document = break_first(yaml.safe_load(path.read_text()), broken)
    document["rule_files"] = [str((path.parent / name).resolve()) for name in document["rule_files"]]
    copy = tmp_path / path.name
    copy.write_text(yaml.safe_dump(document))
    assert (promtool("test", copy), coldplate("test", copy)) == (1, 1)
