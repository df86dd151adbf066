"""A bare root of a Debian release, in which packages are installed as an operator does it, and which is thrown away."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.lab.bare.machine import Machine, Roots
from tests.lab.bare.place import SEARCHED, entering, furnish, why_no_root_can_be_entered
from tests.lab.bring.archive import Archive, ShortageError

INSIDE = Path(__file__).resolve().parent / "inside.sh"
LIMIT = 20 * 60


def in_root(roots: Roots, suite: str, folder: Path, machine: Machine, files: Sequence[Path]) -> bool:
    """Run inside.sh, which says in lines what it sees, in a copy of the suite's root with files laid beside it."""
    base = roots.of(suite)
    settings = {
        **machine.environment,
        "HOME": "/root",
        "PATH": SEARCHED,
        "TERM": "dumb",
        "LC_ALL": "C",
        "DEBIAN_FRONTEND": "noninteractive",
        "SUITE": suite,
    }
    with tempfile.TemporaryDirectory(prefix="package-", dir=folder) as name:
        run = Path(name)
        furnish(run, machine)
        for each in (INSIDE, *files):
            shutil.copy2(each, run / "out")
        command = [*entering(base, run, "root", settings), "sh", "/mnt/out/inside.sh"]
        try:
            done = subprocess.run(command, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            print(f"FAIL {suite}: it was ended after {LIMIT // 60} minutes", file=sys.stderr)
            return False
    return done.returncode == 0


ROOT = Path(__file__).resolve().parents[3]
SUITES = ("bookworm", "trixie")
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
KINDS = {"deb": "packaging/deb/build.sh", "rpm": "packaging/rpm/build.sh", "pyz": "packaging/single.sh"}
"""What builds each kind, by the end of its name."""


def main() -> int:
    built = {kind: _newest(kind) for kind in KINDS}
    good = [_is_reproduced(kind, file) for kind, file in built.items()]
    good += _in_roots(list(built.values()))
    good += _in_a_container()
    good.append(_on_systemd(built["deb"]))
    return 0 if all(good) else 1


def _newest(kind: str) -> Path:
    files = sorted((ROOT / "dist").glob(f"coldplate*.{kind}"), key=lambda each: each.stat().st_mtime)
    if not files:
        sys.exit(f"coldplate: there is no dist/coldplate*.{kind}: make deb rpm single")
    return files[-1]


def _is_reproduced(kind: str, file: Path) -> bool:
    machine = os.uname().machine
    with tempfile.TemporaryDirectory() as folder:
        command = ["sh", KINDS[kind], f".programs/wheels/{machine}", machine, folder]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        sums = {hashlib.sha256(each.read_bytes()).hexdigest() for each in (file, *Path(folder).iterdir())}
    same = len(sums) == 1
    print(f"{'ok  ' if same else 'FAIL'} {file.name}: built again, {'the same' if same else 'other'} bytes", flush=True)
    return same


def _in_roots(files: list[Path]) -> list[bool]:
    """What is forbidden here is said and is no failure, as in `make test-bare`."""
    if reason := why_no_root_can_be_entered():
        print(f"SKIPPED: nothing was installed in a bare root: {reason}", file=sys.stderr)
        return []
    folder = ROOT / ".programs" / "bare"
    folder.mkdir(parents=True, exist_ok=True)
    machine = Machine.found()
    try:
        roots = Roots(folder, Archive(ROOT / ".programs" / "apt"), None)
        return [in_root(roots, suite, folder, machine, files) for suite in SUITES]
    except ShortageError as shortage:
        print(f"SKIPPED: {shortage}", file=sys.stderr)
        return [False]


def _in_a_container() -> list[bool]:
    """The image, where buildah is installed; the base is a bare root, for no registry is asked."""
    if shutil.which("buildah") is None or os.geteuid() != 0:
        print("SKIPPED: no image was built: it needs buildah, and root", file=sys.stderr)
        return []
    machine = Machine.found()
    roots = Roots(ROOT / ".programs" / "bare", Archive(ROOT / ".programs" / "apt"), None)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        base = Path(folder, "base")
        subprocess.run(["cp", "-a", "--reflink=auto", str(roots.of("trixie")), str(base)], check=True)
        machine.furnish(base)
        # The package ca-certificates, which the image's build installs, writes the bundle anew.
        own = base / "usr/local/share/ca-certificates"
        own.mkdir(parents=True)
        shutil.copyfile(CERTIFICATES, own / "machine.crt")
        command = ["bash", str(Path(__file__).with_name("container.sh")), str(base), f"{folder}/images"]
        settings = {**os.environ, **machine.environment}
        done = subprocess.run([*command, *map(str, machine.folders)], cwd=ROOT, env=settings, check=False)
    print(f"{'FAIL' if done.returncode else 'ok  '} the image, built and run by buildah", flush=True)
    return [done.returncode == 0]


def _on_systemd(package: Path) -> bool:
    command = [sys.executable, "-m", "tests.lab.systemd", "--package", str(package)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


sys.exit(main())
