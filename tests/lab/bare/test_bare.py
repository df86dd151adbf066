"""What `make test-bare` and `make test-all` try is what the project names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lab.bare.command import main
from tests.lab.bare.machine import README_NAMES

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_bare_root_has_what_the_readme_names() -> None:
    sentence = r"You need Python 3\.10 or newer and `make`: on Debian [^`]*(`[^.]*) are enough"
    named = re.search(sentence, (REPOSITORY / "README.md").read_text())
    assert named is not None
    assert re.findall(r"`([^`]+)`", named[1]) == list(README_NAMES)


def test_a_machine_without_git_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["pythons", "--pythons", "python3"]) == 1
    assert "NOTHING was tried: git" in capsys.readouterr().err
