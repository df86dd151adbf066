"""The newest Prometheus that Debian has, and the test scripts that its authors publish with it, beside all else.

Releases of Debian are years behind the language that is spoken here. What the machine has itself is used where it is
recent; nothing is installed, and nothing of the scripts becomes part of the checkout.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path, PurePosixPath

from tests.lab.bring.archive import Archive, newest_sources
from tests.lab.bring.programs import ENGINES, RECENT_ONES, Program, Programs
from tests.lab.bring.shortage import ShortageError

PACKAGE = "prometheus"
SCRIPTS = PurePosixPath("promql/promqltest/testdata")
"""Where the scripts are in Prometheus's source."""


class NewestPrometheus:
    """Programs in `folder`/usr/bin, and scripts in `folder`/scripts/RELEASE."""

    def __init__(self, folder: Path, archive: Archive | None = None, wanted: tuple[Program, ...] = RECENT_ONES) -> None:
        self._folder = folder
        self._archive = archive or Archive(folder / "apt", newest_sources)
        self._wanted = wanted

    def provide(self) -> int:
        """Find or bring all; 1 where a program is missing. Scripts that are missing are named, and are no failure."""
        if (missing := self._scripts()) is not None:
            print(f"missing: Prometheus's test scripts ({missing}); they are left out", file=sys.stderr)
        return self.provide_programs(strict=True)

    def provide_programs(self, *, strict: bool) -> int:
        """Find or bring the programs alone; 1 where one is missing and `strict`."""
        return Programs(self._folder, self._archive, self._wanted).provide(strict=strict)

    def provide_engines(self, *, strict: bool) -> int:
        """Find or bring what a fleet runs on: VictoriaMetrics, its scraper and evaluator, and an Alertmanager."""
        return Programs(self._folder, self._archive, ENGINES).provide(strict=strict)

    def _scripts(self) -> ShortageError | OSError | tarfile.TarError | None:
        """The reason that there are none, or nothing."""
        place = self._folder / "scripts"
        if place.is_dir():
            return None
        part = place.with_name("scripts.part")
        shutil.rmtree(part, ignore_errors=True)
        try:
            with tarfile.open(self._archive.source(PACKAGE)) as archive:
                _unpack(archive, part)
            part.rename(place)
        except (ShortageError, OSError, tarfile.TarError) as error:
            return error
        return None


def _unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the scripts, below the name of the release; nothing else of the archive, and nothing outside the folder."""
    found = False
    for member in archive:
        path = PurePosixPath(member.name)
        held = archive.extractfile(member) if member.isfile() else None
        if held is None or path.suffix != ".test" or path.parts[1:-1] != SCRIPTS.parts or ".." in path.parts:
            continue
        release = folder / path.parts[0].strip("/.")
        release.mkdir(parents=True, exist_ok=True)
        (release / path.name).write_bytes(held.read())
        found = True
    if not found:
        raise ShortageError(f"the source of {PACKAGE} holds no test scripts")
