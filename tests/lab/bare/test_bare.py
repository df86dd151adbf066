"""The pure parts of the trial on bare machines; the trial itself is `make test-bare`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.lab.bare.machine import README_NAMES
from tests.lab.bare.outcome import Outcome, table
from tests.lab.bare.place import SUPPORTED, changes

REPOSITORY = Path(__file__).resolve().parents[3]
PASSED = '<testcase classname="a" name="one"/>'
FAILED = '<testcase classname="a" name="two"><failure message="assert 1 == 2">...</failure></testcase>'
BROKEN = '<testcase classname="a" name="three"><error message="failed on setup">...</error></testcase>'


def skipped(reason: str) -> str:
    return f'<testcase classname="a" name="four"><skipped message="{reason}"/></testcase>'


def outcome(folder: Path, *cases: str, touched: list[str] | None = None, **result: object) -> Outcome:
    found = {
        "python": "3.12.1", "run": "", "again": "", "status": 0, "seconds": 61.2, "set_up_seconds": 40.1,
        "megabytes": {".venv": 150, ".programs": 400}, **result,
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(found))
    (folder / "junit.xml").write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    (folder / "test.log").write_text("the last words")
    return Outcome.read("trixie", "user", folder, touched or [])


@pytest.mark.parametrize(
    ("cases", "result", "word"),
    [
        ((PASSED, FAILED), {"status": 1}, "assert 1 == 2"),
        ((PASSED, BROKEN), {"status": 1}, "failed on setup"),
        ((PASSED, skipped("promtool is not installed")), {}, "promtool is not installed"),
        ((PASSED,), {"status": 2}, "the last words"),
        ((PASSED,), {"run": "make run ended"}, "make run ended"),
        ((PASSED,), {"again": "it fetched"}, "it fetched"),
        ((PASSED,), {"touched": ["/etc/passwd"]}, "/etc/passwd"),
        ((), {}, "no test passed"),
    ],
)
def test_what_went_wrong_is_named_and_fails(tmp_path: Path, cases: tuple[str, ...], result: dict, word: str) -> None:
    found = outcome(tmp_path, *cases, **result)
    assert not found.good
    assert word in found.words()
    assert "NOT good" in table([found])


def test_what_changed_outside_the_checkout_is_found(tmp_path: Path) -> None:
    for name in ("etc/new", "home/x/checkout/new", "home/x/.cache"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert sorted(changes(tmp_path, Path("/home/x/checkout"), 0)) == ["/etc/new", "/home/x/.cache"]
    assert changes(tmp_path, Path("/home/x/checkout"), 2**40) == []


def test_a_bare_root_and_the_pythons_are_those_that_the_project_names() -> None:
    sentence = r"You need Python 3\.10 or newer and `make`: on Debian [^`]*(`[^.]*) are enough"
    named = re.search(sentence, (REPOSITORY / "README.md").read_text())
    assert named is not None
    assert re.findall(r"`([^`]+)`", named[1]) == list(README_NAMES)
    project = (REPOSITORY / "pyproject.toml").read_text()
    assert re.findall(r"Python :: (3\.[0-9]+)", project) == list(SUPPORTED)
