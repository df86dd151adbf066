"""What is tried: this checkout, as somebody else would get it."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.lab.bare.machine import Machine, Roots
from tests.lab.bare.outcome import Outcome
from tests.lab.bring.archive import Archive, ShortageError


class Checkout:
    """The last commit of a repository."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._commit = self._git("rev-parse", "HEAD")
        dirty = self._git("status", "--porcelain", "--untracked-files=normal")
        left_out = f"\nNOT tried are the uncommitted changes in\n{dirty}" if dirty else ""
        self.title = self._git("log", "-1", "--format=%h %s", self._commit) + left_out

    def put(self, folder: Path) -> None:
        """Its files, without a repository, in a new folder."""
        folder.mkdir(parents=True)
        with subprocess.Popen(["git", "archive", self._commit], cwd=self._root, stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "--no-same-owner", "-C", str(folder)], stdin=archive.stdout, check=True)

    def _git(self, *arguments: str) -> str:
        try:
            return subprocess.run(
                ["git", *arguments], cwd=self._root, stdout=subprocess.PIPE, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError) as error:
            raise ShortageError(
                f"git {arguments[0]}: {error}; what is tried is the last commit of a checkout"
            ) from error


TRIED = Path(__file__).with_name("inside.py")
ENTER = Path(__file__).with_name("enter.sh")
UID = 1000
CHECKOUT = "my work/coldplate"
"""Below the home folder; the space is meant."""
LIMIT = 45 * 60
SEARCHED = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
APART = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]


def furnish(run: Path, machine: Machine) -> None:
    """Lay ready what enter.sh takes: what lies over the root, `out`, which is /mnt/out there, and what to bind."""
    run.chmod(0o755)
    for each in (run / "upper" / "etc", run / "out"):
        each.mkdir(parents=True)
    machine.furnish(run / "upper")
    (run / "bind").write_text("".join(f"{each}\n" for each in machine.folders))


def entering(base: Path, run: Path, user: str, settings: Mapping[str, str]) -> list[str]:
    """Return the command that runs the one behind it in a copy of the root `base`, with these settings alone."""
    given = (f"{name}={value}" for name, value in settings.items())
    return [*APART, "sh", str(ENTER), str(base), str(run), user, "env", "-i", *given]


def tried(roots: Roots, suite: str, user: str, checkout: Checkout, tests: str) -> Outcome:
    """Try the checkout in a copy of a bare root, with nothing but that and the ways to the network.

    Its processes and mounts, and what it writes outside `.programs/bare`, are gone afterwards.
    """
    base = roots.of(suite)
    run = Path(tempfile.mkdtemp(prefix="run-", dir=roots.folder))
    kept = roots.folder / f"{suite}-{user}"
    home = Path("/root" if user == "root" else "/home/someone")
    machine = Machine.found()
    try:
        furnish(run, machine)
        _fill(run / "upper", base, home, checkout)
        if user != "root":
            for each in [run / "out", run / "upper/home/someone", *(run / "upper/home/someone").rglob("*")]:
                os.chown(each, UID, UID)
        _enter(base, run, home, machine, tests)
        return Outcome.read(suite, user, run / "out", touched(run, home))
    finally:
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(run / "out", kept, dirs_exist_ok=True)
        shutil.rmtree(run)


def _fill(upper: Path, base: Path, home: Path, checkout: Checkout) -> None:
    """Fill the upper layer before it is mounted; `home` is the home folder, as it is seen inside."""
    for name, line in (("passwd", f"someone:x:{UID}:{UID}::/home/someone:/bin/sh"), ("group", f"someone:x:{UID}:")):
        text = (base / "etc" / name).read_text()
        (upper / "etc" / name).write_text(f"{text}{line}\n")
    checkout.put(upper / str(home)[1:] / CHECKOUT)
    shutil.copy2(TRIED, upper / "inside.py")


def _enter(base: Path, run: Path, home: Path, machine: Machine, tests: str) -> None:
    """Run inside.py to its end or to `LIMIT`, which the log then says. Whatever it came to is in RUN/out."""
    settings = {**machine.environment, "HOME": str(home), "PATH": SEARCHED, "USER": home.name, "TERM": "dumb"}
    number = "root" if home.name == "root" else str(UID)
    inside = f'cd "{home}/{CHECKOUT}" && touch /mnt/out/began && exec python3 /inside.py /mnt/out "$0"'
    command = [*entering(base, run, number, settings), "sh", "-c", inside, tests]
    with (run / "out" / "place.log").open("wb") as file:
        try:
            subprocess.run(
                command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            file.write(f"it was ended after {LIMIT // 60} minutes\n".encode())


def why_no_root_can_be_entered() -> str:
    """What keeps this user from it, in a few words; nothing if nothing does."""
    if os.geteuid() != 0:
        return "only root can enter another root"
    lacking = [each for each in ("unshare", "setpriv", "mount", "chroot", "tar") if shutil.which(each) is None]
    if lacking or not Archive.exists():
        return "it needs a Debian or one of its derivatives, with util-linux and tar"
    with tempfile.TemporaryDirectory() as folder:  # root of a container often may not
        mounts = 'mount --make-rprivate / && mount -t tmpfs tmpfs "$0" && mkdir "$0/p" && mount -t proc proc "$0/p"'
        tried = subprocess.run([*APART, "sh", "-c", mounts, folder], capture_output=True, text=True, check=False)
    return f"this root may not mount: {tried.stderr.strip()}" if tried.returncode != 0 else ""


def touched(run: Path, home: Path) -> list[str]:
    """What changed in the root since it was entered, but for the checkout."""
    began = run / "out" / "began"
    if not began.exists():
        return []
    copied = run / "root" if (run / "root" / "usr").exists() else run / "upper"
    return changes(copied, home / CHECKOUT, began.stat().st_ctime)


def changes(root: Path, checkout: Path, since: float) -> list[str]:
    """Files of a root that were made or changed since a moment, outside the checkout."""
    found = []
    for folder, folders, files in os.walk(root):
        seen = Path("/", os.path.relpath(folder, root))
        if seen == checkout:
            folders.clear()
            continue
        found += [str(seen / name) for name in files if Path(folder, name).lstat().st_ctime > since]
    return found
