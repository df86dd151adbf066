"""Commits say in their subjects what changes for whom."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.structure import commit_subjects
from tests.structure.commit_subjects import ROOT, problem


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("rules: keep GpuHot firing while a GPU is hot", True),
        ("top, page: show one state of a GPU", True),
        ("Merge branch 'a'", True),
        ("rules: " + "x" * 65, True),
        ("rules: " + "x" * 66, False),
        ("Say what a rule does", False),
        ("rules:no space", False),
        ("rules: ends with a period.", False),
        ("", False),
    ],
)
def test_a_subject_names_its_area_in_72_characters(subject: str, is_good: bool, tmp_path: Path) -> None:
    assert (problem(subject) == "") is is_good
    message = tmp_path / "message"
    message.write_text(f"{subject}\n\nThe body.\n# a comment\n")
    assert commit_subjects.main(["--message", str(message)]) == int(not is_good)


def test_the_subjects_of_new_commits_are_good() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout: no commit is looked at")
    script = Path(commit_subjects.__file__)
    checked = subprocess.run([sys.executable, "-ES", str(script)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
