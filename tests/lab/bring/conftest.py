"""A Debian archive of three tiny packages behind HTTP, which apt is led to by a configuration of its own."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.lab.bring.archive import Archive


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


class Mirror:
    """The archive's files, and the settings of a machine that knows it."""

    def __init__(self, folder: Path) -> None:
        self.files = folder / "mirror"
        self.files.mkdir()
        self._packages: list[str] = []
        self._sources: list[str] = []
        self.add("hello", "1.0", needs="world", files={"usr/bin/hello": "#!/bin/sh\necho 'hello 1.0'\n"})
        self.add("world", "2.0", files={"usr/lib/world": "w"})

    def add(self, name: str, version: str, needs: str = "", files: dict[str, str | Path] | None = None) -> None:
        """A package of these files, in place of others of its name where it is newer."""
        tree = self.files.parent / f"{name}-{version}"
        (tree / "DEBIAN").mkdir(parents=True)
        fields = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@example.org>\n"
        fields += (f"Depends: {needs}\n" if needs else "") + "Description: for a test\n"
        (tree / "DEBIAN" / "control").write_text(fields)
        for inside, held in (files or {}).items():
            path = tree / inside
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(held.read_bytes() if isinstance(held, Path) else held.encode())
            path.chmod(0o755)
        package = self.files / f"{name}_{version}_all.deb"
        command = ["dpkg-deb", "--build", "--root-owner-group", "-Zgzip", str(tree), str(package)]
        subprocess.run(command, check=True, capture_output=True)
        raw = package.read_bytes()
        digest = hashlib.sha256(raw).hexdigest()
        self._packages.append(f"{fields}Filename: ./{package.name}\nSize: {len(raw)}\nSHA256: {digest}\n\n")
        listed = "".join(self._packages).encode()
        changed = 1_600_000_000 + len(self._packages)  # apt asks for what changed, in whole seconds
        for list_name, content in (("Packages", listed), ("Packages.gz", gzip.compress(listed))):
            (self.files / list_name).write_bytes(content)
            os.utime(self.files / list_name, (changed, changed))

    def add_source(self, name: str, version: str, tar: bytes) -> None:
        """What a package is made of, in place of others of its name where it is newer."""
        lines = ""
        for file, raw in ((f"{name}_{version}.dsc", b"Format: 1.0\n"), (f"{name}_{version}.tar.xz", tar)):
            (self.files / file).write_bytes(raw)
            lines += f" {hashlib.sha256(raw).hexdigest()} {len(raw)} {file}\n"
        self._sources.append(
            f"Package: {name}\nBinary: {name}\nVersion: {version}\nArchitecture: any\nFormat: 1.0\nDirectory: .\n"
            f"Checksums-Sha256:\n{lines}\n"
        )
        (self.files / "Sources").write_text("".join(self._sources))

    def sources(self) -> tuple[str, ...]:
        """The lines of a sources.list for its packages and what they are made of."""
        line = (self.files.parent / "sources.list").read_text().strip()
        return line, line.replace("deb ", "deb-src ", 1)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """Where apt looks for packages in this test, whatever the machine's sources say."""
    if not Archive.exists():
        pytest.skip("this is no Debian: NOTHING is tried of what brings programs from one")
    made = Mirror(tmp_path)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(made.files)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    settings = tmp_path / "apt.conf"
    sources = tmp_path / "sources.list"
    sources.write_text(f"deb [trusted=yes] http://127.0.0.1:{server.server_port} ./\n")
    settings.write_text(
        f'Dir::Etc::sourcelist "{sources}"; Dir::Etc::sourceparts "/dev/null"; Dir::Etc::parts "/dev/null";\n'
        'Acquire::http::Proxy "DIRECT"; Acquire::Retries "0";\n'
        f'APT::Update::Post-Invoke {{ "touch {tmp_path}/the-hook-ran"; }};\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(settings))
    yield made
    server.shutdown()
    thread.join()
    server.server_close()
