"""What a snapshot says of the power of the node, and which processes are on its GPUs."""

import pytest

from agent.backends.protocol import BackendSample, GpuProcess
from agent.catalogue import BY_NAME
from agent.model import Gpu, GpuIdentity, Lane, Node, Outcome, Reading, Series
from agent.sampler.node_sums import Coefficients
from agent.sampler.schedule import Settings
from tests.frames import read_of
from tests.sampler.rig import SamplerRig

POWER = BY_NAME["coldplate_gpu_power_watts"]
NODE_POWER = BY_NAME["coldplate_node_power_watts"]


class Rig(SamplerRig):
    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        self.sampler.paces = {"power": 1.0}
        self.gpus = [Gpu(number, f"GPU-{number}") for number in "01"]
        self.series = {gpu.uuid: Series(POWER, gpu) for gpu in self.gpus}
        self.enlist([GpuIdentity(gpu, f"0000:0{gpu.index}:00.0", "S", "H100") for gpu in self.gpus])

    def sample(self, uuid: str, at: float, watts: float = 500.0) -> None:
        self.take(uuid, Lane.FAST, at, [Reading(self.series[uuid], watts)])

    def values(self, at: float, name: str, label: str = "uuid") -> dict[str, float]:
        return {row.get(label, ""): value for row, value in self.rows(at, name)}


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        (Settings(), {"estimate": 1.1 * 1000 + 2 * 212.5}),
        (Settings(estimate=Coefficients(1.2, 300.0)), {"estimate": 1.2 * 1000 + 2 * 300}),
        (Settings(estimate=None), {}),
    ],
)
def test_node_power_is_estimated_as_configured_where_nothing_measures_it(
    settings: Settings, shown: dict[str, float]
) -> None:
    rig = Rig(settings)
    rig.sample("GPU-0", 0.0, 600.0)
    rig.sample("GPU-1", 0.0, 400.0)
    assert rig.values(0.5, "coldplate_node_power_watts", "source") == shown


def test_a_measured_node_power_replaces_the_estimate() -> None:
    rig = Rig()

    def play(at: float, *, metered: bool) -> tuple[dict[str, float], dict[str, float]]:
        """Node power by source, and whether it is what a meter's place is filled with."""
        rig.sample("GPU-0", at)
        rig.sample("GPU-1", at)
        if metered:
            measured = Reading(Series(NODE_POWER, Node(), (("source", "ipmi"),)), 9000.0)
            rig.sampler.take_read(read_of("power", Lane.FAST, at, 0.01, Outcome.OK, BackendSample([measured])))
        return rig.values(at, NODE_POWER.name, "source"), rig.values(at, "coldplate_node_power_fallback")

    rig.sample("GPU-0", 0.0)
    assert rig.values(0.0, NODE_POWER.name, "source") == {}, "no smaller number without one of the GPUs"
    assert rig.missing(0.0)["", NODE_POWER.name] == "lost"
    estimate = {"estimate": 1.1 * 1000 + 2 * 212.5}
    assert play(0.0, metered=False) == (estimate, {})
    assert play(1.0, metered=True) == ({"ipmi": 9000.0}, {"": 0})
    assert play(30.0, metered=False) == (estimate, {"": 1})
    assert play(31.0, metered=True) == ({"ipmi": 9000.0}, {"": 0})


def test_processes_of_a_gpu_that_hangs_are_not_known() -> None:
    rig = Rig()
    first, second = rig.gpus
    running = (GpuProcess(100, 2**30, None),)
    patience = rig.sampler.settings.stale_after(Lane.SLOW)

    def list_processes(gpu: Gpu, at: float, processes: tuple[GpuProcess, ...] | None = running) -> None:
        rig.take(gpu.uuid, Lane.SLOW, at, processes=processes)

    assert (rig.sampler.processes(), rig.sampler.listed_processes()) == ({first: None, second: None}, {})
    list_processes(first, 99.0, ())
    list_processes(second, 99.0, None)
    assert rig.sampler.listed_processes() == {first: ()}, "one whose processes are not known is not one without any"
    list_processes(first, 100.0)
    list_processes(second, 100.0)
    list_processes(second, 100.0 + patience)
    assert rig.sampler.processes() == {first: running, second: running}
    list_processes(second, 101.0 + patience)
    assert rig.sampler.processes() == {first: None, second: running}
    rig.sampler.take_own(102.0 + 2 * patience, ())  # only the agent's own measurements continue
    assert rig.sampler.processes() == {first: None, second: None}
