"""A synthetic node under test: plays a scenario, given by name or as text, and reads it at any moment."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from agent.backends.protocol import BackendSample, Channel
from agent.backends.synthetic import Scenario, SyntheticSource, load_scenario
from agent.model import Gap, Instant, Lane, Reading

WALL = 1_700_000_000.0
EPOCH = 5_000.0


class NodeUnderTest:
    """A scenario in play. Times are those of the scenario."""

    def __init__(self, scenario: Scenario, opened_at: float = 0.0) -> None:
        self.scenario = scenario
        self.source = SyntheticSource(scenario, EPOCH)
        self.channels: list[Channel] = list(self.source.open(self.instant(opened_at)))

    @staticmethod
    def instant(t: float) -> Instant:
        return Instant(EPOCH + t, WALL + t)

    @property
    def fabric(self) -> Channel:
        return self.channels[-1]

    def sample(self, gpu: int, t: float, lane: Lane = Lane.FAST) -> BackendSample:
        return self.channels[gpu].read(lane, self.instant(t))

    def values(self, gpu: int, t: float, lane: Lane = Lane.FAST) -> dict[str, float]:
        return keyed(self.sample(gpu, t, lane).readings)

    def value(self, gpu: int, t: float, name: str, lane: Lane = Lane.FAST) -> float:
        return self.values(gpu, t, lane)[name]

    def joules(self, gpu: int, t: float) -> float:
        return self.value(gpu, t, "energy_joules_total", Lane.SLOW)

    def mean(self, gpu: int, name: str, start: float, end: float, step: float = 1.0) -> float:
        count = round((end - start) / step)
        return sum(self.value(gpu, start + k * step, name) for k in range(count)) / count

    def node(self, t: float, lane: Lane = Lane.FAST) -> dict[str, float]:
        return keyed(self.fabric.read(lane, self.instant(t)).readings)

    def all_samples(self, t: float) -> Iterator[tuple[list[Reading], list[Gap]]]:
        for channel in self.channels:
            for lane in (Lane.FAST, Lane.SLOW, Lane.COLD):
                sample = channel.read(lane, self.instant(t))
                yield list(sample.readings), list(sample.gaps)


TRAINING = "gpus: all, phases: [{kind: training}]"


def scenario(topology: str, *faults: str, job: str = "") -> str:
    """The text of a scenario with these faults, and with a job of these keys beside its id."""
    jobs = f", jobs: [{{id: j, {job}}}]" if job else ""
    return f"{{description: d, topology: {topology}{jobs}, faults: [{', '.join(faults)}]}}"


def keyed(readings: Iterable[Reading]) -> dict[str, float]:
    """Values by a short name: without prefix, own and link or device labels after it."""
    found: dict[str, float] = {}
    for reading in readings:
        name = reading.metric.name.removeprefix("coldplate_").removeprefix("gpu_")
        pairs = [value for key, value in reading.series.all_labels if key not in ("gpu", "uuid")]
        found["/".join([name, *pairs])] = reading.value
    return found


@pytest.fixture
def play() -> Iterator[Callable[..., NodeUnderTest]]:
    nodes: list[NodeUnderTest] = []

    def start(name: str | Path, opened_at: float = 0.0) -> NodeUnderTest:
        node = NodeUnderTest(load_scenario(str(name)), opened_at)
        nodes.append(node)
        return node

    yield start
    for node in nodes:
        node.source.close()


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def to_file(content: str) -> Path:
        path = tmp_path / "case.yaml"
        path.write_text(content)
        return path

    return to_file
