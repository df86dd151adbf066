"""The private environment .venv, made, extended or made anew: whatever is found there, afterwards it is complete.

`.venv/complete.json` is written last and says what it is complete for. An environment without it was interrupted; one
whose Python is gone, or that was made elsewhere (scripts hold absolute paths), is of no use. Both are made anew.
"""

import hashlib
import importlib.util
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from tests.lab.bring.archive import Archive, ShortageError

TOOLS = "tools"
"""What make and the tests use beside the product, in the versions and with the hashes of `LOCKED`."""
LOCKED = Path("tests", "tools.txt")
DEVELOPMENT = ("dashboards", "kubernetes", "top", TOOLS)
EXTRAS = {"run": ("top",), "dev": DEVELOPMENT, "bench": (*DEVELOPMENT, "bench")}
"""The extras of the project that each purpose needs, and whether the tools."""
WHEELS = Path("/usr/share/python-wheels")
"""Where Debian keeps the pip that its venv module would copy."""


class Environment:
    def __init__(self, root: Path, archive: Archive) -> None:
        self._root = root
        self._archive = archive
        self._folder = root / ".venv"
        self._python = self._folder / "bin" / "python"
        self._note = self._folder / "complete.json"

    def provide(self, purpose: str, *, named: bool) -> None:
        """Complete for `purpose`. `named`: the person named a Python, so one that another made is replaced."""
        if purpose not in EXTRAS:
            raise ShortageError(f"there is no environment for {purpose!r}, only for {', '.join(EXTRAS)}")
        note = self._read()
        usable = (
            note.get("root") == str(self._root)
            and self._runs(note)
            and not (named and note["python"] != whole_version())
        )
        if not usable:
            note = self._make()
        wanted = sorted({*EXTRAS[purpose], *note["extras"]})
        if note["project"] == self.made_from(wanted) and set(wanted) == set(note["extras"]):
            return
        self._install(note, wanted)

    def pip(self, command: str, *arguments: str) -> list[str]:
        """Run the environment's pip, which must be there, as this machine reaches its index; what it said if it failed,
        else nothing."""
        options = ("--quiet", "--disable-pip-version-check", "--no-input")
        return self._run(str(self._python), "-I", "-m", "pip", command, *options, *arguments)

    def made_from(self, extras: Iterable[str]) -> str:
        """Return a hash of what an environment with these extras is made from: when it changes, so must that."""
        files = [Path("pyproject.toml"), *([LOCKED] if TOOLS in extras else [])]
        return hashlib.sha256(b"".join((self._root / each).read_bytes() for each in files)).hexdigest()

    def _read(self) -> dict:
        try:
            note = json.loads(self._note.read_bytes())
            return note if {"root", "python", "extras", "project"} <= set(note) else {}
        except (OSError, ValueError, TypeError):
            return {}

    def _runs(self, note: dict) -> bool:
        """Whether its Python starts, and is the one that its libraries lie beside."""
        command = [str(self._python), "-Ic", "import sys; print(sys.version.split()[0])"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError:
            return False
        return done.returncode == 0 and minor(done.stdout.strip()) == minor(note["python"])

    def _make(self) -> dict:
        if os.path.lexists(self._folder):
            print("the .venv that is here is incomplete, or of another Python or place: making it anew ...", flush=True)
            self._remove()
        print("making .venv: a Python environment in this checkout, with pip ...", flush=True)
        self._folder.mkdir()  # whoever may not write here is told so before all else
        try:
            self._fill()
        except BaseException:
            self._remove()
            raise
        note = {"root": str(self._root), "python": whole_version(), "extras": [], "project": ""}
        self._write(note)
        return note

    def _fill(self) -> None:
        if importlib.util.find_spec("venv") is None:
            raise ShortageError(
                "this Python has no venv module: install your distribution's whole Python (Debian: python3-venv)"
            )
        made = self._run(sys.executable, "-I", "-m", "venv", "--without-pip", str(self._folder))
        if made:
            raise ShortageError(f"python -m venv .venv: {made[-1]}")
        self._bring_pip()

    def _remove(self) -> None:
        if self._folder.is_symlink() or self._folder.is_file():
            self._folder.unlink()
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
            if self._folder.exists():
                raise ShortageError(
                    f"{self._folder} cannot be removed: it belongs to another user; remove it, then run make again"
                )

    def _bring_pip(self) -> None:
        """From this Python's ensurepip, or from Debian's wheel where ensurepip is a package of its own."""
        if importlib.util.find_spec("ensurepip") is not None and not self._run(str(self._python), "-Im", "ensurepip"):
            return
        wheel = next(iter(sorted(WHEELS.glob("pip-*.whl"))), None) or self._fetched_wheel()
        failed = self._run(
            str(self._python), "-I", f"{wheel}/pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)
        )
        if failed:
            raise ShortageError(f"pip cannot be put into .venv: {failed[-1]}")

    def _fetched_wheel(self) -> Path:
        tree = self._root / ".programs" / "unpacked" / "python3-pip-whl"
        try:
            if not tree.is_dir():
                self._archive.unpack(self._archive.fetch("python3-pip-whl"), tree)
            return next(tree.glob("usr/share/python-wheels/pip-*.whl"))
        except (ShortageError, StopIteration) as error:
            raise ShortageError(
                "this Python has no pip to put into .venv: install your distribution's python3-venv package "
                f"(Debian: apt-get install python3-venv) and run make again; fetching it into .programs failed: {error}"
            ) from None

    def _install(self, note: dict, extras: list[str]) -> None:
        purpose = " for development" if TOOLS in extras else ""
        print(f"setting up .venv{purpose}: pip fetches and installs packages, for a minute or more ...", flush=True)
        begun = time.monotonic()
        self._note.unlink()  # until pip is through, nobody knows what is there
        chosen = ",".join(each for each in extras if each != TOOLS)
        failed = self.pip("install", "--require-hashes", "-r", str(LOCKED)) if TOOLS in extras else []
        # By a line in a .pth file, as an installed wheel is found: a finder of setuptools takes 20 ms of each start.
        plain = ("--config-settings", "editable_mode=compat")
        failed = failed or self.pip("install", *plain, "-e", f".[{chosen}]" if chosen else ".")
        if failed:
            self._write(note)  # pip changes nothing when it fails: what was complete still works
            print("\n".join(failed), file=sys.stderr)
            raise ShortageError(
                "pip could not set up .venv (its words are above). It needs a network or a mirror, named in pip's own "
                "settings (pip.conf, PIP_INDEX_URL, HTTPS_PROXY); then run make again"
            )
        self._write({**note, "extras": extras, "project": self.made_from(extras)})
        print(f".venv is ready, after {time.monotonic() - begun:.0f} s of pip", flush=True)

    def _write(self, note: dict) -> None:
        write(self._note, json.dumps(note, indent=1) + "\n")

    def _run(self, *command: str) -> list[str]:
        """What a command that failed said, without the lines of a traceback; nothing if it did not fail."""
        done = subprocess.run(
            command, cwd=self._root, capture_output=True, text=True, errors="replace", check=False,
            stdin=subprocess.DEVNULL, env=self._settings(),
        )  # fmt: skip
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        return (said or [f"exit status {done.returncode}"]) if done.returncode != 0 else []

    def _settings(self) -> dict[str, str]:
        """The machine's, but for what would put files elsewhere."""
        elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH", "PYTHONHOME")
        kept = {name: value for name, value in os.environ.items() if name not in elsewhere}
        kept["PIP_USER"] = "0"
        kept.setdefault("PIP_CACHE_DIR", str(self._root / ".programs" / "pip"))
        bundle = self._certificates()
        if bundle is not None:
            kept.setdefault("PIP_CERT", str(bundle))
        return kept

    def _certificates(self) -> Path | None:
        """Debian's certificates, where pip is Debian's, which looks for them on the machine and finds none."""
        tree = self._root / ".programs" / "unpacked" / "python3-pip-whl"
        paths = ssl.get_default_verify_paths()
        if not tree.exists() or paths.cafile or (paths.capath and any(Path(paths.capath).iterdir())):
            return None
        bundle = tree.with_name("ca-certificates") / "all.pem"
        if not bundle.exists():
            self._archive.unpack(self._archive.fetch("ca-certificates"), bundle.parent)
            parts = sorted(bundle.parent.glob("usr/share/ca-certificates/mozilla/*.crt"))
            write(bundle, "".join(each.read_text() for each in parts))
        return bundle


def write(path: Path, text: str) -> None:
    """Write a file that is there as a whole or not at all."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)


def whole_version() -> str:
    return sys.version.split()[0]


def minor(version: str) -> list[str]:
    return version.split(".")[:2]
