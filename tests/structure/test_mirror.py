"""The folders of tests are those of the code: who changes a file finds its tests by its name, or by its folder's."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CODE = ("agent", "alerts", "dashboards", "exporters")

KINDS = {
    "deployment": "the chart, the Ansible role and the files of a fleet",
    "fakes": "stand-ins for what a machine lacks",
    "lab": "machinery: benchmarks, drills, packages, machines; docs/dev/testing.md lists it",
    "largest": "the largest node there is",
    "parsers": "inputs that once broke a parser",
    "rulepack": "the rules that ship",
    "structure": "how the code is arranged",
}
"""Folders that test no part by itself, and what they are for."""


def parts() -> set[str]:
    found = set(CODE)
    for top in CODE:
        found |= {path.stem for path in (ROOT / top).rglob("*") if path.is_dir() or path.suffix == ".py"}
    return found - {"__init__", "__main__", "__pycache__"}


def folders() -> set[str]:
    return {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}


def test_a_folder_of_tests_has_the_name_of_what_it_tests() -> None:
    """One that tests no part by itself is to be added to KINDS, with what it is for."""
    assert folders() - parts() - KINDS.keys() == set()


def test_a_kind_of_tests_is_there() -> None:
    assert KINDS.keys() - folders() == set()


def test_a_file_of_tests_is_in_a_folder() -> None:
    assert list((ROOT / "tests").glob("test_*.py")) == []
