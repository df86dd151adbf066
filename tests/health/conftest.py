"""A synthetic node at any moment of a scenario, as the sampler shows it: no process, no thread and no clock."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from agent.backends.protocol import ChannelError, DeviceError, LaneSample
from agent.backends.synthetic import Scenario, SyntheticSource, load_scenario
from agent.backends.synthetic.synthetic_source import settled_at
from agent.model import LANES, Framer, Instant, Snapshot
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings

EPOCH = 5_000.0


def looked_at(scenario: Scenario, t: float) -> Snapshot:
    """What one look at the node shows, `t` seconds after the scenario began."""
    now = Instant(EPOCH + t, 1.7e9 + t)
    source = SyntheticSource(scenario, EPOCH)
    try:
        source.open(now)
        roster = source.roster(now)
        sampler = Sampler(Settings(), Inventory(None), source.name)
        sampler.enlist([(each.key, each.identity) for each in roster.channels], roster.unidentified, now.mono)
        for channel in roster.channels:
            for lane in LANES:
                try:
                    sample = channel.read(lane, now)
                except DeviceError as error:
                    sampler.take_error(ChannelError(channel.key, lane, now.mono, error.reason, error.detail))
                else:
                    frame = Framer().frame(sample.readings)
                    sampler.take_lane(LaneSample(channel.key, lane, now.mono, 0.0, 1, frame, tuple(sample.gaps)))
        return sampler.snapshot(now, LoopFacts(1, 0))
    finally:
        source.close()


@pytest.fixture(scope="session")
def look() -> Callable[..., Snapshot]:
    """One look at a scenario, by its name; once all of its faults have shown, unless a second is given."""

    @cache
    def see(name: str, t: float | None = None) -> Snapshot:
        scenario = load_scenario(name)
        return looked_at(scenario, settled_at(scenario) if t is None else t)

    return see


MACHINE = "description: a machine\ntopology: {topology}\nseed: 3\nfaults: [{faults}]\n"


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Snapshot]:
    """One look at a machine of a kind, 100 s after its faults began."""

    def see(topology: str, *faults: str) -> Snapshot:
        path = tmp_path / "machine.yaml"
        path.write_text(MACHINE.format(topology=topology, faults=", ".join(faults)))
        return looked_at(load_scenario(str(path)), 100.0)

    return see
