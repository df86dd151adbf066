"""What a stranger's first `make` meets: an interrupted set-up, another Python, no network, a file that is not the one
that was listed. The environments are real; pip in them is a stand-in that takes no time and no network.

`make test-bare` tries the rest on machines that nobody prepared: what apt brings, and that nothing else is changed.
"""

import ast
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lab.bring.archive import Archive, ShortageError
from tests.lab.bring.command import main
from tests.lab.bring.programs import Program, Programs, is_recent
from tests.lab.bring.wrappers import with_its_pages
from tests.servers import need

ROOT = Path(__file__).resolve().parents[3]
ENTRY = Path(__file__).with_name("__main__.py")
SINGLE = Path(__file__).with_name("self_unpacking.py")
TOOLS = "--require-hashes tests/tools.txt"
PIP = """
import os, pathlib, sys, sysconfig
site = pathlib.Path(sysconfig.get_path("purelib"))
what = sys.argv[-1]
if what.endswith(".whl"):
    (site / "pip").mkdir()
    for name, text in {"__init__.py": "", "__main__.py": TEXT}.items():
        (site / "pip" / name).write_text(text)
elif "unreachable" in pathlib.Path("pyproject.toml").read_text():
    sys.exit("ERROR: No matching distribution found for unreachable")
else:
    assert "PIP_TARGET" not in os.environ and os.environ["PIP_USER"] == "0"
    (site / "tiny.py").write_text("here = True")
    with open("asked", "a") as file:
        file.write("--require-hashes " * ("--require-hashes" in sys.argv) + what + "\\n")
"""


