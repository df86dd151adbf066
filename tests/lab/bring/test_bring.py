"""What a stranger's first `make` meets: an interrupted set-up, another Python, no network, a file that is not the one
that was listed. The environments and apt are real; pip in them is a stand-in that takes no time and no network.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.lab.bring import deployers
from tests.lab.bring.archive import Archive
from tests.lab.bring.command import main
from tests.lab.bring.programs import Program, Programs, compiles, is_recent
from tests.servers import need

SINGLE = Path(__file__).with_name("self_unpacking.py")

ROOT = Path(__file__).resolve().parents[3]
ENTRY = Path(__file__).with_name("__main__.py")
HELLO = Program("hello", (("newer",), ("hello",)))
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


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Mirror:
    """A Debian archive of tiny packages."""

    def __init__(self, files: Path) -> None:
        self.files = files
        self._listed = ""
        files.mkdir()

    def add(self, name: str, files: dict[str, str | Path], needs: str = "") -> None:
        tree = self.files.parent / f"{name}-tree"
        fields = f"Package: {name}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\n"
        fields += (f"Depends: {needs}\n" if needs else "") + "Description: for a test\n"
        for inside, held in {"DEBIAN/control": fields, **files}.items():
            path = tree / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held.read_bytes() if isinstance(held, Path) else held.encode())
            path.chmod(0o755)
        package = self.files / f"{name}_1_all.deb"
        command = ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", str(tree), str(package)]
        subprocess.run(command, check=True, capture_output=True)
        raw = package.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        self._listed += f"{fields}Filename: ./{package.name}\nSize: {len(raw)}\nSHA256: {digest}\n\n"
        (self.files / "Packages.gz").write_bytes(gzip.compress(self._listed.encode()))
        changed = 1_600_000_000 + self._listed.count("SHA256")  # apt asks for what changed, in whole seconds
        os.utime(self.files / "Packages.gz", (changed, changed))


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Where apt looks for packages in this test, whatever the machine's sources say."""
    if not Archive.exists():
        pytest.skip("this is no Debian: NOTHING is tried of what brings programs from one")
    made = Mirror(tmp_path / "mirror")
    made.add("hello", {"usr/bin/hello": "#!/bin/sh\necho unpacked\n"}, needs="world")
    made.add("world", {"usr/lib/world": "w"})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(made.files)))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
    sources, settings = tmp_path / "sources.list", tmp_path / "apt.conf"
    sources.write_text(f"deb [trusted=yes] http://127.0.0.1:{server.server_port} ./\n")
    settings.write_text(
        f'Dir::Etc::sourcelist "{sources}"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::parts "/dev/null";\n'
        'Acquire::http::Proxy "DIRECT"; Acquire::Retries "0";\n'
        f'APT::Update::Post-Invoke {{ "touch {tmp_path}/the-hook-ran"; }};\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(settings))
    yield made
    server.shutdown()
    server.server_close()


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
    """One that is complete for `run`."""
    assert fresh.provide() == 0
    assert fresh.works()
    (fresh.venv / "mark").touch()  # which is gone when the environment is made again
    capsys.readouterr()
    return fresh


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
    development = [TOOLS, ".[dashboards,kubernetes,otlp,top]"]
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


def test_without_a_network_pips_words_and_one_line_are_printed_and_what_was_there_works(
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


def test_a_python_whose_pip_is_a_package_of_its_own_gets_that_package(
    fresh: Checkout, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.lab.bring.environment.WHEELS", fresh.root / "none")
    assert fresh.provide() == 1
    assert "python3-venv" in one_line(capsys)
    assert not fresh.venv.exists()
    mirror.add("python3-pip-whl", {f"usr/share/python-wheels/{fresh.wheel.name}": fresh.wheel})
    mirror.add("ca-certificates", {"usr/share/ca-certificates/mozilla/A.crt": "a certificate"})
    assert fresh.provide() == 0
    assert fresh.works()


# -- .programs --------------------------------------------------------------------------------------------------------


class Brought:
    """A .programs folder, and a folder of programs that the machine has, before all others."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.machine = folder / "a b" / ".programs", folder / "machine"
        self.ours = self.folder / "usr" / "bin" / "hello"
        self.tree = self.folder / "unpacked" / "hello"
        self.machine.mkdir()
        monkeypatch.setenv("PATH", os.pathsep.join([str(self.ours.parent), str(self.machine), os.environ["PATH"]]))

    def provide(self, *wanted: Program, strict: bool = True) -> int:
        return Programs(self.folder, Archive(self.folder / "apt"), wanted or (HELLO,)).provide(strict=strict)

    def install(self, text: str) -> None:
        (self.machine / "hello").write_text(f"#!/bin/sh\n{text}\n")
        (self.machine / "hello").chmod(0o755)

    def says(self) -> str:
        return subprocess.run([self.ours], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def brought(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Brought:
    found = Brought(tmp_path, monkeypatch)
    assert found.provide() == 0
    return found


def test_what_the_machine_lacks_is_unpacked_once_and_its_own_is_preferred(
    brought: Brought, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert brought.says() == "unpacked"
    assert not (tmp_path / "the-hook-ran").exists()
    capsys.readouterr()
    monkeypatch.setenv("APT_CONFIG", "/nonexistent")  # nothing is fetched a second time
    assert brought.provide() == 0
    assert capsys.readouterr() == ("", "")
    brought.install("exit 3")
    assert brought.provide() == 0
    assert brought.says() == "unpacked"
    brought.install("echo mine")
    assert brought.provide() == 0
    assert not brought.ours.exists()


def test_what_cannot_be_had_is_named_and_fails_only_where_it_must(
    brought: Brought, mirror: Mirror, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror.add("broken", {"usr/bin/broken": "#!/bin/sh\necho why >&2; exit 7\n"})
    absent, broken = Program("absent", (("nosuch",),)), Program("broken", (("broken",),))
    assert brought.provide(absent, broken, HELLO, strict=False) == 0
    said = capsys.readouterr().err
    assert "missing: absent" in said and "nosuch" in said
    assert "missing: broken" in said and "why" in said
    assert shutil.which("broken") is None
    assert brought.says() == "unpacked"
    assert brought.provide(absent) == 1


def test_a_compiler_without_headers_and_an_old_prometheus_are_of_no_use(tmp_path: Path) -> None:
    program = tmp_path / "program"
    for text, proof, good in (
        ('[ "$1" = --version ]', compiles, False),
        *((f"echo 'prometheus, version {version} (branch: x)'", is_recent, good)
          for version, good in (("3.5.3+ds1", True), ("3.11.0", True), ("3.4.9", False), ("2.53.5", False))),
    ):  # fmt: skip
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
        assert (proof(program) == "") is good, text


def test_every_file_that_pip_brings_is_locked_by_its_hash() -> None:
    for name in (deployers.PROGRAMS, deployers.LOCKED):
        text = (ROOT / name).read_text()
        wanted = [line for line in text.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
        assert wanted
        assert all("==" in line and "--hash=sha256:" in line for line in wanted), name
        assert not any(word in text for word in ("http:", "https:", "file:", "index-url", "find-links"))


# -- make -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["run", "test", "programs"])
def test_a_machine_without_python_is_one_line(target: str) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = [need("make"), target, "PYTHON=no-such-python"]
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
    done = subprocess.run(
        [sys.executable, "-S", str(SINGLE)],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("coldplate: ")
    assert "'shutil'" in done.stderr and "install python3" in done.stderr
