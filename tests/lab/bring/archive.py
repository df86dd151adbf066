"""The one error of what make needs first."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class ShortageError(Exception):
    """Something is not there and cannot be had; the text says what, and what to do."""


SETTING = re.compile(r'(Acquire|APT|Dir)\b\S* "[^"]*";')
HOOK = re.compile(r"::(Pre|Post)-Invoke|Invoke-Success|Install-Pkgs")
PLANNED = re.compile(r"^Inst (?P<name>\S+) (?:\[\S+\] )?\((?P<version>\S+) ", re.MULTILINE)
ADDRESS = re.compile(r"^'[^']+' (?P<file>\S+) \d+", re.MULTILINE)

MIRROR = "http://deb.debian.org/debian"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NEWEST_SUITE = "sid"


class Archive:
    """The Debian archive as this machine's apt sources name it, or as what `sources` gives, lines of a sources.list.

    Lists and downloads are kept in `folder`. `sources` is asked when there is something to bring.
    """

    def __init__(self, folder: Path, sources: Callable[[], Sequence[str]] | None = None) -> None:
        self.folder = folder
        self._archives = folder / "archives"
        self._sources = sources
        self._looked = False

    @staticmethod
    def exists() -> bool:
        return all(shutil.which(each) for each in ("apt-get", "apt-config", "dpkg-deb"))

    def fetch(self, *packages: str, dependencies: bool = False) -> list[Path]:
        """The newest files of these packages, and with `dependencies` of all that they need.

        What is installed on the machine does not count: a tree is whole whatever becomes of the machine. Raises
        ShortageError with apt's own words.
        """
        self._refresh()
        if dependencies:
            plan = self._apt("install", "--simulate", "--no-install-recommends", "-y", *packages)
            packages = tuple(f"{found['name']}={found['version']}" for found in PLANNED.finditer(plan))
        # apt prints no address of what is in the folder already, so it is asked in an empty one.
        listed = self._apt("download", "--print-uris", *packages, inside="empty")
        files = [self._archives / found["file"] for found in ADDRESS.finditer(listed)]
        self._apt("download", *packages)  # what is there already is only checked
        lacking = [each.name for each in files if not each.exists()]
        if lacking or not files:
            raise ShortageError(f"apt did not bring {', '.join(lacking or packages)}")
        return files

    def source(self, package: str) -> Path:
        """The newest tar file of what a package is made of, as its authors have published it."""
        self._refresh()
        asked = ("source", "--tar-only", "--download-only")
        listed = self._apt(*asked, "--print-uris", package, inside="empty")
        self._apt(*asked, package)
        for found in ADDRESS.finditer(listed):
            if (self._archives / found["file"]).exists():
                return self._archives / found["file"]
        raise ShortageError(f"apt did not bring the source of {package}")

    def unpack(self, files: Iterable[Path], folder: Path, without: frozenset[str] = frozenset()) -> None:
        """Unpack packages, but for those named `without`, into a new folder, which is there whole or not at all."""
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for file in files:
            if file.name.split("_")[0] in without:
                continue
            done = subprocess.run(["dpkg-deb", "-x", str(file), str(part)], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                file.unlink()  # damaged: the next time brings it anew
                raise ShortageError(f"{file.name} cannot be unpacked: {done.stderr.strip()}")
        shutil.rmtree(folder, ignore_errors=True)
        part.rename(folder)

    def tidy(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self._looked = False

    def _refresh(self) -> None:
        """Read the package lists, once for each run, as far as they can be reached; each that is not takes its time."""
        if self._looked:
            return
        if not self.exists():
            raise ShortageError("this machine has no apt to bring packages with")
        for each in ("lists/partial", "archives/partial", "empty"):
            (self.folder / each).mkdir(parents=True, exist_ok=True)
        (self.folder / "nothing-is-installed").touch()
        dumped = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True, env=environment())
        (self.folder / "apt.conf").write_text(self._settings(dumped.stdout))
        whose = "newer" if self._sources else "this machine's"
        print(f"reading {whose} package lists into .programs ...", flush=True)
        self._looked = True
        said = self._run("update").stderr.splitlines()
        failed = [line[3:] for line in said if line.startswith(("E: ", "W: ")) and "ailed to fetch" in line]
        if failed:  # what is wanted may be in another one
            print(f"not all of them can be read: {failed[0]}", file=sys.stderr)

    def _settings(self, dumped: str) -> str:
        kept = [line for line in dumped.splitlines() if SETTING.fullmatch(line) and not HOOK.search(line)]
        own: dict[str, str | Path] = {
            "Dir::State": self.folder,
            "Dir::State::lists": self.folder / "lists",
            "Dir::State::status": self.folder / "nothing-is-installed",
            "Dir::Cache": self.folder,
            "Dir::Cache::archives": self._archives,
            "Dir::Log": self.folder,
            "Dir::Etc::parts": "/dev/null",  # the machine's settings are in here already
            "Dir::Etc::main": "/dev/null",
            "APT::Sandbox::User": "root",
            "Debug::NoLocking": "true",
            "Acquire::Languages": "none",
            "Acquire::GzipIndexes": "true",
        }
        if self._sources:
            (self.folder / "sources.list").write_text("".join(f"{line}\n" for line in self._sources()))
            own |= {"Dir::Etc::sourcelist": self.folder / "sources.list", "Dir::Etc::sourceparts": "/dev/null"}
        if set('"\n') & set(str(self.folder)):
            raise ShortageError(f"apt takes no quote and no new line in a path, and this is in {self.folder}")
        return "".join(f"{line}\n" for line in [*kept, *(f'{name} "{value}";' for name, value in own.items())])

    def _apt(self, command: str, *arguments: str, inside: str = "archives") -> str:
        done = self._run(command, *arguments, inside=inside)
        if done.returncode != 0:
            said = [line[3:] for line in done.stderr.splitlines() if line.startswith("E: ")]
            raise ShortageError(f"apt-get {command}: {said[0] if said else f'exit status {done.returncode}'}")
        return done.stdout

    def _run(self, command: str, *arguments: str, inside: str = "archives") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["apt-get", "-q", command, *arguments],
            cwd=self.folder / inside,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=environment(APT_CONFIG=str(self.folder / "apt.conf")),
            check=False,
        )


SOURCE = re.compile(r"(?m)^(?:deb(?:-src)?\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(?P<uri>\S+)")
SOURCES = (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.*")))


def repositories() -> list[str]:
    """Where this machine's apt gets packages from."""
    text = "\n".join(each.read_text(errors="replace") for each in SOURCES if each.is_file())
    return [found["uri"].rstrip("/") for found in SOURCE.finditer(text)]


def debian_mirror() -> str | None:
    return next((each for each in repositories() if each.endswith("/debian")), None)


def newest_sources() -> tuple[str, ...]:
    """Where Debian keeps its newest packages, and what they are made of: on the mirror that this machine uses."""
    signed = f" [signed-by={KEYRING}]" if KEYRING.exists() else ""
    return tuple(f"{kind}{signed} {debian_mirror() or MIRROR} {NEWEST_SUITE} main" for kind in ("deb", "deb-src"))


def environment(**more: str) -> dict[str, str]:
    """That of apt's programs: messages in English, and no questions."""
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive", **more}
