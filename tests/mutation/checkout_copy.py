"""A copy of the checkout, with an environment of its own: code is broken here alone, never in the working tree.

The environment is the copy's own because tests start programs that find `agent` as it was installed
(`python -I -m agent.broker`): in another's they would run the unbroken code, and nothing would be killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "mutation"


class CopyError(Exception):
    """The copy cannot be made; the text says why."""


class CheckoutCopy:
    """The copy under build/mutation, brought up to date with the working tree: also with what is not committed."""

    def __init__(self) -> None:
        self.root = PLACE / "tree"
        self.python = self.root / ".venv" / "bin" / "python"

    def refresh(self) -> None:
        """Raises CopyError. A file that is the same keeps its time, and with it what Python compiled of it."""
        listed = set(self._listed())
        for name in listed:
            source, target = ROOT / name, self.root / name
            if target.is_file() and target.read_bytes() == source.read_bytes():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        self._forget(listed)
        if not (self.root / ".programs").exists():  # some tests look for programs beside the code
            (self.root / ".programs").symlink_to(ROOT / ".programs")
        if not (self.root / ".git").exists():  # tests ask git for what belongs to the repository
            self._run("git", "init", "--quiet")
        self._run("git", "add", "--all")
        self._run(
            sys.executable, "-ES", "tests/bring/__main__.py", "environment", "mutate",
            PIP_CACHE_DIR=str(ROOT / ".programs" / "pip"),
        )  # fmt: skip

    def _forget(self, listed: set[str]) -> None:
        kept = {".git", ".venv", ".programs"}
        for path in self.root.rglob("*.*"):
            inside = path.relative_to(self.root)
            if inside.parts[0] in kept or "__pycache__" in inside.parts or not path.is_file():
                continue
            if str(inside) not in listed and not inside.parts[0].endswith(".egg-info"):
                path.unlink()

    def _listed(self) -> list[str]:
        done = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise CopyError(f"git does not say what belongs to the checkout: {done.stderr.strip()}")
        return [name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]

    def _run(self, *command: str, **settings: str) -> None:
        done = subprocess.run(
            command, cwd=self.root, capture_output=True, text=True, check=False, env={**os.environ, **settings}
        )
        if done.returncode != 0:
            raise CopyError(f"{command[0]} {command[-1]}: {(done.stderr or done.stdout).strip()}")
