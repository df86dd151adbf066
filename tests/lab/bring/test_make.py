"""make itself, on machines where something is missing: one line that says what and how to get it, and no traceback."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import need

ROOT = Path(__file__).resolve().parents[3]
ENTRY = ROOT / "tests" / "bring" / "__main__.py"


def make(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return make_in(ROOT, *arguments, **environment)


def make_in(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """As a person's own: the make that runs the tests tells those below it what it was told."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        [need("make"), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**clean, **environment},
    )


@pytest.mark.parametrize("target", ["run", "test", "check", "programs", "test-bare"])
def test_a_machine_without_python_is_told_what_to_do(target: str) -> None:
    done = make(target, "PYTHON=no-such-python")
    assert done.returncode != 0
    first, *others = done.stderr.splitlines()
    assert "needs Python 3.10 or newer, and there is no no-such-python here: install python3" in first
    assert all(line.startswith("make: ***") for line in others)


def test_a_python_that_is_too_old_is_told_what_to_do() -> None:
    text = ENTRY.read_text()
    ast.parse(text, feature_version=(3, 4))  # else an old one would see nothing but a mistake of syntax
    old = f"import sys; sys.version_info = (3, 9, 2); exec(compile({text!r}, {str(ENTRY)!r}, 'exec'))"
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("coldplate needs Python 3.10 or newer, and this is 3.9;")
    assert len(done.stderr.splitlines()) == 1


def test_help_names_every_target_that_a_person_may_want() -> None:
    said = make("help").stdout
    assert {"run", "test", "test-bare", "test-all", "check"} <= {
        line.split()[1] for line in said.splitlines() if line.startswith("  make ")
    }


def test_programs_are_looked_for_in_the_checkout_first(tmp_path: Path) -> None:
    """What lies there replaces what the machine has and is of no use."""
    makefile = (ROOT / "Makefile").read_text() + '\nshow:\n\t@echo "$$PATH"\n'
    (tmp_path / "my own").mkdir()
    (tmp_path / "my own" / "Makefile").write_text(makefile)
    done = make_in(tmp_path / "my own", "show")
    assert done.stdout.split(":")[0] == str(tmp_path / "my own" / ".programs" / "usr" / "bin")


def test_a_python_of_debian_without_its_library_is_told_what_to_do(tmp_path: Path) -> None:
    """python3-minimal has a part of the library only."""
    copy = tmp_path / "tests" / "bring"
    copy.mkdir(parents=True)
    shutil.copy(ENTRY, copy)
    (copy / "command.py").write_text("import no_such_part_of_the_library\n")
    done = subprocess.run(
        [sys.executable, "-ES", str(copy / "__main__.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "lacks a part of its standard library (No module named 'no_such_part" in done.stderr
    assert len(done.stderr.splitlines()) == 1
