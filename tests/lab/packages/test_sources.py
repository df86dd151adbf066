"""What the packages say of themselves agrees, with one another and with what they are made from."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.lab.bring.wheels import PYTHONS

ROOT = Path(__file__).resolve().parents[3]
PACKAGING = ROOT / "packaging"
SPEC = (PACKAGING / "rpm" / "coldplate.spec").read_text()
PLACES = {
    "PREFIX": "/opt/coldplate",
    "UNITDIR": "/usr/lib/systemd/system",
    "SYSUSERSDIR": "/usr/lib/sysusers.d",
    "UDEVDIR": "/usr/lib/udev/rules.d",
    "TMPFILESDIR": "/usr/lib/tmpfiles.d",
    "BINDIR": "/usr/bin",
    "SHAREDIR": "/usr/share",
}
SCRIPTS = sorted(
    [*PACKAGING.rglob("*.sh"), *(PACKAGING / "deb" / each for each in ("preinst", "postinst", "prerm", "postrm"))]
)


@pytest.fixture
def installed(tmp_path: Path) -> set[str]:
    """What `install.sh files` puts into a package, as paths on a node."""
    settings = {**os.environ, **PLACES, "DESTDIR": str(tmp_path), "PYTHON": "/nonexistent"}
    command = ["sh", str(PACKAGING / "install.sh"), "files"]
    subprocess.run(command, env=settings, capture_output=True, check=True)
    return {f"/{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*") if not path.is_dir() or path.is_symlink()}


def test_the_files_of_a_package_are_those_of_an_installation_and_the_configuration(installed: set[str]) -> None:
    """One list: what `make install` puts below /etc and /usr/local, a package puts where packages put it."""
    units = {f"/usr/lib/systemd/system/{path.name}" for path in (PACKAGING / "systemd").iterdir()}
    pages = {f"/usr/share/man/man1/{path.name}" for path in (PACKAGING / "man").iterdir()}
    assert units | pages <= installed
    assert {"/etc/coldplate/coldplate.yaml", "/usr/bin/coldplate", "/usr/lib/sysusers.d/coldplate.conf"} <= installed
    assert not [each for each in installed if each.startswith(("/usr/local", "/opt", "/etc/systemd"))]
    command, nowhere = ["sh", str(PACKAGING / "install.sh"), "files"], {**os.environ, "DESTDIR": ""}
    refused = subprocess.run(command, env=nowhere, capture_output=True, text=True, check=False)
    assert (refused.returncode, "give DESTDIR" in refused.stderr) == (1, True)


def test_the_rpm_lists_each_of_these_files_and_no_other(installed: set[str]) -> None:
    section = SPEC.partition("\n%files\n")[2].partition("\n\n")[0]
    listed = [line.split()[-1] for line in section.splitlines() if line.startswith(("/", "%config", "%doc"))]
    patterns = [re.escape(each).replace(r"\*", "[^/]*") for each in listed]
    unlisted = [each for each in installed if not any(re.match(rf"{pattern}(/|\.gz|$)", each) for pattern in patterns)]
    assert unlisted == []
    beside = ("/opt/coldplate", "/usr/share/doc/coldplate")
    idle = [
        pattern
        for pattern, name in zip(patterns, listed, strict=True)
        if not name.startswith(beside) and not any(re.match(pattern, each) for each in installed)
    ]
    assert idle == []


def test_every_kind_of_package_takes_the_same_pythons() -> None:
    """Those of pyproject.toml: the first and the last one, and the one after, where they are bounds."""
    first, last = PYTHONS[0], PYTHONS[-1]
    after = f"3.{int(last.partition('.')[2]) + 1}"
    project = (ROOT / "pyproject.toml").read_text()
    assert tuple(re.findall(r"Python :: (3\.\d+)", project)) == PYTHONS
    assert f'requires-python = ">={first}"' in project
    assert f"python3 (>= {first}), python3 (<< {after})" in (PACKAGING / "deb" / "control.in").read_text()
    assert tuple(re.findall(r"python\(abi\) = (3\.\d+)", SPEC)) == PYTHONS
    chosen = (PACKAGING / "rpm" / "pythons.sh").read_text()
    assert tuple(reversed(re.findall(r"/usr/bin/python(3\.\d+)", chosen))) == PYTHONS
    bounds = f"(3, {first.partition('.')[2]}) <= sys.version_info[:2] <= (3, {last.partition('.')[2]})"
    assert bounds in chosen
    single = (ROOT / "tests" / "lab" / "bring" / "self_unpacking.py").read_text()
    assert f"PYTHONS = ((3, {first[2:]}), (3, {last[2:]}))" in single


def test_every_package_starts_the_units_that_the_service_is_enabled_with() -> None:
    unit = (PACKAGING / "systemd" / "coldplate.service").read_text()
    also = re.search(r"(?m)^Also=(.*)", unit)
    assert also is not None
    wanted = {"coldplate.service", *also[1].split()}
    for script in ("deb/postinst", "rpm/build.sh"):
        found = re.search(r"(?m)^units=['\"](.*)['\"]$", (PACKAGING / script).read_text())
        assert found is not None
        assert set(found[1].split()) == wanted


@pytest.mark.parametrize(
    ("python", "packaged"),
    [("0.1.0", "0.1.0"), ("1.2.0rc1", "1.2.0~rc1"), ("1.2.0.dev3", "1.2.0~dev3"), ("2.0b2", "2.0~b2")],
)
def test_a_version_before_a_release_comes_before_it(tmp_path: Path, python: str, packaged: str) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "__init__.py").write_text(f'"""It."""\n\n__version__ = "{python}"\n')
    command = ["sh", "-euc", '. "$0"; echo "$version $package_version"', str(PACKAGING / "release.sh")]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert told.stdout.split() == [python, packaged]
    if shutil.which("dpkg"):
        released = re.sub(r"(rc|\.dev|b)\d+$", "", python) + ".1"
        subprocess.run(["dpkg", "--compare-versions", packaged, "lt", released], check=True)


@pytest.mark.parametrize("script", SCRIPTS, ids=[str(each.relative_to(PACKAGING)) for each in SCRIPTS])
def test_a_script_is_one_for_a_plain_shell(script: Path, tmp_path: Path) -> None:
    """As it is on a node: with what the build puts into it."""
    whole = tmp_path / script.name
    text = script.read_text()
    for mark, name in (("@SCRIPTLETS@", "scriptlets.sh"), ("@PYTHONS@", "rpm/pythons.sh")):
        text = text.replace(f"\n{mark}\n", f"\n{(PACKAGING / name).read_text()}\n")
    whole.write_text(text)
    shell = "bash" if text.startswith("#!/bin/bash") else "sh"
    assert subprocess.run([shell, "-n", str(whole)], capture_output=True, text=True, check=False).stderr == ""
    judge = shutil.which("shellcheck")
    if judge is not None:  # its opinions beyond errors and warnings differ by version
        left_out = "SC1091,SC2034,SC2154"  # what a sourced file gives and takes
        said = subprocess.run(
            [judge, "--severity=warning", f"--exclude={left_out}", str(whole)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert said.stdout == ""
