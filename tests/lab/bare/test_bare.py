"""What `make test-bare` and `make test-all` try is what the project names, and what cannot be tried is no success."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.lab.bare.machine import README_NAMES

REPOSITORY = Path(__file__).resolve().parents[3]


def test_a_bare_root_has_what_the_readme_names() -> None:
    sentence = r"You need Python 3\.10 or newer and `make`: on Debian [^`]*(`[^.]*) are enough"
    named = re.search(sentence, (REPOSITORY / "README.md").read_text())
    assert named is not None
    assert re.findall(r"`([^`]+)`", named[1]) == list(README_NAMES)


def test_a_machine_without_git_is_no_success(tmp_path: Path) -> None:
    command = [str(shutil.which("sh")), "tests/lab/pythons.sh", "", "python3"]
    done = subprocess.run(command, cwd=REPOSITORY, env={"PATH": str(tmp_path)}, capture_output=True, check=False)
    assert done.returncode != 0
    assert b"git" in done.stderr
