"""Bare Debian roots: the smallest that debootstrap makes, with what the README names and nothing else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab.bare.machine import Machine
from tests.lab.bring.archive import Archive, ShortageError

README_NAMES = ("python3", "make")
STALE = 14 * 86400
"""A root that is older than this is made anew: its package versions are gone from the mirrors of a moving suite."""
ROLLING = ("sid", "unstable", "testing")
SOURCE = re.compile(r"(?m)^(?:deb(?:-src)?\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(?P<uri>\S+)")
SOURCES = (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.*")))


class Roots:
    """One root for each suite below `folder`, made when it is first asked for and kept."""

    def __init__(
        self, folder: Path, archive: Archive, machine: Machine, mirror: str | None, sources: Sequence[Path] = SOURCES
    ) -> None:
        self._folder = folder
        self._archive = archive
        self._machine = machine
        self._sources_here = sources
        self.mirror = mirror or self._mirror_of_this_machine()

    def of(self, suite: str) -> Path:
        """The root of a suite. Raises `ShortageError` where it cannot be made."""
        root = self._folder / suite
        made = root / "etc" / "debian_version"
        if made.exists() and time.time() - (self._folder / f"{suite}.made").stat().st_mtime < STALE:
            return root
        print(f"making a bare {suite} in {root} ...", flush=True)
        part = self._folder / f"{suite}.part"
        self._remove(part)
        self._bootstrap(suite, part)
        self._sources(suite, part)
        self._remove(root)
        part.rename(root)
        (self._folder / f"{suite}.made").touch()
        return root

    def _bootstrap(self, suite: str, part: Path) -> None:
        tool = self._folder / "debootstrap"
        if not tool.exists():
            self._archive.unpack(self._archive.fetch("debootstrap", "debian-archive-keyring"), tool)
        log = self._folder / f"{suite}.log"
        command = [  # in mounts of its own: it leaves some behind where it is interrupted
            "unshare", "--mount", "sh", str(tool / "usr/sbin/debootstrap"), "--variant=minbase",
            f"--include={','.join(README_NAMES)}",
            f"--keyring={tool / 'usr/share/keyrings/debian-archive-keyring.gpg'}", suite, str(part), self.mirror,
        ]  # fmt: skip
        environment = {**os.environ, "DEBOOTSTRAP_DIR": str(tool / "usr/share/debootstrap"), "LC_ALL": "C"}
        with log.open("w") as file:
            done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise ShortageError(
                f"debootstrap {suite} failed: {log.read_text().strip().splitlines()[-1]} (all of it is in {log})"
            )

    def _sources(self, suite: str, root: Path) -> None:
        lines = [f"deb {self.mirror} {suite} main"]
        if suite not in ROLLING:
            lines.append(f"deb {self.mirror} {suite}-updates main")
            lines += [f"deb {each} {suite}-security main" for each in self._uris() if each.endswith("-security")][:1]
        (root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")

    def _mirror_of_this_machine(self) -> str:
        for uri in self._uris():
            if uri.rstrip("/").endswith("/debian"):
                return uri
        raise ShortageError(
            "this machine's apt sources name no Debian mirror: make test-bare MIRROR=http://... names one"
        )

    def _uris(self) -> list[str]:
        text = "\n".join(each.read_text(errors="replace") for each in self._sources_here if each.is_file())
        return [found["uri"].rstrip("/") for found in SOURCE.finditer(text)]

    @staticmethod
    def _remove(root: Path) -> None:
        if root.exists():
            shutil.rmtree(root)
