"""The pack's own unit tests, by promtool as they are and by coldplate with the labels that a server adds.

On a server every series has the labels of its target, and so must every alert: who is told depends on them.
`test_server.py` compares both at many instants.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "alerts" / "tests").glob("*.yml"))
RULES = ROOT / "alerts" / "rules"

TARGET = {"cluster": "c1", "rack": "k1"}
OF_RACKS = re.compile("rack|breakers")
"""About racks: their series carry the rack that agents told themselves."""

BREAKS: tuple[dict[str, dict[str, str]] | None, ...] = (
    {"exp_labels": {"severity": "none", "stray": "1"}},
    {"exp_annotations": {"summary": "Not so"}},
    None,
)
"""What else is expected of an alert; None: that it is not there."""
BROKEN = "memory"
"""The file whose broken copies are compared in each run; those of the others before a release."""
SLOW = ("imbalance", "infiniband", "rack", "rack-equipment-drift", "thermal")
"""Files that take promtool three quarters of the time of all, before a release."""


def names(paths: list[Path]) -> list[str]:
    return [path.name.partition(".")[0] for path in paths]


def copied(path: Path) -> dict[str, Any]:
    """A file that may lie elsewhere."""
    document: dict[str, Any] = yaml.load(path.read_text(), yaml.CSafeLoader)
    document["rule_files"] = [str((path.parent / name).resolve()) for name in document["rule_files"]]
    return document


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


def of_a_target(series: str) -> str:
    """The series as a server stores it: with the target's labels, but for those that it has itself."""
    name, _, labels = series.partition("{")
    own = {label: value for label, value in TARGET.items() if f'{label}="' not in labels}
    added = ",".join(f'{label}="{value}"' for label, value in own.items())
    return f"{name}{{{added},{labels or '}'}"


def on_a_server(document: dict[str, Any]) -> dict[str, Any]:
    for test in document["tests"]:
        test.pop("promql_expr_test", None)
        for each in test["input_series"]:
            each["series"] = of_a_target(each["series"])
        for check in test.get("alert_rule_test", ()):
            check["exp_alerts"] = [
                {**alert, "exp_labels": {**TARGET, **alert["exp_labels"]}} for alert in check.get("exp_alerts") or ()
            ]
    return document


def test_every_rule_file_has_its_cases() -> None:
    tested = {Path(name).name for path in CASES for name in copied(path)["rule_files"]}
    assert tested == {path.name for path in RULES.glob("*.yml")}


@pytest.mark.parametrize("slow", [False, pytest.param(True, marks=pytest.mark.release)])
def test_promtool_says_that_all_is_well(slow: bool, promtool: Any) -> None:
    chosen = [path for path, name in zip(CASES, names(CASES), strict=True) if (name in SLOW) == slow]
    assert promtool("test", *chosen) == 0, promtool.failed(*chosen)


@pytest.mark.parametrize("path", CASES, ids=names(CASES))
def test_alerts_of_nodes_keep_the_labels_of_their_target(path: Path, tmp_path: Path, coldplate: Any) -> None:
    copy = path
    if not OF_RACKS.match(path.name):
        copy = tmp_path / path.name
        copy.write_text(yaml.dump(on_a_server(copied(path)), Dumper=yaml.CSafeDumper))
    assert coldplate("test", copy) == 0, coldplate.failed(copy)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(each, marks=() if name == BROKEN else pytest.mark.release)
        for each, name in zip(CASES, names(CASES), strict=True)
    ],
    ids=names(CASES),
)
def test_both_fail_each_mistake_in_a_copy(path: Path, tmp_path: Path, promtool: Any, coldplate: Any) -> None:
    document = break_first(copied(path))
    copy = tmp_path / path.name
    copy.write_text(yaml.safe_dump(document))
    name = document["tests"][0]["alert_rule_test"][0]["alertname"]
    assert promtool.failed(copy) == coldplate.failed(copy) == [name] * len(BREAKS)
