"""What make and the tests use is one version of each, whose files nobody can exchange."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def wanted() -> set[str]:
    """The tools that pyproject.toml names."""
    group = (ROOT / "pyproject.toml").read_text().partition("\ntools = [\n")[2].partition("\n]")[0]
    return {found.lower() for found in re.findall(r'^  "([\w-]+)', group, re.MULTILINE)}


def locked() -> list[str]:
    """The requirements of tests/tools.txt, each in a line."""
    text = (ROOT / "tests" / "tools.txt").read_text().replace("\\\n", "")
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_every_tool_is_of_one_version_and_has_the_hashes_of_its_files() -> None:
    """One that is added to pyproject.toml is added here by `make lock`."""
    assert wanted() <= {line.partition("==")[0] for line in locked()}
    loose = [
        line[:60]
        for line in locked()
        if not re.fullmatch(r"[\w.-]+==[\w.]+ ( ?;[^#]*?)?( +--hash=sha256:[0-9a-f]{64})+", line)
    ]
    assert loose == []


def test_no_file_says_where_they_were_downloaded() -> None:
    assert not re.search(r"https?:|file:|index-url|find-links", (ROOT / "tests" / "tools.txt").read_text())
