"""Which tests run a line, and how long each takes: recorded once, with coverage's contexts.

A child process (the device worker, a daemon, the broker) is measured as well, and counts for the test that started it.
Where it, or a fixture, serves a whole file of tests, any test of that file may be the one that judges it. What a
process ran that was killed by SIGKILL is not known: such a line goes by the tests of its function, else of its module.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from coverage import CoverageData
from coverage.exceptions import DataError

from tests.mutation.checkout_copy import PLACE, ROOT, CheckoutCopy
from tests.mutation.names import file_of
from tests.mutation.plugin import CHILD_CONTEXT

LEFT_OUT = ("tests/structure/", "tests/mutation/", "tests/bring/", "tests/bare/", "tests/bench/", "tests/systemd/")
"""Tests that read the code as text, or that are about tools: none of them judges what the code does."""
RECORDINGS = PLACE / "recordings"

SETTINGS = """
[run]
source = {root}/agent, {root}/alerts
parallel = true
data_file = {data}/measured
context = ${{{context}-}}
concurrency = thread
patch = _exit
sigterm = true
disable_warnings = no-data-collected, module-not-imported, module-not-measured, already-imported, couldnt-parse
"""


def programs_first(**more: str) -> dict[str, str]:
    """The surroundings of the tests: as `make test` gives them."""
    path = f"{ROOT / '.programs' / 'usr' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **more}


def test_files(copy: CheckoutCopy) -> dict[str, str]:
    """The files of tests that may judge, and a sum of each."""
    paths = sorted((copy.root / "tests").rglob("test_*.py"))
    names = [str(path.relative_to(copy.root)) for path in paths]
    return {name: _sum(copy.root / name) for name in names if not name.startswith(LEFT_OUT)}


def _sum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Recording:
    """One run of some files of tests, in a folder of its own: what they ran, and how each test ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._data: CoverageData | None = None

    def make(self, copy: CheckoutCopy, files: dict[str, str], processes: int) -> None:
        """Run these files of tests in the copy. Raises OSError."""
        shutil.rmtree(self.folder, ignore_errors=True)
        raw = self.folder / "raw"
        raw.mkdir(parents=True)
        for package in ("agent", "alerts"):
            shutil.copytree(copy.root / package, self.folder / "source" / package)
        settings = self.folder / "coverage.ini"
        settings.write_text(SETTINGS.format(root=copy.root, data=raw, context=CHILD_CONTEXT))
        subprocess.run(
            [copy.python, "-m", "pytest", "-q", "-p", "tests.mutation.plugin", "-n", str(processes),
             "--dist", "loadfile", "--no-loadscope-reorder", "--color=no", *files],
            cwd=copy.root, check=False, stdin=subprocess.DEVNULL,
            env=programs_first(
                COVERAGE_PROCESS_START=str(settings), MUTATION_LEDGER=str(self.folder / "tests.jsonl")
            ),
        )  # fmt: skip
        self.finish(files)

    def finish(self, files: dict[str, str]) -> None:
        """Put together what the processes left, and say what it is of: without that, it does not count."""
        whole = CoverageData(basename=str(self.folder / "covered"))
        for part in sorted((self.folder / "raw").iterdir()):
            data = CoverageData(basename=str(part))
            try:
                data.read()
            except DataError:  # of a process that was killed while it wrote
                continue
            whole.update(data)
        whole.write()
        (self.folder / "files.json").write_text(json.dumps(files))
        shutil.rmtree(self.folder / "raw")

    def files(self) -> dict[str, str]:
        """The files of tests that it is of, and the sum of each as it then was; none if it was not finished."""
        try:
            found: dict[str, str] = json.loads((self.folder / "files.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def tests(self) -> Iterator[tuple[str, str, float]]:
        """Each test that ran, how it ended, and its seconds."""
        for line in (self.folder / "tests.jsonl").read_text().splitlines():
            name, outcome, seconds = json.loads(line)
            yield name, outcome, seconds

    def lines(self, copy: CheckoutCopy, name: str) -> dict[int, list[str]]:
        """The contexts of each line of a file of code, as the file now is."""
        if self._data is None:
            self._data = CoverageData(basename=str(self.folder / "covered"))
            self._data.read()
        then = self._data.contexts_by_lineno(str(copy.root / name))
        old = self.folder / "source" / name
        if not then or not old.exists():
            return {}
        matcher = difflib.SequenceMatcher(None, old.read_text().splitlines(),
                                          (copy.root / name).read_text().splitlines(), autojunk=False)  # fmt: skip
        moved = {a + at + 1: b + at + 1 for a, b, size in matcher.get_matching_blocks() for at in range(size)}
        return {moved[line]: contexts for line, contexts in then.items() if line in moved}


class TestMap:
    """All recordings: of each file of tests the newest counts."""

    __test__ = False

    def __init__(self, copy: CheckoutCopy) -> None:
        self._copy = copy
        self._recordings = [Recording(folder) for folder in sorted(RECORDINGS.glob("*"), reverse=True)]
        self._newest: dict[str, Recording] = {}
        for recording in self._recordings:
            for name in recording.files():
                if (copy.root / name).exists():
                    self._newest.setdefault(name, recording)
        self.seconds: dict[str, float] = {}
        """Of each test that passed."""
        for recording in self._recordings:
            for test, outcome, seconds in recording.tests() if recording.files() else ():
                if outcome == "passed" and self._newest.get(file_of(test)) is recording:
                    self.seconds[test] = seconds
        self._lines: dict[str, dict[int, set[str]]] = {}

    def stale(self) -> dict[str, str]:
        """The files of tests that are new or other than when they were recorded."""
        return {
            name: total
            for name, total in test_files(self._copy).items()
            if name not in self._newest or self._newest[name].files()[name] != total
        }

    def contexts(self, name: str, lines: Iterable[int]) -> set[str]:
        """What ran one of these lines: tests with the phase behind a `|`, and an empty one for what imports ran."""
        if name not in self._lines:
            self._lines[name] = self._read(name)
        return set().union(*(self._lines[name].get(line, set()) for line in lines))

    def _read(self, name: str) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for recording in self._recordings:
            if not recording.files():
                continue
            for line, contexts in recording.lines(self._copy, name).items():
                mine = {each for each in contexts if not each or self._newest.get(file_of(each)) is recording}
                found.setdefault(line, set()).update(mine)
        return found


def record(copy: CheckoutCopy, files: dict[str, str], processes: int) -> None:
    """Record these files of tests, beside what was recorded before."""
    numbers = [int(folder.name) for folder in RECORDINGS.glob("*")]
    Recording(RECORDINGS / f"{max(numbers, default=0) + 1:04}").make(copy, files, processes)
