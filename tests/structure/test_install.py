"""`make install` for a package: everything below DESTDIR, nothing that tells where it was made, and nothing left after.

Python is a stand-in here that makes the few files which matter; `make test-systemd` installs with a real one.
"""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "etc/systemd/system/coldplate.service", "etc/systemd/system/coldplate-broker.socket",
    "etc/systemd/system/coldplate-broker.service", "etc/systemd/system/coldplate-kubelet.socket",
    "etc/systemd/system/coldplate-kubelet.service", "etc/sysusers.d/coldplate.conf",
    "etc/udev/rules.d/70-coldplate.rules", "etc/tmpfiles.d/coldplate.conf", "usr/local/bin/coldplate",
    "usr/local/share/bash-completion/completions/coldplate", "usr/local/share/zsh/site-functions/_coldplate",
    *(f"usr/local/share/man/man1/{page.name}" for page in (ROOT / "packaging" / "man").iterdir()),
}  # fmt: skip


PYTHON = (ROOT / "tests" / "structure" / "python.sh").read_text()


def install(verb: str, **settings: object) -> subprocess.CompletedProcess[str]:
    given = {name: str(value) for name, value in settings.items()}
    command = ["sh", str(ROOT / "packaging" / "install.sh"), verb]
    return subprocess.run(command, env={**os.environ, **given}, capture_output=True, text=True, check=False)


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A Python that claims to live in BASE."""
    script = tmp_path / "python"
    script.write_text(PYTHON)
    script.chmod(0o755)
    return str(script)


def files(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file() or path.is_symlink()}


def test_a_package_is_built_and_unpacked(tmp_path: Path, python: str) -> None:
    place = tmp_path / "root"
    settings = {"DESTDIR": place, "PREFIX": "/usr/lib/coldplate", "PYTHON": python, "BASE": "/opt/python3.12"}
    done = install("install", **settings)
    assert done.returncode == 0, done.stderr
    assert "installed" in done.stdout
    found = files(place)
    brought = {name for name in found if not name.startswith("usr/lib/coldplate/")}
    assert brought == {*FILES, "etc/systemd/system/coldplate-broker.service.d/python.conf"}
    assert (
        "BindReadOnlyPaths=/opt/python3.12"
        in (place / "etc/systemd/system/coldplate-broker.service.d/python.conf").read_text()
    )
    unit = (place / "etc/systemd/system/coldplate.service").read_text()
    assert "ExecStart=/usr/lib/coldplate/bin/coldplate run" in unit
    script = (place / "usr/lib/coldplate/bin/coldplate").read_text()
    assert script.startswith("#!/usr/lib/coldplate/bin/python")
    assert str((place / "usr/local/bin/coldplate").readlink()) == "/usr/lib/coldplate/bin/coldplate"
    made = found - {"usr/local/bin/coldplate"}
    assert [name for name in made if str(place) in (place / name).read_text()] == []
    assert install("uninstall", **settings).returncode == 0
    assert files(place) == set()


def test_a_second_installation_takes_the_place_of_the_first(tmp_path: Path, python: str) -> None:
    settings = {"DESTDIR": tmp_path / "root", "PREFIX": "/opt/coldplate", "PYTHON": python}
    assert install("install", **settings).returncode == 0
    stale = tmp_path / "root/opt/coldplate/stale"
    stale.touch()
    assert install("install", **settings).returncode == 0
    assert not stale.exists()
    assert sorted(path.name for path in (tmp_path / "root/opt").iterdir()) == ["coldplate"]


def test_one_that_cannot_be_made_leaves_the_one_in_use(tmp_path: Path, python: str) -> None:
    used = tmp_path / "root/opt/coldplate"
    used.mkdir(parents=True)
    (used / "pyvenv.cfg").touch()
    done = install("install", DESTDIR=tmp_path / "root", PYTHON=python, EXTRAS="broken")
    assert done.returncode != 0
    assert files(tmp_path / "root") == {"opt/coldplate/pyvenv.cfg"}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"PREFIX": "/home/me/coldplate"}, "services do not see it"),
        ({"PREFIX": "coldplate"}, "absolute path"),
        ({"PREFIX": "/opt/cold plate"}, "letters, digits"),
        ({"BASE": "/root/.pyenv/versions/3.12"}, "services do not see"),
        ({"PYTHON": "/nowhere/python3"}, "missing or older than 3.10"),
    ],
)
def test_what_could_not_work_is_refused_with_the_remedy(
    tmp_path: Path, python: str, settings: dict[str, str], words: str
) -> None:
    done = install("install", **{"DESTDIR": tmp_path / "root", "PYTHON": python, **settings})
    assert done.returncode == 1
    assert words in done.stderr
    assert not (tmp_path / "root").exists()


def test_a_directory_that_is_not_ours_is_left_alone(tmp_path: Path, python: str) -> None:
    theirs = tmp_path / "root/opt/coldplate/precious"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    for verb in ("install", "uninstall"):
        done = install(verb, DESTDIR=tmp_path / "root", PYTHON=python)
        assert done.returncode == 1
        assert "no environment of coldplate's" in done.stderr
        assert theirs.exists()
