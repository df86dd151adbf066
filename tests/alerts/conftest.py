"""promtool as the judge, and coldplate's own commands beside it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from agent import cli
from tests.servers import need


class Verdict(NamedTuple):
    """What a program says of a file: exit status, all that it printed, and the cases that it says failed."""

    status: int
    text: str

    @property
    def failed(self) -> list[str]:
        cases = re.findall(r"(alertname: \S+, time: \w+|rule: \S+, time: \w+|expr: .*?, time: \w+)", self.text)
        return sorted(re.sub(r"[\"'\\]", "", case) for case in cases)


Judge = Callable[[str, Path], Verdict]


@pytest.fixture(scope="session")
def promtool() -> Judge:
    found = need("promtool", left_out="NOTHING compares the rules engine with Prometheus's own here")

    def judge(action: str, file: Path) -> Verdict:
        done = subprocess.run([found, action, "rules", str(file)], capture_output=True, text=True, check=False)
        return Verdict(done.returncode, done.stdout + done.stderr)

    return judge


@pytest.fixture
def coldplate(capsys: pytest.CaptureFixture[str]) -> Judge:
    def judge(action: str, file: Path) -> Verdict:
        capsys.readouterr()
        status = cli.main(["rules", action, str(file)])
        printed = capsys.readouterr()
        return Verdict(status, printed.out + printed.err)

    return judge
