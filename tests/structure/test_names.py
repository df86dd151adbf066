"""A name stands for one thing: whoever reads it in a traceback, a profile or a search knows which.

Files are listed in profiles and tracebacks by their last part, and classes without their module.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for top in ("agent", "alerts", "dashboards", "exporters") for path in (ROOT / top).rglob("*.py"))

GIVEN_FILES = {"__init__.py", "__main__.py"}
"""Python's own names, one for each package or program."""


def twice(named: Iterable[tuple[str, Path]]) -> list[str]:
    places = defaultdict(list)
    for name, path in named:
        places[name].append(str(path.relative_to(ROOT)))
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def test_every_file_name_exists_once() -> None:
    assert twice((path.name, path) for path in MODULES if path.name not in GIVEN_FILES) == []


def test_every_class_name_exists_once() -> None:
    classes = (
        (node.name, path)
        for path in MODULES
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert twice(classes) == []


def constants(body: list[ast.stmt]) -> Iterable[tuple[str, str]]:
    """The constants of a module that have a docstring, and it."""
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            for target in node.targets:
                for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                    if isinstance(each, ast.Name) and each.id.isupper():
                        yield each.id, str(after.value.value)


def test_a_constant_of_seconds_says_so() -> None:
    """Beside a time-out in milliseconds or a number of rounds, `PATIENCE = 30` would say nothing where it is used."""
    silent = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        for name, text in constants(ast.parse(path.read_text(encoding="utf-8")).body)
        if text.startswith("Seconds") and not name.endswith("_SECONDS")
    ]
    assert silent == []
