"""The real programs that tests use: the machine's where they are of use, else Debian's, unpacked and never installed.

Installing would start services and change the machine. What is unpacked lies in .programs/unpacked. .programs/usr/bin,
which comes first on make's PATH, holds what the machine lacks, and a call of the machine's own program where a document
names it there.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from tests.lab.bring import wrappers
from tests.lab.bring.archive import Archive, ShortageError

RECENT = (3, 5)
"""The version of Prometheus whose language is spoken here; a later one of 3 will do."""

MACHINES_OWN = frozenset({"libc6", "libc6.1", "libc-bin"})
"""Never unpacked: a C library beside the machine's own loader ends every program that meets both."""


def tells_its_version(program: Path) -> str:
    return run(program, "--version")


def starts(program: Path) -> str:
    """What is wrong with a program of VictoriaMetrics, which knows its version by one dash."""
    return run(program, "-version")


def is_recent(program: Path, wanted: tuple[int, int] = RECENT) -> str:
    """What is wrong with a program of Prometheus: nothing, or that its language is older than the one spoken here."""
    try:
        done = subprocess.run([str(program), "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    told = re.search(r"version (\d+)\.(\d+)", done.stdout + done.stderr)
    if told is None or (int(told[1]), int(told[2])) < wanted:
        return f"its version is {told[0].split()[1] if told else 'unknown'}, and {'.'.join(map(str, wanted))} is wanted"
    return ""


def compiles(compiler: Path) -> str:
    """What is wrong with a compiler: it is often there without the C library's headers."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "proof.c"), Path(folder, "proof.so")
        source.write_text(
            "#include <math.h>\n#include <pthread.h>\n#include <stdio.h>\n"
            'double proof(double x) { pthread_self(); printf("%s", ""); return sqrt(x); }\n'
        )
        flags = ("-std=gnu11", "-fPIC", "-shared", "-o", library, source, "-lm", "-lpthread")
        return run(compiler, *flags) or run(sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(library)!r}).proof")


def judges_units_offline(program: Path) -> str:
    """systemd is asked about a unit without being the one that runs; those before 250 cannot."""
    with tempfile.TemporaryDirectory() as folder:
        unit = Path(folder, "proof.service")
        unit.write_text("[Service]\nExecStart=/bin/true\n")
        said = run(program, "security", "--offline=true", "--no-pager", str(unit))
        return said or run(program, "verify", str(unit))


def run(*command: str | Path) -> str:
    """What is wrong with a program: nothing, or its last line, or the reason that it does not start."""
    try:
        done = subprocess.run(
            [str(each) for each in command], capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines() or [""]
    return "" if done.returncode == 0 else f"exit status {done.returncode}: {said[-1]}"


@dataclass(frozen=True)
class Program:
    """One program: where Debian has it, how it is made to run uninstalled, and what proves that it does."""

    name: str
    packages: tuple[tuple[str, ...], ...]
    """Sets of packages: the first set that the archive has is taken."""
    publish: Callable[[Path, Path], None] = wrappers.as_it_is
    proof: Callable[[Path], str] = tells_its_version
    dependencies: bool = False
    other_name: str | None = None
    in_documents: bool = False
    """Whether documents call it in .programs/usr/bin."""


WANTED = (
    # Part of the server's package up to bookworm.
    Program("promtool", (("promtool",), ("prometheus",)), in_documents=True),
    Program("prometheus", (("prometheus",),), wrappers.with_its_pages, in_documents=True),
    Program("prometheus-node-exporter", (("prometheus-node-exporter",),)),
    Program(
        "prometheus-alertmanager",
        (("prometheus-alertmanager",),),
        wrappers.with_its_templates,
        other_name="alertmanager",
        in_documents=True,
    ),
    Program("amtool", (("prometheus-alertmanager",),), in_documents=True),
    Program("curl", (("curl",),), wrappers.with_its_libraries, dependencies=True),
    Program("ethtool", (("ethtool",),), wrappers.with_its_libraries, dependencies=True),
    Program("cc", (("tcc", "libc6-dev", "linux-libc-dev"),), wrappers.compiler, compiles),
    Program("systemd-analyze", (("systemd",),), wrappers.judge_of_units, judges_units_offline, dependencies=True),
)

RECENT_ONES = (
    Program("promtool", (("promtool",),), proof=is_recent),
    Program("prometheus", (("prometheus",),), proof=is_recent),
)
"""What `make parity` holds us against. Releases of Debian are years behind."""

is_recent_alertmanager = partial(is_recent, wanted=(0, 28))
"""The first Alertmanager that takes what Prometheus 3 may send."""

ENGINES = (
    *RECENT_ONES,
    Program(
        "prometheus-alertmanager",
        (("prometheus-alertmanager",),),
        wrappers.with_its_templates,
        is_recent_alertmanager,
        other_name="alertmanager",
    ),
    Program("amtool", (("prometheus-alertmanager",),), proof=is_recent_alertmanager),
    *(Program(name, (("victoria-metrics",),), proof=starts) for name in ("victoria-metrics", "vmagent", "vmalert")),
)


PACKAGERS = tuple(
    Program(name, (("rpm",),), wrappers.with_its_macros, dependencies=True) for name in ("rpmbuild", "rpm")
)


class Programs:
    """The programs of `WANTED`, in `folder` where the machine has none of use."""

    def __init__(self, folder: Path, archive: Archive, wanted: tuple[Program, ...] = WANTED) -> None:
        self._folder = folder
        self._archive = archive
        self._wanted = wanted

    def provide(self, *, strict: bool) -> int:
        """Find or bring each; say what is missing. 1 if something is and `strict`, else 0."""
        missing = {program.name: reason for program in self._wanted if (reason := self._provide(program))}
        if not missing:
            self._archive.tidy()
        for name, reason in missing.items():
            print(f"missing: {name} ({reason}); the tests that need it are left out", file=sys.stderr)
        return int(bool(missing) and strict)

    def _provide(self, program: Program) -> str:
        ours = self._folder / "usr" / "bin" / program.name
        machines = self._machines(program)
        if machines is not None:
            if program.in_documents:
                ours.parent.mkdir(parents=True, exist_ok=True)
                wrappers.call(machines, ours)
            else:
                ours.unlink(missing_ok=True)
            return ""
        if os.path.lexists(ours) and not program.proof(ours):
            return ""
        try:
            self._bring(program, ours)
            useless = program.proof(ours)
        except (ShortageError, OSError) as error:
            useless = str(error)
        if useless:
            ours.unlink(missing_ok=True)
        return useless

    def _machines(self, program: Program) -> Path | None:
        """Return where the machine has a program of use; None where it has none."""
        names = (program.name, program.other_name) if program.other_name else (program.name,)
        path = os.pathsep.join(
            each for each in os.get_exec_path() if Path(each).resolve() != (self._folder / "usr" / "bin").resolve()
        )
        places = (shutil.which(name, path=path) for name in names)
        return next((Path(place) for place in places if place and not program.proof(Path(place))), None)

    def _bring(self, program: Program, ours: Path) -> None:
        for last, packages in ((each is program.packages[-1], each) for each in program.packages):
            tree = self._folder / "unpacked" / packages[0]
            try:
                if not tree.is_dir():
                    files = self._archive.fetch(*packages, dependencies=program.dependencies)
                    print(f"unpacking {', '.join(packages)} into .programs ...", flush=True)
                    self._archive.unpack(files, tree, MACHINES_OWN)
                ours.parent.mkdir(parents=True, exist_ok=True)
                ours.unlink(missing_ok=True)
                program.publish(tree, ours)
                return
            except ShortageError:
                if last:
                    raise


SCRIPTS = PurePosixPath("promql/promqltest/testdata")


def provide_scripts(place: Path, archive: Archive) -> None:
    """Bring the test scripts of the newest Prometheus into `place`/RELEASE; those that are missing are named."""
    if place.is_dir():
        return
    part = place.with_name("scripts.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with tarfile.open(archive.source("prometheus")) as source:
            for member in source:
                path = PurePosixPath(member.name)
                held = source.extractfile(member) if member.isfile() else None
                if held is None or path.suffix != ".test" or path.parts[1:-1] != SCRIPTS.parts or ".." in path.parts:
                    continue
                release = part / path.parts[0].strip("/.")
                release.mkdir(parents=True, exist_ok=True)
                (release / path.name).write_bytes(held.read())
        part.rename(place)
    except (ShortageError, OSError, tarfile.TarError) as error:
        print(f"missing: Prometheus's test scripts ({error}); they are left out", file=sys.stderr)
