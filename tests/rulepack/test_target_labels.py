"""On a server every series has the labels of its target, and so must every alert: who is told depends on them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rulepack.test_cases import CASES

TARGET = {"cluster": "c1", "rack": "k1"}
OF_RACKS = re.compile("rack|breakers")
"""About racks: their series carry the rack that agents told themselves."""
OF_NODES = [path for path in CASES if not OF_RACKS.match(path.name)]


def of_a_target(series: str) -> str:
    """The series as a server stores it: with the target's labels, but for those that it has itself."""
    name, _, labels = series.partition("{")
    own = {label: value for label, value in TARGET.items() if f'{label}="' not in labels}
    added = ",".join(f'{label}="{value}"' for label, value in own.items())
    return f"{name}{{{added},{labels or '}'}"


def on_a_server(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(path.read_text())
    document["rule_files"] = [str((path.parent / name).resolve()) for name in document["rule_files"]]
    for test in document["tests"]:
        test.pop("promql_expr_test", None)
        for each in test["input_series"]:
            each["series"] = of_a_target(each["series"])
        for check in test.get("alert_rule_test", ()):
            check["exp_alerts"] = [
                {**alert, "exp_labels": {**TARGET, **alert["exp_labels"]}} for alert in check.get("exp_alerts") or ()
            ]
    return document


@pytest.mark.parametrize("path", OF_NODES, ids=[path.name.partition(".")[0] for path in OF_NODES])
def test_alerts_of_nodes_keep_the_labels_of_their_target(path: Path, tmp_path: Path, promtool: Any) -> None:
    copy = tmp_path / path.name
    copy.write_text(yaml.safe_dump(on_a_server(path)))
    assert promtool("test", copy) == 0, promtool.failed(copy)
