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

SLOW = ("imbalance", "infiniband", "rack", "rack-equipment-drift", "thermal")
"""Files that take promtool three quarters of the time of all, before a release."""


def names(paths: list[Path]) -> list[str]:
    return [path.name.partition(".")[0] for path in paths]


def copied(path: Path) -> dict[str, Any]:
    """A file that may lie elsewhere."""
    document: dict[str, Any] = yaml.load(path.read_text(), yaml.CSafeLoader)
    document["rule_files"] = [str((path.parent / name).resolve()) for name in document["rule_files"]]
    return document


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
    assert promtool("test", *chosen) == 0


@pytest.mark.parametrize("path", CASES, ids=names(CASES))
def test_alerts_of_nodes_keep_the_labels_of_their_target(path: Path, tmp_path: Path, coldplate: Any) -> None:
    copy = path
    if not OF_RACKS.match(path.name):
        copy = tmp_path / path.name
        copy.write_text(yaml.dump(on_a_server(copied(path)), Dumper=yaml.CSafeDumper))
    assert coldplate("test", copy) == 0
