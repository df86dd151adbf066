"""The Debian package as it is built, with wheels that are stand-ins: `make test-packages` builds the real one."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agent import __version__
from tests.lab.bring.wheels import PYTHONS

ROOT = Path(__file__).resolve().parents[3]
MOMENT = 1767225600
pytestmark = pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb: this is no Debian")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the checkout, with this environment and a path with a space in it."""
    folder = tmp_path_factory.mktemp("the package")
    source = folder / "source"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "tests", "images")
    shutil.copytree(ROOT, source, ignore=left_out)
    (source / ".venv" / "bin").mkdir(parents=True)
    (source / ".venv" / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (source / ".venv" / "bin" / "python").chmod(0o755)
    for each in (*PYTHONS, "common", "build"):
        (folder / "wheels" / each).mkdir(parents=True)
        with zipfile.ZipFile(folder / "wheels" / each / "stand_in-1.whl", "w") as wheel:
            wheel.writestr("stand_in.py", f"FOR = '{each}'\n")
    command = ["sh", str(source / "packaging" / "deb" / "build.sh"), str(folder / "wheels"), "x86_64", str(folder)]
    own = {"SOURCE_DATE_EPOCH": str(MOMENT), "MAINTAINER": "us <us@example.org>", "COMPRESSION": "none"}
    settings = {**os.environ, **own}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.deb"))


@pytest.fixture(scope="module")
def unpacked(package: Path) -> Path:
    folder = package.parent / "unpacked"
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(folder)], check=True)
    return folder


def test_its_name_and_fields_are_those_of_the_product(package: Path, unpacked: Path) -> None:
    control = (unpacked / "DEBIAN" / "control").read_text()
    assert package.name == f"coldplate_{__version__}_amd64.deb"
    assert f"Version: {__version__}\nArchitecture: amd64\nMaintainer: us <us@example.org>\n" in control
    assert "@" not in control.replace("us@example.org", "")
    assert (unpacked / "DEBIAN" / "conffiles").read_text() == "/etc/coldplate/coldplate.yaml\n"
    scripts = [(unpacked / "DEBIAN" / each) for each in ("preinst", "postinst", "prerm", "postrm")]
    assert all(os.access(each, os.X_OK) and "@SCRIPTLETS@" not in each.read_text() for each in scripts)
    assert all("compile_program() {" in (unpacked / "DEBIAN" / each).read_text() for each in ("postinst", "prerm"))


def test_every_file_has_its_sum_root_owns_it_and_it_is_of_the_given_moment(package: Path, unpacked: Path) -> None:
    noted = [line.split("  ", 1) for line in (unpacked / "DEBIAN" / "md5sums").read_text().splitlines()]
    sums = {name: digest for digest, name in noted}
    files = [
        each
        for top in ("opt", "usr")
        for each in (unpacked / top).rglob("*")
        if each.is_file() and not each.is_symlink()
    ]
    assert sums == {
        str(each.relative_to(unpacked)): hashlib.md5(each.read_bytes(), usedforsecurity=False).hexdigest()
        for each in files
    }
    listed = subprocess.run(
        ["dpkg-deb", "--contents", str(package)],
        env={**os.environ, "TZ": "UTC"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    assert {" ".join(line.split()[3:5]) for line in listed} == {"2026-01-01 00:00"}
    assert not [line for line in listed if line[0] != "l" and line.split()[0][1:] not in ("rwxr-xr-x", "rw-r--r--")]


def test_nothing_in_it_tells_where_it_was_made(package: Path, unpacked: Path) -> None:
    here = str(package.parent).encode()
    assert [each for each in unpacked.rglob("*") if each.is_file() and here in each.read_bytes()] == []
    assert not [each for each in unpacked.rglob("*") if each.name in ("RECORD", "__pycache__", "tests")]


LINK = re.compile(r"(?<!!)\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)")
OF_A_CHECKOUT = re.compile(r"(?:\.\./)*(?:packaging|tests|CONTRIBUTING|LICENSE|docs/images|images)\b")
"""What only whoever has a checkout can follow."""


def test_it_carries_the_documents_with_links_that_hold_and_the_files_of_servers(unpacked: Path) -> None:
    doc = unpacked / "usr" / "share" / "doc" / "coldplate"
    for name in ("README.md", "docs/install.md", "docs/first-hour.md", "alerts/runbooks/GpuLost.md"):
        assert (doc / name).is_file(), name
    for path in doc.rglob("*.md"):
        broken = [link for link in LINK.findall(path.read_text()) if not (path.parent / link).exists()]
        assert [link for link in broken if not OF_A_CHECKOUT.match(link)] == [], path
    assert (doc / "examples" / "prometheus" / "prometheus.yml").is_file()
    assert (doc / "examples" / "fleet" / "rules" / "global.rules.yml").is_file()
    code = next((unpacked / "opt" / "coldplate" / "lib").rglob("alerts"))
    assert {"alertmanager.yml", "coldplate.tmpl", "fleet.rules.yml"} <= {
        each.name for each in (code / "server").iterdir()
    }
