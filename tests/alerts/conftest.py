"""promtool as the judge, and coldplate's engine beside it: `rules check`, and a runner of unit tests."""

import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from agent import cli
from tests.rule_tests.command import run_files
from tests.servers import need


class Verdict(NamedTuple):
    """What a program says of a file: exit status, all that it printed, and the cases that it says failed."""

    status: int
    text: str

    @property
    def failed(self) -> list[str]:
        cases = re.findall(r"(alertname: \S+, time: \w+|rule: \S+, time: \w+|expr: .*?, time: \w+)", self.text)
        return sorted(re.sub(r"[\"'\\]", "", case) for case in cases)


class Promtool:
    """promtool: the verdict on a file, or on each of many files at once."""

    def __init__(self, program: str) -> None:
        self._program = program

    def __call__(self, action: str, *files: Path) -> Verdict:
        command = [self._program, action, "rules", *map(str, files)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return Verdict(done.returncode, done.stdout)

    def each(self, action: str, files: Sequence[Path]) -> dict[Path, Verdict]:
        said = re.split(r"(?m)^(?:Unit Testing: |Checking) +", self(action, *files).text)[1:]
        assert [text.partition("\n")[0] for text in said] == [str(path) for path in files]
        return {path: Verdict(int("FAILED" in text), text) for path, text in zip(files, said, strict=True)}


Judge = Callable[[str, Path], Verdict]


@pytest.fixture(scope="session")
def promtool() -> Promtool:
    return Promtool(need("promtool", left_out="NOTHING compares the rules engine with Prometheus's own here"))


@pytest.fixture
def coldplate(capsys: pytest.CaptureFixture[str]) -> Judge:
    def judge(action: str, file: Path) -> Verdict:
        capsys.readouterr()
        status = run_files([file]) if action == "test" else cli.main(["rules", action, str(file)])
        printed = capsys.readouterr()
        return Verdict(status, printed.out + printed.err)

    return judge
