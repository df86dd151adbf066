"""A bare root of a Debian release, in which packages are installed as an operator does it, and which is thrown away."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.lab.bare.machine import Machine
from tests.lab.bare.place import APART, ENTER
from tests.lab.bare.roots import Roots

INSIDE = Path(__file__).resolve().parent / "inside.sh"
LIMIT = 20 * 60


class PackageTrial:
    """Runs inside.sh, which says in lines what it sees, in a copy of the root of `suite` with files laid beside it."""

    def __init__(self, roots: Roots, suite: str, folder: Path, machine: Machine) -> None:
        self._roots, self._suite, self._folder, self._machine = roots, suite, folder, machine

    def run(self, files: Sequence[Path]) -> bool:
        """Whether all went well; what was seen is printed as it comes."""
        base = self._roots.of(self._suite)
        run = Path(tempfile.mkdtemp(prefix="package-", dir=self._folder))
        try:
            self._lay(run, files)
            command = [*APART, "sh", str(ENTER), str(base), str(run), "root", "env", "-i", *self._settings(),
                       "sh", "/mnt/out/inside.sh"]  # fmt: skip
            done = subprocess.run(command, timeout=LIMIT, check=False, stdin=subprocess.DEVNULL)
            return done.returncode == 0
        except subprocess.TimeoutExpired:
            print(f"FAIL {self._suite}: it was ended after {LIMIT // 60} minutes", file=sys.stderr)
            return False
        finally:
            shutil.rmtree(run)

    def _lay(self, run: Path, files: Sequence[Path]) -> None:
        for each in (run / "upper" / "etc", run / "out"):
            each.mkdir(parents=True)
        run.chmod(0o755)
        self._machine.furnish(run / "upper")
        (run / "upper" / "etc" / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
        (run / "bind").write_text("".join(f"{each}\n" for each in self._machine.folders))
        for each in (INSIDE, *files):
            shutil.copy2(each, run / "out")

    def _settings(self) -> list[str]:
        settings = {
            **self._machine.environment, "HOME": "/root", "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "TERM": "dumb", "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", "SUITE": self._suite,
        }  # fmt: skip
        return [f"{name}={value}" for name, value in settings.items()]
