"""The numbers of NVML's fields and metrics, against NVIDIA's own module."""

from __future__ import annotations

import ast
from pathlib import Path

import pynvml

from agent.catalogue import nvml_constants

CATALOGUE = Path(nvml_constants.__file__).parent
NUMBERS = {name: value for name, value in vars(nvml_constants).items() if name.startswith(("FI_DEV_", "GPM_METRIC_"))}


def test_every_number_is_the_one_that_nvidia_gives_the_name() -> None:
    """A field that is newer than the installed module is the one thing that it cannot judge."""
    assert len(NUMBERS) > 60
    known = {name: getattr(pynvml, f"NVML_{name}", None) for name in NUMBERS}
    newer = {name for name, value in NUMBERS.items() if name.startswith("FI_DEV_") and value >= pynvml.NVML_FI_MAX}
    assert {name: value for name, value in known.items() if value != NUMBERS[name] and name not in newer} == {}


def test_no_row_writes_a_number_where_there_is_a_name() -> None:
    bare = [
        f"{path.name}:{node.lineno}"
        for path in sorted(CATALOGUE.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Field", "Gpm")
        if any(isinstance(each, ast.Constant) for each in node.args[:1])
    ]
    assert bare == []
