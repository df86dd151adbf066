"""The end of docs/metrics.md is generated, and has every name of every other exporter."""

from __future__ import annotations

from pathlib import Path

from exporters.compatibility import PROFILES
from tests.lab.generate import migration_document

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8").endswith(migration_document.render()), (
        "docs/metrics.md is not what the tables say: make generate"
    )


def test_it_has_every_name_once_served_or_not() -> None:
    lines = migration_document.render().splitlines()
    for profile in PROFILES.values():
        for name in {each.name for each in profile.names} | {each.name for each in profile.not_served}:
            assert sum(line.startswith(f"| `{name}` |") for line in lines) == 1, name
