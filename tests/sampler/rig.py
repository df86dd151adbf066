"""A sampler whose clock the test turns, and what its snapshots show."""

from collections import defaultdict
from collections.abc import Sequence

from agent.backends.protocol import GpuProcess, LaneSample, Unidentified
from agent.model import BackendReport, Framer, Gap, GpuIdentity, Instant, Lane, Reading, Snapshot
from agent.sampler.health import LoopFacts
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings


class SamplerRig:
    def __init__(self, settings: Settings | None = None, inventory: Inventory | None = None) -> None:
        self.sampler = Sampler(settings or Settings(), inventory or Inventory(None), "nvml")
        self.facts = LoopFacts()
        self._framers: defaultdict[tuple[str, Lane], Framer] = defaultdict(Framer)

    def enlist(self, channels: Sequence[GpuIdentity], missing: Sequence[Unidentified] = (), at: float = 0.0) -> None:
        self.sampler.enlist([(each.gpu.uuid, each) for each in channels], missing, at)

    def take(
        self, uuid: str, lane: Lane, at: float, readings: Sequence[Reading] = (), *, gaps: Sequence[Gap] = (),
        processes: tuple[GpuProcess, ...] | None = None,
    ) -> None:  # fmt: skip
        frame = self._framers[uuid, lane].frame(readings)
        self.sampler.take_lane(LaneSample(uuid, lane, at, 0.001, 7, frame, tuple(gaps), processes))

    def see(self, at: float) -> Snapshot:
        return self.sampler.snapshot(Instant(at, 1e9 + at), self.facts)

    def report(self, at: float, backend: str) -> BackendReport:
        (found,) = [each for each in self.see(at).reports if each.backend == backend]
        return found

    def rows(self, at: float, name: str) -> list[tuple[dict[str, str], float]]:
        found = [each for each in self.see(at).readings if each.metric.name == name]
        return [(dict(each.series.all_labels), each.value) for each in found]

    def missing(self, at: float) -> dict[tuple[str, str], str]:
        """The reasons of missing metrics, by the UUID of the GPU and the metric."""
        rows = [row for row, _ in self.rows(at, "coldplate_metric_missing")]
        return {(row.get("uuid", ""), row["metric"]): row["reason"] for row in rows}
