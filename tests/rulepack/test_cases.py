"""The pack's own unit tests: promtool and coldplate say the same of each file, and of deliberately broken copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
RULES = ROOT / "alerts" / "rules"

BREAKS: tuple[dict[str, dict[str, str]] | None, ...] = (
    {"exp_labels": {"severity": "none", "stray": "1"}},
    {"exp_annotations": {"summary": "Not so"}},
    None,
)
"""What else is expected of an alert; None: that it is not there."""


def break_first(document: dict[str, Any]) -> dict[str, Any]:
    """The first alert that a file expects, alone, as often as there are mistakes, each time with another one."""
    for test in document["tests"]:
        for check in test.get("alert_rule_test", ()):
            if check.get("exp_alerts"):
                first, *rest = check["exp_alerts"]
                broken = [
                    {**check, "exp_alerts": [] if more is None else [{**first, **merged(first, more)}, *rest]}
                    for more in BREAKS
                ]
                return {**document, "tests": [{**test, "alert_rule_test": broken, "promql_expr_test": []}]}
    raise AssertionError("no test of this file expects an alert")


def merged(alert: dict[str, Any], more: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {part: {**alert[part], **other} for part, other in more.items()}


of_each_file = pytest.mark.parametrize("path", CASES, ids=[path.name.partition(".")[0] for path in CASES])


def test_every_rule_file_has_its_cases() -> None:
    assert [path.name for path in CASES] == [f"{path.stem}.test.yml" for path in sorted(RULES.glob("*.yml"))]


@of_each_file
def test_both_say_that_all_is_well(path: Path, promtool: Any, coldplate: Any) -> None:
    assert (promtool("test", path), coldplate("test", path)) == (0, 0)


@of_each_file
def test_both_fail_each_mistake_in_a_copy(path: Path, tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    document = break_first(yaml.safe_load(path.read_text()))
    document["rule_files"] = [str((path.parent / name).resolve()) for name in document["rule_files"]]
    copy = tmp_path / path.name
    copy.write_text(yaml.safe_dump(document))
    name = document["tests"][0]["alert_rule_test"][0]["alertname"]
    assert promtool.failed(copy) == coldplate.failed(copy) == [name] * len(BREAKS)
