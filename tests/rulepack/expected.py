"""The alerts that the pack's unit tests expect: labels and texts as a receiver gets them."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.rule_tests import unit_test_file

ROOT = Path(__file__).resolve().parents[2]


class Told(NamedTuple):
    """An alert as a unit test expects it."""

    name: str
    labels: Mapping[str, str]
    notes: Mapping[str, str]

    @property
    def text(self) -> str:
        return f"{self.notes['summary']}\n{self.notes['description']}"

    def says(self, label: str) -> bool:
        """Whether the value of a label stands in the text, as a word of its own."""
        return re.search(rf"(?<![\w-]){re.escape(self.labels[label])}(?![\w-])", self.text) is not None


@cache
def told() -> tuple[Told, ...]:
    return _told(ROOT / "alerts" / "tests")


@cache
def told_by_servers() -> tuple[Told, ...]:
    return _told(ROOT / "packaging" / "fleet" / "tests")


def _told(folder: Path) -> tuple[Told, ...]:
    files = [unit_test_file.load(path) for path in sorted(folder.glob("*.yml"))]
    return tuple(
        Told(case.name, dict(alert.labels), dict(alert.annotations))
        for file in files
        for test in file.tests
        for case in test.alerts
        for alert in case.expected
    )
