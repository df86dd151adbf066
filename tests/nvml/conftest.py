"""Opens an NvmlSource over a fake driver."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from agent.backends.nvml import NvmlSource
from agent.backends.nvml.channel import NvmlGpuChannel
from agent.backends.protocol import BackendSample, Roster
from agent.model import Gap, Instant, Lane
from tests.nvml.fake_driver import FakeDriver, FakeGpu

WALL = 1_700_000_000.0


class Bench:
    """One source over these GPUs or a driver, its channels once it is open, and a clock that the test moves."""

    def __init__(self, *gpus: FakeGpu | FakeDriver) -> None:
        self.driver = gpus[0] if isinstance(gpus[0], FakeDriver) else FakeDriver(*gpus)  # type: ignore[arg-type]  # either
        self.source = NvmlSource(self.driver, wall=lambda: WALL, timeout=0.2)
        self.at = 100.0
        self.channels: Sequence[NvmlGpuChannel] = ()

    def open(self) -> list[str]:
        self.channels = self.source.open(Instant(self.at, WALL))
        return [channel.key for channel in self.channels]

    def roster(self, after: float = 0.0) -> Roster:
        self.at += after
        return self.source.roster(Instant(self.at, WALL))

    def there(self, after: float = 0.0) -> list[str]:
        return [channel.key for channel in self.roster(after).channels]

    def read(self, lane: Lane = Lane.FAST, *, after: float = 1.0, gpu: int = 0) -> BackendSample:
        self.at += after
        return self.channels[gpu].read(lane, Instant(self.at, WALL + self.at))

    def again(self, lane: Lane = Lane.FAST) -> BackendSample:
        """A second sample, a second after the first: some values are means of the time between two."""
        self.read(lane)
        return self.read(lane)


Open = Callable[..., Bench]


@pytest.fixture
def opened() -> Iterator[Open]:
    """Opens a source over these GPUs or a driver made by the test, and closes it after that."""
    benches: list[Bench] = []

    def make(*gpus: FakeGpu | FakeDriver) -> Bench:
        benches.append(Bench(*gpus))
        benches[-1].open()
        return benches[-1]

    yield make
    for bench in benches:
        bench.source.close()


# Finds values and gaps by a row's name in a sample.
def values(sample: BackendSample, name: str) -> dict[tuple[str, ...], float]:
    """The values of a row, by the values of its own labels; a link's number comes first."""
    found = {}
    for reading in sample.readings:
        if reading.metric.name == name:
            link = getattr(reading.entity, "link", None)
            own = tuple(value for _, value in reading.labels)
            found[own if link is None else (str(link), *own)] = reading.value
    return found


def value(sample: BackendSample, name: str) -> float:
    """The one value of a row without labels."""
    return values(sample, name)[()]


def gaps(sample: BackendSample, name: str) -> list[Gap]:
    return [gap for gap in sample.gaps if gap.metric.name == name]
