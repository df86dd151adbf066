"""Random histories: what coldplate's groups make of them is what promtool makes of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.model import Phase
from alerts import rulefile
from alerts.group_evaluator import GroupEvaluator
from alerts.promql import Storage
from alerts.unittests import notation

STEP, STEPS = 15, 19  # 19 steps stay within the look-back of 5 minutes, whose edge Prometheus 2 and 3 draw differently


def rules(dice: random.Random) -> dict[str, Any]:
    alerts = [
        {
            "alert": f"A{number}",
            "expr": dice.choice(["m > 5", "m", "m != 1", "a:m > 5 and m > 0", "sum by (gpu) (m) > 9", "absent(m)"]),
            "for": f"{dice.choice([0, 0, 15, 30, 50])}s",
            "keep_firing_for": f"{dice.choice([0, 0, 15, 40, 60])}s",
            "labels": {"level": dice.choice(["fixed", "{{ if gt $value 7.0 }}high{{ else }}low{{ end }}"])},
            "annotations": {"text": "{{ $labels.gpu }} is at {{ $value | humanize }}"},
        }
        for number in range(6)
    ]
    return {"groups": [{"name": "g", "rules": [{"record": "a:m", "expr": "m * 2"}, *alerts]}]}


def series(dice: random.Random) -> list[dict[str, str]]:
    values = ["1", "1", "6", "8", "9", "NaN", "_", "stale"]
    return [
        {"series": f'm{{gpu="{gpu}"}}', "values": " ".join(dice.choice(values) for _ in range(STEPS))} for gpu in "01"
    ]


def lived(group: GroupEvaluator, given: list[dict[str, str]]) -> list[dict[str, Any]]:
    """A case for each alert and step, with what coldplate says."""
    storage = Storage()
    expanded = [(notation.series(each["series"]), list(notation.values(each["values"]))) for each in given]
    cases = []
    for step in range(STEPS):
        for labels, values in expanded:
            value = values[step]
            if value is not None:
                storage.append(labels, step * STEP, value)
        assert group.evaluate(storage, step * STEP).failures == ()
        for number in range(6):
            firing = [alert for alert in group.alerts() if alert.rule == f"A{number}" and alert.phase is Phase.FIRING]
            expected = [
                {
                    "exp_labels": {name: text for name, text in alert.labels if name != "alertname"},
                    "exp_annotations": dict(alert.annotations),
                }
                for alert in firing
            ]
            cases.append({"eval_time": f"{step * STEP}s", "alertname": f"A{number}", "exp_alerts": expected})
    return cases


@pytest.mark.parametrize("seed", range(4))
def test_random_histories_end_as_promtool_says(seed: int, tmp_path: Path, promtool: Any) -> None:
    dice = random.Random(seed)
    text = yaml.safe_dump(rules(dice))
    (tmp_path / "r.yml").write_text(text)
    tests: list[dict[str, Any]] = []
    for _ in range(6):
        given = series(dice)
        group = GroupEvaluator(rulefile.parse(text, "r.yml").groups[0])
        cases = lived(group, given)
        tests.append({"interval": f"{STEP}s", "input_series": given, "alert_rule_test": cases})
    document = {"rule_files": ["r.yml"], "evaluation_interval": f"{STEP}s", "tests": tests}
    (tmp_path / "t.yml").write_text(yaml.safe_dump(document))
    verdict = promtool("test", tmp_path / "t.yml")
    assert verdict.status == 0, verdict.text
    assert sum(len(case["exp_alerts"]) for test in tests for case in test["alert_rule_test"]) > 50
