"""What of this machine a bare one would have too: how it reaches mirrors and registries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from configparser import ConfigParser
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

from tests.lab.bring.archive import SETTING, Archive, ShortageError, debian_mirror, repositories

VARIABLE = re.compile(r"(?i)(https?|ftp|all|no)_proxy|PIP_\w+|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE")
LOCAL = re.compile(r"file://(?P<path>[^\s'\"]+)|(?P<plain>/[^\s'\",]+)")
NETWORK = ("/etc/resolv.conf",)
PIP = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf")
PERSONAL = (".config/pip/pip.conf", ".pip/pip.conf")
CERTIFICATES = "/etc/ssl/certs"


@dataclass(frozen=True)
class Machine:
    """Environment, files by where they belong, folders to be seen as they are, and apt's settings for the network."""

    environment: dict[str, str]
    pip: str
    folders: tuple[Path, ...]
    apt: str

    @classmethod
    def found(cls) -> Machine:
        environment = {name: value for name, value in os.environ.items() if VARIABLE.fullmatch(name)}
        # As one file: pip takes a section that comes twice for an error. The first of each setting stays.
        settings, pip = ConfigParser(strict=False, interpolation=None), StringIO()
        settings.read([*(Path.home() / each for each in reversed(PERSONAL)), *reversed(PIP)])
        settings.write(pip)
        found = LOCAL.finditer("\n".join([pip.getvalue(), *environment.values()]))
        named = {Path(unquote(each["path"] or each["plain"])) for each in found}
        # Of an index, with what lies beside it; certificates are copied apart.
        named = {each.parent if each.name == "simple" else each for each in named}
        folders = tuple(sorted(each for each in named if each.is_dir() and each != Path(CERTIFICATES)))
        return cls(environment, pip.getvalue(), folders, cls._apt())

    @staticmethod
    def _apt() -> str:
        if shutil.which("apt-config") is None:
            return ""
        dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
        return "\n".join(line for line in dumped.splitlines() if SETTING.fullmatch(line) and line.startswith("Acquire"))

    def furnish(self, root: Path) -> None:
        for name in NETWORK:
            if Path(name).exists():
                shutil.copyfile(name, root / name[1:])
        (root / "etc/pip.conf").write_text(self.pip)
        parts = root / "etc/apt/apt.conf.d"
        parts.mkdir(parents=True, exist_ok=True)
        (parts / "90machine").write_text(self.apt + "\n")
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
        bundles = {value for value in self.environment.values() if value.startswith("/")}
        bundles |= {found["plain"] for found in LOCAL.finditer(self.pip) if found["plain"]}
        for bundle in map(Path, {*bundles, f"{CERTIFICATES}/ca-certificates.crt"}):
            if bundle.is_file():
                target = root / str(bundle)[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle, target)
        for folder in self.folders:
            (root / str(folder)[1:]).mkdir(parents=True, exist_ok=True)


# Bare Debian roots: the smallest that debootstrap makes, with what the README names and nothing else.


README_NAMES = ("python3", "make")
STALE = 14 * 86400
"""A root that is older than this is made anew: its package versions are gone from the mirrors of a moving suite."""
ROLLING = ("sid", "unstable", "testing")


class Roots:
    """One root for each suite below `folder`, made when it is first asked for and kept."""

    def __init__(self, folder: Path, archive: Archive, mirror: str | None) -> None:
        self.folder = folder
        self._archive = archive
        found = mirror or debian_mirror()
        if found is None:
            raise ShortageError(
                "this machine's apt sources name no Debian mirror: make test-bare MIRROR=http://... names one"
            )
        self.mirror = found

    def of(self, suite: str) -> Path:
        """The root of a suite. Raises `ShortageError` where it cannot be made."""
        root = self.folder / suite
        made = root / "etc" / "debian_version"
        if made.exists() and time.time() - (self.folder / f"{suite}.made").stat().st_mtime < STALE:
            return root
        print(f"making a bare {suite} in {root} ...", flush=True)
        part = self.folder / f"{suite}.part"
        self._remove(part)
        self._bootstrap(suite, part)
        self._sources(suite, part)
        self._remove(root)
        part.rename(root)
        (self.folder / f"{suite}.made").touch()
        return root

    def _bootstrap(self, suite: str, part: Path) -> None:
        tool = self.folder / "debootstrap"
        if not tool.exists():
            self._archive.unpack(self._archive.fetch("debootstrap", "debian-archive-keyring"), tool)
        log = self.folder / f"{suite}.log"
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
            lines += [f"deb {each} {suite}-security main" for each in repositories() if each.endswith("-security")][:1]
        (root / "etc/apt/sources.list").write_text("\n".join(lines) + "\n")

    @staticmethod
    def _remove(root: Path) -> None:
        if root.exists():
            shutil.rmtree(root)
