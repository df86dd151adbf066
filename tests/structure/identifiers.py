"""Counts identifiers that name nothing: participles and question words, private verbs and metaphors.

`python -m tests.structure.identifiers` prints the counts beside what is allowed, and ends with 1 where there are more.
What is allowed may only fall.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("agent", "alerts", "dashboards", "exporters")

NOTHING = "asked done each found given gone known left made of others said seen shown some taken told wanted what why"
"""As the whole name of a variable, parameter or function, whatever underscores are around it."""
PRIVATE = (
    "bury doom doubt enter hear heirs keep learn look note obey post put said see_off settle sighting take tell told"
)
"""The same of a function, method or class."""

LONGEST_TEST_NAME = 80

ALLOWED = {"names of nothing": 78, "private verbs and metaphors": 4, "test names over 80 characters": 0}


def identifiers(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield the names that a file gives to things, and whether each names a function, method or class."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, False
        elif isinstance(node, ast.arg):
            yield node.arg, False
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name, True


def counts() -> Counter[str]:
    counted: Counter[str] = Counter(dict.fromkeys(ALLOWED, 0))
    nothing, private = frozenset(NOTHING.split()), frozenset(PRIVATE.split())
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for name, is_callable in identifiers(path):
                bare = name.strip("_").lower()
                counted["names of nothing"] += bare in nothing
                counted["private verbs and metaphors"] += is_callable and bare in private
    for path in (ROOT / "tests").rglob("test_*.py"):
        for name, is_callable in identifiers(path):
            is_test = is_callable and name.startswith("test_")
            counted["test names over 80 characters"] += is_test and len(name) > LONGEST_TEST_NAME
    return counted


def problems(counted: Counter[str]) -> list[str]:
    return [f"{kind}: {counted[kind]}, allowed {most}" for kind, most in ALLOWED.items() if counted[kind] > most]


def main(arguments: Sequence[str]) -> int:
    del arguments
    counted = counts()
    for kind, most in ALLOWED.items():
        print(f"{kind}: {counted[kind]}, allowed {most}")
    return 1 if problems(counted) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
