"""What packages carry beside the product: the locked wheels, for every Python that a node may have, of one machine."""

import hashlib
import json
import shutil
from pathlib import Path

from tests.lab.bring.archive import ShortageError
from tests.lab.bring.environment import Environment, write

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
MACHINES = ("x86_64", "aarch64")
SYSTEMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_24", "manylinux_2_17", "manylinux2014")
"""Whose C library a wheel may ask for: RHEL 8's (2.28) is the oldest of those with a Python 3.10 or newer."""
LOCKS = Path("packaging", "locks")
PROGRAM = LOCKS / "top.txt"
"""`base.txt` and the libraries of `coldplate top`."""
BUILD = LOCKS / "build.txt"
COMMON, BUILDING = "common", "build"
NOTE = "complete.json"


class Wheelhouse:
    """The wheels of one machine in `folder`: in `common`, in a folder for each Python, and what builds the product.

    Raises ShortageError where they cannot be had; pip checks each against the hashes of the locks.
    """

    def __init__(self, root: Path, folder: Path, environment: Environment) -> None:
        self._root, self._folder, self._environment = root, folder, environment

    def provide(self, machine: str) -> Path:
        """Bring what is missing; gives the folder of the machine's wheels."""
        if machine not in MACHINES:
            raise ShortageError(f"no wheels are locked for {machine!r}, only for {' and '.join(MACHINES)}")
        place = self._folder / machine
        if not self._whole(place):
            print(f"fetching the locked wheels for {machine}, Python {PYTHONS[0]} to {PYTHONS[-1]} ...", flush=True)
            shutil.rmtree(place, ignore_errors=True)
            self._fetch(place, machine)
            write(place / NOTE, json.dumps({"locks": self._locks(), "files": names(place)}, indent=1) + "\n")
        return place

    def _fetch(self, place: Path, machine: str) -> None:
        systems = [option for each in SYSTEMS for option in ("--platform", f"{each}_{machine}")]
        for python in PYTHONS:
            self._download(place / python, PROGRAM, *systems, "--python-version", python)
        self._download(place / BUILDING, BUILD)
        share(place)

    def _download(self, folder: Path, lock: Path, *options: str) -> None:
        chosen = ("--require-hashes", "--only-binary=:all:", "--no-deps", *options, "--dest", str(folder))
        if failed := self._environment.pip("download", *chosen, "-r", str(lock)):
            words = "\n".join(failed)
            raise ShortageError(
                f"{words}\npip could not fetch what {lock} names. It needs a network or a mirror, named in pip's own "
                "settings (pip.conf, PIP_INDEX_URL, HTTPS_PROXY); then run make again"
            )

    def _locks(self) -> str:
        """What the wheels were chosen by: when it changes, so do they."""
        held = b"".join((self._root / each).read_bytes() for each in (PROGRAM, BUILD))
        return hashlib.sha256(repr((PYTHONS, SYSTEMS)).encode() + held).hexdigest()

    def _whole(self, place: Path) -> bool:
        try:
            note = json.loads((place / NOTE).read_bytes())
            return bool(note == {"locks": self._locks(), "files": names(place)})
        except (OSError, ValueError):
            return False


def share(place: Path) -> None:
    """Move what every Python has, the same file, into `common`."""
    folders = [place / each for each in PYTHONS]
    common = set.intersection(*({file.name for file in folder.glob("*.whl")} for folder in folders))
    (place / COMMON).mkdir(exist_ok=True)
    for name in common:
        (folders[0] / name).rename(place / COMMON / name)
        for folder in folders[1:]:
            (folder / name).unlink()


def names(place: Path) -> list[str]:
    return sorted(str(file.relative_to(place)) for file in place.rglob("*.whl"))
