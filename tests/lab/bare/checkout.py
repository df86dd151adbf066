"""What is tried: this checkout, as somebody else would get it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.lab.bring.shortage import ShortageError


class Checkout:
    """The last commit of a repository; where there is no repository, the files but for what .gitignore names."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._commit = self._git("rev-parse", "HEAD")

    @property
    def title(self) -> str:
        if not self._commit:
            return "the files that are here: this is no git checkout"
        dirty = self._git("status", "--porcelain", "--untracked-files=normal")
        return self._git("log", "-1", "--format=%h %s", self._commit) + (
            "\nNOT tried are the uncommitted changes in\n" + dirty if dirty else ""
        )  # fmt: skip

    def put(self, folder: Path) -> None:
        """Its files, without a repository, in a new folder."""
        if not self._commit:
            ignored = [line.strip("/") for line in (self._root / ".gitignore").read_text(encoding="utf-8").split()]
            shutil.copytree(self._root, folder, symlinks=True, ignore=shutil.ignore_patterns(".git", *ignored))
            return
        folder.mkdir(parents=True)
        with subprocess.Popen(["git", "archive", self._commit], cwd=self._root, stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "--no-same-owner", "-C", str(folder)], stdin=archive.stdout, check=True)
        if archive.returncode != 0:
            raise ShortageError(f"git archive {self._commit} failed")

    def _git(self, *arguments: str) -> str:
        """What git says, or nothing where there is no git or no repository that it would touch."""
        if shutil.which("git") is None or not (self._root / ".git").exists():
            return ""
        done = subprocess.run(["git", *arguments], cwd=self._root, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""
