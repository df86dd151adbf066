"""What of this machine a bare one would have too: how it reaches mirrors and registries."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from configparser import ConfigParser
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from urllib.parse import unquote

from tests.lab.bring.archive import SETTING

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
        folders = cls.folders_in("\n".join([pip.getvalue(), *environment.values()]))
        return cls(environment, pip.getvalue(), folders, cls._apt())

    @staticmethod
    def folders_in(settings: str) -> tuple[Path, ...]:
        """Folders of packages that the settings name, for an index with what lies beside it; certificates are copied
        apart."""
        named = {Path(unquote(found["path"] or found["plain"])) for found in LOCAL.finditer(settings)}
        named = {each.parent if each.name == "simple" else each for each in named}
        return tuple(sorted(each for each in named if each.is_dir() and each != Path(CERTIFICATES)))

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
