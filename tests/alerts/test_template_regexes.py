"""`match` and `reReplaceAll` of templates print what promtool prints, for generated expressions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml

from alerts.template import Root, compile_template
from tests.promql.regexes import Patterns, texts

COUNT = 60


def literal(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def template(pattern: str, replacement: str, given: list[str]) -> str:
    """One template that holds an expression against many texts."""
    regex, by = literal(pattern), literal(replacement)
    held = map(literal, given)
    return "".join(f"[{{{{ match {regex} {each} }}}} {{{{ reReplaceAll {regex} {by} {each} }}}}]" for each in held)


def test_generated_expressions_in_templates_print_what_promtool_prints(
    tmp_path: Path, promtool: Callable[..., tuple[int, str]]
) -> None:
    given = [text for text in texts(2, 120) if "\r" not in text][::3]
    patterns = Patterns(2, named=False)
    annotations: dict[str, str] = {}
    expected: dict[str, str] = {}
    for _ in range(4 * COUNT):
        if len(annotations) == COUNT:
            break
        name, text = f"a{len(annotations)}", template(patterns.one(), patterns.replacement(), given)
        compiled = compile_template(text)
        if compiled.unwise:
            continue  # what is no expression is compared in tests/promql
        expected[name] = compiled.render(Root({}, 1.0, {}, ""), lambda _: [])
        annotations[name] = text
    assert len(annotations) == COUNT
    rule = {"alert": "A", "expr": "vector(1)", "annotations": annotations}
    (tmp_path / "r.yml").write_text(yaml.safe_dump({"groups": [{"name": "g", "rules": [rule]}]}))
    case = {"eval_time": "0s", "alertname": "A", "exp_alerts": [{"exp_annotations": expected}]}
    test = {"rule_files": ["r.yml"], "tests": [{"interval": "1m", "alert_rule_test": [case]}]}
    (tmp_path / "t.yml").write_text(yaml.safe_dump(test))
    status, told = promtool("test", tmp_path / "t.yml")
    assert status == 0, told
