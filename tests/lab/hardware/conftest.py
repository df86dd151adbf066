"""The command over the stand-in library and a stand-in nvidia-smi, in a directory of the test's own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes.nvml.build import CONTROL, build, command, compiler

ROOT = Path(__file__).parents[3]
FROZEN = ("count 2", "freeze 123.25")


class Done(NamedTuple):
    """A run of the command that ended."""

    code: int
    said: str
    report: dict[str, Any]
    markdown: str

    def check(self, name: str) -> dict[str, str]:
        """The check of that name."""
        found = [check for section in self.report["sections"] for check in section["checks"] if check["name"] == name]
        assert len(found) == 1, f"{name}: {self.said}"
        return dict(found[0])

    def lines(self, gpu: int = 0) -> dict[str, dict[str, str]]:
        """The compared values of a GPU."""
        (section,) = (each for each in self.report["sections"] if each["step"] == "compare")
        return {row["value"]: row for row in section["tables"][gpu]["rows"]}


class Bench:
    """A machine whose GPUs are the stand-in library's."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._directory = directory
        self.control = directory / "control"
        command(self.control, *FROZEN)
        programs = directory / "bin"
        programs.mkdir()
        stub = programs / "nvidia-smi"
        stand_in = shlex.join([sys.executable, str(ROOT / "tests/lab/hardware/stub_smi.py")])
        stub.write_text(f'#!/bin/sh\nexec {stand_in} "$@"\n')
        stub.chmod(0o755)
        self.environment = {
            "LD_LIBRARY_PATH": str(library),
            CONTROL: str(self.control),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }

    def start(self, *arguments: str, lies: dict[str, Any] | None = None) -> subprocess.Popen[str]:
        """Start the command."""
        (self._directory / "lies.json").write_text(json.dumps(lies or {}))
        return subprocess.Popen(
            [sys.executable, "-m", "tests.lab.hardware", "--json", str(self._directory / "report.json"), *arguments],
            cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environment, "COLDPLATE_FAKE_SMI": str(self._directory / "lies.json")},
        )  # fmt: skip

    def end(self, process: subprocess.Popen[str]) -> Done:
        """Wait for it."""
        markdown, said = process.communicate(timeout=60)
        path = self._directory / "report.json"
        report = json.loads(path.read_text()) if path.exists() else {}
        return Done(process.returncode, said, report, markdown)

    def smi(self, field: str) -> str:
        """What the stand-in nvidia-smi says about the first GPU."""
        said = subprocess.run(
            [str(self._directory / "bin" / "nvidia-smi"), f"--query-gpu={field}", "--format=csv,noheader,nounits"],
            env={**os.environ, **self.environment}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return said.stdout.splitlines()[0]

    def run(self, *arguments: str, lies: dict[str, Any] | None = None) -> Done:
        return self.end(self.start(*arguments, lies=lies))


@pytest.fixture(scope="session")
def library() -> Iterator[Path]:
    """The directory of the stand-in library; readable for everybody, as the driver's is."""
    if compiler() is None:
        message = "no C compiler: the tests of the hardware checks are left out (apt-get install gcc)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o755)
        build(Path(directory))
        yield Path(directory)


@pytest.fixture
def bench(library: Path, tmp_path: Path) -> Bench:
    return Bench(library, tmp_path)


@pytest.fixture(scope="module")
def make_bench(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Bench]:
    """Makes benches that several tests share."""
    return lambda: Bench(library, tmp_path_factory.mktemp("hardware"))
