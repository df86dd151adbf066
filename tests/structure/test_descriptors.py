"""Nothing waits for descriptors in a way that knows a thousand of them only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("part", ["agent", "alerts", "exporters", "tests"])
def test_descriptors_are_waited_for_with_poll(part: str) -> None:
    """select() refuses 1024 and above, which a process has under load, or when something leaks, and never in a trial.
    Without any descriptor it is a pause."""
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno}: use select.poll or selectors"
        for path in sorted((ROOT / part).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "select.select"
        if any(not isinstance(each, ast.Tuple) or each.elts for each in call.args[:3])
    ]
    assert found == []
