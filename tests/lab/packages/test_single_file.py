"""One file that unpacks itself once, for the Python that starts it, and runs what it holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.bring.single_file import pack

MINOR = f"python{sys.version_info.major}.{sys.version_info.minor}"
COMMAND = "import sys, shared, compiled\nprint(sys.argv[1:], shared.NAME, compiled.NAME, sys.prefix)\nsys.exit(3)\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A program as packaging/program.sh makes it, with two libraries."""
    tree = tmp_path / "tree"
    files = {
        "bin/coldplate": COMMAND,
        "bin/python": "no link, here",
        "pyvenv.cfg": "home = /nowhere\n",
        "lib/common/shared.py": "NAME = 'shared'\n",
        **{f"lib/{each}/site-packages/compiled.py": f"NAME = '{each}'\n" for each in (MINOR, "python3.9")},
        f"lib/{MINOR}/site-packages/coldplate.pth": "../../common\n",
    }
    for name, content in files.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(content)
    return tree


def packed(tree: Path, machine: str = os.uname().machine) -> Path:
    out = tree.parent / "a.pyz"
    pack(tree, machine, out)
    return out


@pytest.fixture(autouse=True)
def moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")


def started(file: Path, **settings: Path) -> subprocess.CompletedProcess[str]:
    own = {name: str(value) for name, value in settings.items()}
    command = [sys.executable, str(file), "check", "--now"]
    return subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, check=False)


def test_it_unpacks_once_and_runs_with_the_libraries_of_the_python_that_starts_it(tree: Path, tmp_path: Path) -> None:
    file, cache = packed(tree), tmp_path / "cache"
    done = started(file, XDG_CACHE_HOME=cache)
    assert done.returncode == 3, done.stderr
    (place,) = (cache / "coldplate").iterdir()
    assert done.stdout.split("\n")[0] == f"['check', '--now'] shared {MINOR} {place}"
    assert not (place / "lib" / "python3.9").exists()
    (place / "lib" / "common" / "shared.py").write_text("NAME = 'as it was'\n")
    assert "as it was" in started(file, XDG_CACHE_HOME=cache).stdout
    (tree / "lib" / "common" / "shared.py").write_text("NAME = 'newer'\n")
    assert "newer" in started(packed(tree), XDG_CACHE_HOME=cache).stdout


def test_where_the_cache_cannot_be_written_it_takes_a_folder_of_its_own_below_tmp(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = started(packed(tree), XDG_CACHE_HOME=tmp_path / "file", TMPDIR=tmp_path)
    assert done.returncode == 3, done.stderr
    assert (tmp_path / f"coldplate-{os.getuid()}").stat().st_mode & 0o777 == 0o700


def test_it_takes_no_folder_in_which_others_may_write(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    theirs = tmp_path / f"coldplate-{os.getuid()}"
    theirs.mkdir()
    theirs.chmod(0o777)
    done = started(packed(tree), XDG_CACHE_HOME=tmp_path / "file", TMPDIR=tmp_path)
    assert (done.returncode, list(theirs.iterdir())) == (1, [])
    assert "set XDG_CACHE_HOME" in done.stderr


def test_another_machine_is_told_so(tree: Path, tmp_path: Path) -> None:
    done = started(packed(tree, machine="vax"), XDG_CACHE_HOME=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("coldplate: this file is for vax, and this machine is ")