# -- .venv ------------------------------------------------------------------------------------------------------------
class Checkout:
    """A checkout below a path with spaces, with a Python that has no ensurepip, and a wheel of pip beside it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = folder / "my own checkout"
        self.venv, self.note = self.root / ".venv", self.root / ".venv" / "complete.json"
        self.project = self.root / "pyproject.toml"
        (self.root / "tests").mkdir(parents=True)
        self.project.write_text("[project]\nname = 'tiny'\n")
        (self.root / "tests" / "tools.txt").write_text("tool==1 --hash=sha256:00\n")
        self.wheel = folder / "wheels" / "pip-1-py3-none-any.whl"
        self.wheel.parent.mkdir()
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            wheel.writestr("pip/__main__.py", f"TEXT = {PIP!r}\n{PIP}")
        monkeypatch.setattr("tests.lab.bring.environment.WHEELS", self.wheel.parent)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "ensurepip" else find_spec(name))

    def provide(self, purpose: str = "run", *named: str) -> int:
        return main(["environment", purpose, *named], self.root)

    def works(self) -> bool:
        command = [str(self.venv / "bin" / "python"), "-c", "import tiny, pip"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def rewrite(self, **facts: str) -> None:
        self.note.write_text(json.dumps({**json.loads(self.note.read_bytes()), **facts}))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, monkeypatch)


@pytest.fixture
def made(fresh: Checkout, capsys: pytest.CaptureFixture[str]) -> Checkout:
    assert fresh.provide() == 0
    assert fresh.works()
    (fresh.venv / "mark").touch()  # which is gone when the environment is made again
    capsys.readouterr()
    return fresh


def test_each_step_that_takes_long_is_named_before_it_and_the_end_is_said(
    fresh: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fresh.provide() == 0
    making, setting_up, ready = capsys.readouterr().out.splitlines()
    assert making.startswith("making .venv: ")
    assert setting_up.startswith("setting up .venv: pip fetches")
    assert re.fullmatch(r"\.venv is ready, after \d+ s of pip", ready)


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("coldplate: ")
    return line


def test_a_second_time_does_nothing_and_only_what_is_new_is_installed(
    made: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made.provide() == 0
    assert capsys.readouterr() == ("", "")
    assert made.provide("dev") == made.provide("run") == 0
    (made.root / "tests" / "tools.txt").write_text("tool==2 --hash=sha256:01\n")
    assert made.provide("dev") == 0
    development = [TOOLS, ".[dashboards,kubernetes,top]"]
    assert (made.root / "asked").read_text().splitlines() == [".[top]", *development, *development]
    assert (made.venv / "mark").exists()


def interrupted(checkout: Checkout) -> None:
    checkout.note.unlink()
    shutil.rmtree(checkout.venv / "bin")


def a_python_that_is_gone(checkout: Checkout) -> None:
    (checkout.venv / "bin" / "python").unlink()
    (checkout.venv / "bin" / "python").symlink_to("/nonexistent/python3.9")


def a_file(checkout: Checkout) -> None:
    shutil.rmtree(checkout.venv)
    checkout.venv.touch()


SPOILED: dict[str, Callable[[Checkout], object]] = {
    "interrupted": interrupted,
    "half a note": lambda checkout: checkout.note.write_text('{"root": '),
    "a Python that is gone": a_python_that_is_gone,
    "another Python": lambda checkout: checkout.rewrite(python="3.9.1"),
    "moved": lambda checkout: checkout.rewrite(root="/elsewhere"),
    "a file": a_file,
}


@pytest.mark.parametrize("kind", SPOILED)
def test_an_unusable_environment_is_made_again(made: Checkout, kind: str) -> None:
    SPOILED[kind](made)
    assert made.provide() == 0
    assert made.works()
    assert not (made.venv / "mark").exists()


def test_without_a_network_one_line_is_printed_and_the_old_environment_works(
    made: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    before = made.project.read_text()
    made.project.write_text(before + "# unreachable")
    assert made.provide("dev") == 1
    words, line = capsys.readouterr().err.splitlines()
    assert words.startswith("ERROR: ")
    assert line.startswith("coldplate: pip could not set up .venv")
    made.project.write_text(before)
    assert made.provide() == 0
    assert made.works()


# -- .programs --------------------------------------------------------------------------------------------------------
class FakeArchive(Archive):
    """Holds two packages with a program each, of which one does not run."""

    def fetch(self, *packages: str, dependencies: bool = False) -> list[Path]:
        if packages[0] not in ("hello", "broken"):
            raise ShortageError(f"apt did not bring {packages[0]}")
        return [self.folder / packages[0]]

    def unpack(self, files: Iterable[Path], folder: Path, without: frozenset[str] = frozenset()) -> None:
        (file,) = files
        program(folder / "usr" / "bin" / file.name, "echo why >&2; exit 7" if file.name == "broken" else "echo here")


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_programs_that_the_machine_lacks_are_unpacked_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, machine = tmp_path / "a b" / ".programs", tmp_path / "machine"
    ours = folder / "usr" / "bin" / "hello"
    monkeypatch.setenv("PATH", os.pathsep.join([str(ours.parent), str(machine), os.environ["PATH"]]))
    hello, absent, broken = (Program(name, ((name,),)) for name in ("hello", "absent", "broken"))
    hello = Program("hello", (("newer",), ("hello",)), in_documents=True)

    def provide(*wanted: Program, strict: bool = True) -> int:
        return Programs(folder, FakeArchive(tmp_path / "apt"), wanted).provide(strict=strict)

    assert provide(hello, absent, broken, strict=False) == 0
    said = capsys.readouterr().err
    assert "missing: absent (apt did not bring absent)" in said
    assert "missing: broken (exit status 7: why)" in said
    assert shutil.which("broken") is None
    assert provide(absent) == 1
    assert subprocess.run([ours], capture_output=True, text=True, check=True).stdout == "here\n"
    for text, printed in (("exit 3", "here\n"), ("echo mine", "mine\n"), ("exit 3", "here\n")):
        program(machine / "hello", text)
        assert provide(hello) == 0
        assert subprocess.run([ours], capture_output=True, text=True, check=True).stdout == printed
    program(machine / "hello", "echo mine")
    assert provide(dataclasses.replace(hello, in_documents=False)) == 0
    assert not ours.exists(), "tests find the machine's own"


def test_a_program_of_the_machine_under_another_name_is_where_documents_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Upstream's Alertmanager has another name than Debian's, which the first hour types."""
    machine, folder = tmp_path / "the machine", tmp_path / ".programs"
    program(machine / "tool", 'echo "$0" "$@"')
    monkeypatch.setenv("PATH", os.pathsep.join([str(machine), os.environ["PATH"]]))
    wanted = Program("debians-tool", (("absent",),), other_name="tool", in_documents=True)
    assert Programs(folder, FakeArchive(tmp_path / "apt"), (wanted,)).provide(strict=True) == 0
    called = subprocess.run(
        [folder / "usr" / "bin" / "debians-tool", "a b"], capture_output=True, text=True, check=True
    )
    assert called.stdout == f"{machine}/tool a b\n"


