"""What of this machine a bare one would have too: how it reaches mirrors and registries.

A bare machine of somebody behind a proxy, with a mirror and certificates of their own, has these settings, and little
else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
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
        places = [Path(each) for each in PIP] + [Path.home() / each for each in PERSONAL]
        pip = "\n".join(each.read_text() for each in places if each.is_file())
        return cls(environment, merged(pip), cls.folders_in("\n".join([pip, *environment.values()])), cls._apt())

    @staticmethod
    def folders_in(settings: str) -> tuple[Path, ...]:
        """Folders of packages that the settings name, for an index with what lies beside it; certificates are copied
        apart."""
        named = {Path(unquote(found["path"] or found["plain"])) for found in LOCAL.finditer(settings)}
        named = {each.parent if each.name == "simple" else each for each in named}
        return tuple(sorted(each for each in named if each.is_dir() and each != Path(CERTIFICATES)))

    @staticmethod
    def _apt() -> str:
        dumped = (
            subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=False).stdout
            if shutil.which("apt-config")
            else ""
        )
        return "\n".join(line for line in dumped.splitlines() if SETTING.fullmatch(line) and line.startswith("Acquire"))

    def furnish(self, root: Path) -> None:
        """Put the settings into another root."""
        for name in NETWORK:
            if Path(name).exists():
                shutil.copyfile(name, root / name[1:])
        (root / "etc/pip.conf").write_text(self.pip)
        parts = root / "etc/apt/apt.conf.d"
        parts.mkdir(parents=True, exist_ok=True)
        (parts / "90machine").write_text(self.apt + "\n")
        bundles = {
            Path(value) for value in self.environment.values() if value.startswith("/") and Path(value).is_file()
        }
        bundles |= {
            Path(found["plain"])
            for found in LOCAL.finditer(self.pip)
            if found["plain"] and Path(found["plain"]).is_file()
        }
        bundles |= {Path(CERTIFICATES, "ca-certificates.crt")}
        for bundle in bundles:
            if bundle.is_file():
                target = root / str(bundle)[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle, target)
        for folder in self.folders:
            (root / str(folder)[1:]).mkdir(parents=True, exist_ok=True)


def merged(pip: str) -> str:
    """Several pip.conf as one: pip takes a section that comes twice for an error. The first of each setting stays."""
    sections: dict[str, dict[str, str]] = {}
    section = "global"
    name = ""
    for line in pip.splitlines():
        if found := re.fullmatch(r"\[(.+)\]\s*", line):
            section = found[1]
        elif found := re.fullmatch(r"([\w-]+)\s*[=:]\s*(.*)", line):
            name = found[1]
            sections.setdefault(section, {}).setdefault(name, found[2])
        elif line[:1].isspace() and line.strip() and name:
            sections[section][name] += f"\n {line.strip()}"
    return "".join(
        f"[{section}]\n" + "".join(f"{name} = {value}\n" for name, value in settings.items())
        for section, settings in sections.items()
    )
