"""The rule pack, promtool and coldplate as judges of it, and a node that plays a scenario faster than time passes."""

import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from agent import cli
from agent.backends.synthetic import load_scenario
from agent.model import Alert
from alerts.rulefile import AlertingRule, RecordingRule, RuleFile, load
from tests.lab.score.play import Play
from tests.rule_tests.command import run_files
from tests.servers import need

T = TypeVar("T", AlertingRule, RecordingRule)
ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alerts" / "rules"
OF_A_FLEET = ROOT / "packaging" / "fleet" / "rules"


Judge = Callable[..., int]
"""`check` or `test` and files of rules; gives the exit status, and prints what was said."""


@pytest.fixture(scope="session")
def promtool() -> Judge:
    found = need("promtool", left_out="NOTHING shows here that a Prometheus server can load the rule pack")
    return lambda action, *files: subprocess.run([found, action, "rules", *files], check=False).returncode


@pytest.fixture
def coldplate() -> Judge:
    return lambda action, *files: (
        run_files(files) if action == "test" else cli.main(["rules", action, *map(str, files)])
    )


class Node:
    """A node that played a scenario from its beginning, and what fired meanwhile."""

    def __init__(self, scenario: str, files: list[RuleFile], seconds: int) -> None:
        self._play = Play(load_scenario(scenario), files).until(seconds)
        self._play.close()
        assert not self._play.failures

    @property
    def fired(self) -> dict[tuple[str, str], float]:
        """The second at which each alert began to fire for the first time, by alert and GPU (or port, job, switch)."""
        found: dict[tuple[str, str], float] = {}
        for firing in self._play.firings:
            about = next(filter(None, map(firing.label, ("gpu", "device", "job_id", "pci"))), "")
            found.setdefault((firing.alert, about), firing.at)
        return found

    def alert(self, name: str) -> Alert:
        return next(alert for alert in self._play.firing() if alert.rule == name)


def rules_of(files: Iterable[RuleFile], kind: type[T]) -> Iterator[T]:
    return (rule for file in files for group in file.groups for rule in group.rules if isinstance(rule, kind))


@pytest.fixture(scope="session")
def pack() -> list[RuleFile]:
    return [load(path) for path in sorted(RULES.glob("*.yml"))]


@pytest.fixture(scope="session")
def servers_only() -> list[RuleFile]:
    """The rules that the servers of a fleet have beside the pack."""
    return [load(path) for path in sorted(OF_A_FLEET.glob("*.yml")) if not path.name.startswith("relay")]


@pytest.fixture
def play(pack: list[RuleFile]) -> Callable[[str, int], Node]:
    """Plays a shipped scenario for so many seconds."""
    return lambda scenario, seconds: Node(scenario, pack, seconds)
