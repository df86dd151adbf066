"""Whatever is found as .venv, afterwards it is complete; and whoever cannot have one is told in a line what to do.

The environments are real; the pip in them is a stand-in that takes no time and no network. (The real one set up the
environment that this runs in.)
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lab.bring.archive import Archive
from tests.lab.bring.command import main
from tests.lab.bring.conftest import Mirror

PROJECT = "[project]\nname = 'tiny'\n"
TOOLS = ["--require-hashes", "tests/tools.txt"]
PIP = """
import os, pathlib, shutil, sys, sysconfig
site = pathlib.Path(sysconfig.get_path("purelib"))
what = sys.argv[-1]
if what.endswith(".whl"):
    (site / "pip").mkdir()
    for name, text in {"__init__.py": "", "__main__.py": TEXT}.items():
        (site / "pip" / name).write_text(text)
elif "unreachable" in pathlib.Path("pyproject.toml").read_text():
    sys.exit("ERROR: No matching distribution found for unreachable")
else:
    elsewhere = [name for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT") if name in os.environ]
    assert (elsewhere, os.environ["PIP_USER"]) == ([], "0")
    (site / "tiny.py").write_text("here = True")
    with open("asked", "a") as file:
        file.write("--require-hashes " * ("--require-hashes" in sys.argv) + what + "\\n")
"""


@pytest.fixture(autouse=True)
def debian(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python without ensurepip, as Debian's is, and a wheel of pip beside it."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "pip-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pip/__main__.py", f"TEXT = {PIP!r}\n{PIP}")
    monkeypatch.setattr("tests.lab.bring.environment.WHEELS", wheels)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else find_spec(name))


class Checkout:
    """A checkout in which environments are made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.note = self.venv / "complete.json"
        root.mkdir()
        (root / "pyproject.toml").write_text(PROJECT)
        (root / "tests").mkdir()
        (root / "tests" / "tools.txt").write_text("tool==1 --hash=sha256:00\n")

    def provide(self, purpose: str = "run", *named: str) -> int:
        return main(["environment", purpose, *named], self.root)

    def works(self) -> bool:
        command = [str(self.venv / "bin" / "python"), "-c", "import tiny, pip; print(tiny.here)"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout == "True\n"

    def mark(self) -> Path:
        """A file that is gone when the environment was made anew."""
        mark = self.venv / "mark"
        mark.touch()
        return mark

    def asked(self) -> list[str]:
        """What pip was asked to install."""
        return (self.root / "asked").read_text().split()


@pytest.fixture
def fresh(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path / "my own checkout")


@pytest.fixture
def made(fresh: Checkout, capsys: pytest.CaptureFixture[str]) -> Checkout:
    """One that is complete for `run`."""
    assert fresh.provide() == 0
    assert fresh.works()
    capsys.readouterr()
    return fresh


def test_an_environment_is_made_if_there_is_none_even_below_a_path_with_spaces(fresh: Checkout) -> None:
    assert fresh.provide() == 0
    assert fresh.works()


def test_a_second_time_does_nothing_and_says_nothing(made: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    mark = made.mark()
    assert made.provide() == 0
    assert capsys.readouterr() == ("", "")
    assert mark.exists()


def test_what_more_is_asked_for_is_added_and_what_is_there_stays(made: Checkout) -> None:
    mark = made.mark()
    assert made.provide("dev") == 0
    assert made.provide("run") == 0
    assert made.provide("bench") == 0
    assert made.asked() == [
        ".[top]",
        *TOOLS,
        ".[dashboards,kubernetes,otlp,top]",
        *TOOLS,
        ".[bench,dashboards,kubernetes,otlp,top]",
    ]
    assert mark.exists()


def test_another_project_file_is_installed_again(made: Checkout) -> None:
    mark = made.mark()
    (made.root / "pyproject.toml").write_text(PROJECT + "# later\n")
    assert made.provide() == 0
    assert made.asked() == [".[top]", ".[top]"]
    assert mark.exists()


def test_other_tools_are_installed_where_there_are_tools_and_nowhere_else(made: Checkout) -> None:
    (made.root / "tests" / "tools.txt").write_text("tool==2 --hash=sha256:01\n")
    assert made.provide() == 0
    assert made.asked() == [".[top]"]
    assert made.provide("dev") == 0
    (made.root / "tests" / "tools.txt").write_text("tool==3 --hash=sha256:02\n")
    assert made.provide("dev") == 0
    assert made.asked()[-3:] == [*TOOLS, ".[dashboards,kubernetes,otlp,top]"] == made.asked()[1:4]


def interrupted(checkout: Checkout) -> None:
    checkout.note.unlink()
    shutil.rmtree(checkout.venv / "bin")


def half_a_note(checkout: Checkout) -> None:
    checkout.note.write_text('{"root": ')


def a_python_that_is_gone(checkout: Checkout) -> None:
    python = checkout.venv / "bin" / "python"
    python.unlink()
    python.symlink_to("/nonexistent/python3.9")


def another_python(checkout: Checkout) -> None:
    note = json.loads(checkout.note.read_bytes())
    checkout.note.write_text(json.dumps({**note, "python": "3.9.1"}))


def another_place(checkout: Checkout) -> None:
    note = json.loads(checkout.note.read_bytes())
    checkout.note.write_text(json.dumps({**note, "root": "/elsewhere"}))


def a_file(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    checkout.venv.touch()


def somebody_elses_environment(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(checkout.venv)], check=True)


SPOILED = (
    interrupted,
    half_a_note,
    a_python_that_is_gone,
    another_python,
    another_place,
    a_file,
    somebody_elses_environment,
)


@pytest.mark.parametrize("spoil", SPOILED, ids=lambda each: each.__name__)
def test_an_unusable_environment_is_made_again(
    made: Checkout, spoil: Callable[[Checkout], None], capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(made)
    assert made.provide() == 0
    assert "making it anew" in capsys.readouterr().out
    assert made.works()


def test_another_python_counts_only_where_one_is_named(made: Checkout) -> None:
    note = json.loads(made.note.read_bytes())
    made.note.write_text(json.dumps({**note, "python": f"{sys.version_info[0]}.{sys.version_info[1]}.99"}))
    mark = made.mark()
    assert made.provide("run") == 0
    assert mark.exists()
    assert made.provide("run", "named") == 0
    assert not mark.exists()


def test_what_pip_cannot_install_is_reported_in_a_line_and_nothing_that_was_there_is_lost(
    made: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    mark = made.mark()
    project = made.root / "pyproject.toml"
    project.write_text(PROJECT + "# unreachable")
    assert made.provide("dev") == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "ERROR: No matching distribution found for unreachable"
    assert told[1].startswith("coldplate: pip could not set up .venv")
    assert len(told) == 2
    project.write_text(PROJECT)
    assert made.provide() == 0
    assert made.works()
    assert mark.exists()


def test_settings_of_pip_that_lead_elsewhere_are_not_followed(
    fresh: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_USER"):
        monkeypatch.setenv(name, str(tmp_path / name))
    assert fresh.provide() == 0  # pip's stand-in looks at them


def test_a_python_whose_pip_is_a_package_of_its_own_gets_that_package(
    fresh: Checkout, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (wheel,) = (tmp_path / "wheels").iterdir()
    monkeypatch.setattr("tests.lab.bring.environment.WHEELS", tmp_path / "none")
    assert fresh.provide() == 1
    told = capsys.readouterr().err
    assert "install your distribution's python3-venv" in told
    assert len(told.splitlines()) == 1
    assert not fresh.venv.exists()
    mirror.add("python3-pip-whl", "1", files={f"usr/share/python-wheels/{wheel.name}": wheel})
    mirror.add("ca-certificates", "1", files={"usr/share/ca-certificates/mozilla/A.crt": "a certificate"})
    assert fresh.provide() == 0
    assert fresh.works()


def test_a_python_without_venv_is_told_so(
    fresh: Checkout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "venv" else find_spec(name))
    assert fresh.provide() == 1
    assert "has no venv module: install" in capsys.readouterr().err


def test_a_checkout_that_may_not_be_written_is_told_so(fresh: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    fresh.root.chmod(0o555)
    for parent in fresh.root.parents[:3]:
        parent.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        assert fresh.provide() == 1
    finally:
        if root:
            os.seteuid(0)
        fresh.root.chmod(0o755)
    told = capsys.readouterr().err
    assert told.startswith("coldplate: ")
    assert "writ" in told
    assert len(told.splitlines()) == 1


def test_two_at_once_wait_for_each_other(fresh: Checkout, tmp_path: Path) -> None:
    """Both set up the same: the second finds all done."""
    command = [sys.executable, "-c", TWO, str(fresh.root), str(tmp_path / "wheels")]
    home = Path(__file__).resolve().parents[3]
    both = [subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sum("setting up" in each for each in said) == 1
    assert fresh.asked() == [".[top]"]
    assert fresh.works()


TWO = """
import importlib.util, pathlib, sys
from tests.lab.bring import command, environment
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "ensurepip" else find_spec(name)
environment.WHEELS = pathlib.Path(sys.argv[2])
sys.exit(command.main(["environment", "run"], pathlib.Path(sys.argv[1])))
"""


def test_nothing_is_fetched_for_an_environment_that_is_complete(
    made: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Archive, "fetch", lambda *arguments, **options: pytest.fail("it asked for packages"))
    assert made.provide() == 0