def test_an_unpacked_prometheus_finds_its_pages_and_takes_another_place_for_them(tmp_path: Path) -> None:
    tree, ours = tmp_path / "a b" / "tree", tmp_path / "a b" / "usr" / "bin" / "prometheus"
    program(tree / "usr" / "bin" / "prometheus", 'for each in "$@"; do echo "$each"; done')
    ours.parent.mkdir(parents=True)
    with_its_pages(tree, ours)
    given = ["--web.listen-address=:1", "--web.local-assets=/mine"]

    def options(*words: str) -> list[str]:
        return subprocess.run([ours, *words], capture_output=True, text=True, check=True).stdout.splitlines()

    (pages, address) = options(given[0])
    option, _, folder = pages.partition("=")
    assert (option, Path(folder).resolve()) == ("--web.local-assets", tree.resolve() / "usr/share/prometheus/web")
    assert (address, options(*given)) == (given[0], given)


def test_an_old_prometheus_is_of_no_use(tmp_path: Path) -> None:
    for version, good in (("3.5.3+ds1", True), ("3.11.0", True), ("3.4.9", False), ("2.53.5", False)):
        made = program(tmp_path / "program", f"echo 'prometheus, version {version} (branch: x)'")
        assert (is_recent(made) == "") is good, version


# -- make -------------------------------------------------------------------------------------------------------------
def test_a_machine_without_python_is_one_line() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = [need("make"), "test", "PYTHON=no-such-python"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=clean)
    first, *others = done.stderr.splitlines()
    assert done.returncode != 0
    assert "needs Python 3.10 or newer" in first and "no-such-python" in first
    assert all(line.startswith("make: ***") for line in others)


def test_a_python_that_is_too_old_or_lacks_its_library_is_one_line(tmp_path: Path) -> None:
    text = ENTRY.read_text()
    ast.parse(text, feature_version=(3, 4))  # else an old one would see nothing but a mistake of syntax
    old = f"import sys; sys.version_info = (3, 9, 2); exec(compile({text!r}, {str(ENTRY)!r}, 'exec'))"
    copy = tmp_path / "tests" / "lab" / "bring"  # python3-minimal has a part of the library only
    copy.mkdir(parents=True)
    shutil.copy(ENTRY, copy)
    (copy / "command.py").write_text("import no_such_part_of_the_library\n")
    for command, word in ((["-c", old], "this is 3.9;"), (["-ES", str(copy / "__main__.py")], "no_such_part")):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
        assert word in done.stderr


def test_the_single_file_names_what_a_minimal_python_lacks(tmp_path: Path) -> None:
    """Debian's python3-minimal has neither shutil nor what needs it."""
    (tmp_path / "shutil.py").write_text("raise ModuleNotFoundError(\"No module named 'shutil'\", name='shutil')\n")
    command, around = [sys.executable, "-S", str(SINGLE)], {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("coldplate: ")
    assert "'shutil'" in done.stderr and "install python3" in done.stderr
