"""The rule pack, promtool and coldplate as judges of it, and a node that plays a scenario faster than time passes."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent import cli
from agent.backends.protocol import ChannelError, DeviceError, LaneSample
from agent.backends.synthetic import SyntheticSource, load_scenario
from agent.model import Alert, GpuIdentity, Instant, Lane, Phase, Series, Snapshot, Transition
from agent.sampler.health import OwnFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.settings import Settings
from alerts.group import Group
from alerts.promql.labels import Labels, make_labels
from alerts.promql.storage import Storage
from alerts.rulefile import RuleFile, load

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "alerts" / "rules"

EPOCH = 5_000.0
WALL = 1_700_000_000.0
NODE_PERIOD = 1.0
LANES = ((Lane.FAST, 1), (Lane.SLOW, 15), (Lane.COLD, 60))

Judge = Callable[[str, Path], int]


@pytest.fixture(scope="session")
def promtool() -> Judge:
    found = shutil.which("promtool")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("promtool is missing, and CI=true")
        pytest.skip("promtool is not installed: NOTHING shows here that a Prometheus server can load the rule pack")

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


class Play:
    """A scenario on a synthetic node, sampled once a second; every group of the pack evaluated at its own interval."""

    def __init__(self, scenario: str, files: list[RuleFile]) -> None:
        self._source = SyntheticSource(load_scenario(scenario), EPOCH)
        self._channels = list(self._source.open(Instant(EPOCH, WALL)))
        self._sampler = Sampler(Settings(), Inventory(None), "synthetic", {})
        shown: list[tuple[str, GpuIdentity | None]] = [(each.key, each.identity) for each in self._channels]
        self._sampler.channels(shown)
        self._groups = [Group(group) for file in files for group in file.groups]
        self._names: dict[Series, Labels] = {}
        self._live: set[Labels] = set()
        wanted = {
            name
            for file in files
            for group in file.groups
            for rule in group.rules
            for selector in rule.query.selectors
            for matcher in selector.matchers
            if matcher.name == "__name__"
            for name in [matcher.value]
        }
        self._wanted = wanted
        self.storage = Storage()
        self.transitions: list[Transition] = []
        self.failures: list[str] = []

    def until(self, seconds: int) -> Play:
        """Plays from the beginning to this second."""
        for t in range(seconds):
            self._sample(t)
            at = WALL + t
            for group in self._groups:
                if t % (group.rules.interval or NODE_PERIOD) == 0:
                    outcome = group.evaluate(self.storage, at)
                    self.transitions.extend(outcome.transitions)
                    self.failures.extend(f"{each.rule}: {each.error}" for each in outcome.failures)
        self._source.close()
        assert not self.failures
        return self

    def _sample(self, t: int) -> None:
        now = Instant(EPOCH + t, WALL + t)
        for channel in self._channels:
            for lane, period in LANES:
                if t % period:
                    continue
                try:
                    sample = channel.read(lane, now)
                except DeviceError as error:
                    self._sampler.take_error(ChannelError(channel.key, lane, now.mono, error.reason, error.detail))
                    continue
                readings, gaps = tuple(sample.readings), tuple(sample.gaps)
                self._sampler.take_lane(LaneSample(channel.key, lane, now.mono, 0.001, 1, readings, gaps))
        for event in self._source.events(0.0):
            self._sampler.xids.enter(event)
        self._store(self._sampler.snapshot(now, OwnFacts("0", "3")), now.wall)

    def _store(self, snapshot: Snapshot, at: float) -> None:
        """What the rules read; a series that left the snapshot ends at once."""
        live: set[Labels] = set()
        for reading in snapshot.readings:
            if reading.metric.name not in self._wanted:
                continue
            labels = self._names.get(reading.series)
            if labels is None:
                labels = make_labels(dict(reading.series.all_labels), reading.metric.name)
                self._names[reading.series] = labels
            self.storage.append(labels, at, reading.value)
            live.add(labels)
        for labels in self._live - live:
            self.storage.mark_stale(labels, at)
        self._live = live

    @property
    def fired(self) -> dict[tuple[str, str], float]:
        """The second at which each alert began to fire for the first time, by alert and GPU (or port, or job)."""
        found: dict[tuple[str, str], float] = {}
        for transition in self.transitions:
            if transition.alert.phase is Phase.FIRING:
                labels = dict(transition.alert.labels)
                about = labels.get("gpu") or labels.get("device") or labels.get("job_id") or ""
                found.setdefault((transition.alert.rule, about), transition.at - WALL)
        return found

    def alert(self, name: str) -> Alert:
        """The first alert of a name that fires at the end."""
        return next(alert for group in self._groups for alert in group.firing() if alert.rule == name)


@pytest.fixture(scope="session")
def pack() -> list[RuleFile]:
    return [load(path) for path in sorted(RULES.glob("*.yml"))]


@pytest.fixture
def play(pack: list[RuleFile]) -> Iterator[Callable[[str, int], Play]]:
    """Plays a shipped scenario for so many seconds."""

    def run(scenario: str, seconds: int) -> Play:
        return Play(scenario, pack).until(seconds)

    yield run
