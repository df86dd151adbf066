"""The rule pack, promtool and coldplate as judges of it, and a node that plays a scenario faster than time passes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from agent import cli
from agent.backends.synthetic import load_scenario
from agent.model import Alert
from alerts.rulefile import RuleFile, load
from tests.score.play import Play
from tests.servers import need

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alerts" / "rules"
OF_A_FLEET = ROOT / "packaging" / "fleet" / "rules"

Judge = Callable[[str, Path], int]


@pytest.fixture(scope="session")
def promtool() -> Judge:
    found = need("promtool", left_out="NOTHING shows here that a Prometheus server can load the rule pack")

    def judge(action: str, file: Path) -> int:
        return subprocess.run([found, action, "rules", str(file)], capture_output=True, check=False).returncode

    return judge


@pytest.fixture
def coldplate(capsys: pytest.CaptureFixture[str]) -> Judge:
    def judge(action: str, file: Path) -> int:
        status = cli.main(["rules", action, str(file)])
        capsys.readouterr()
        return status

    return judge


class Node:
    """A node that played a scenario from its beginning, and what fired meanwhile."""

    def __init__(self, scenario: str, files: list[RuleFile], seconds: int) -> None:
        self._play = Play(load_scenario(scenario), files).until(seconds)
        self._play.close()
        assert not self._play.failures

    @property
    def fired(self) -> dict[tuple[str, str], float]:
        """The second at which each alert began to fire for the first time, by alert and GPU (or port, or job)."""
        found: dict[tuple[str, str], float] = {}
        for firing in self._play.firings:
            about = firing.label("gpu") or firing.label("device") or firing.label("job_id")
            found.setdefault((firing.alert, about), firing.at)
        return found

    def alert(self, name: str) -> Alert:
        """The first alert of a name that fires at the end."""
        return next(alert for alert in self._play.firing() if alert.rule == name)


@pytest.fixture(scope="session")
def pack() -> list[RuleFile]:
    return [load(path) for path in sorted(RULES.glob("*.yml"))]


@pytest.fixture(scope="session")
def servers_only() -> list[RuleFile]:
    """The rules that the servers of a fleet have beside the pack."""
    return [load(OF_A_FLEET / f"{name}.rules.yml") for name in ("clusters", "global", "shard")]


@pytest.fixture
def play(pack: list[RuleFile]) -> Callable[[str, int], Node]:
    """Plays a shipped scenario for so many seconds."""
    return lambda scenario, seconds: Node(scenario, pack, seconds)
