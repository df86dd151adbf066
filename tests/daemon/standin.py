"""A daemon on the stand-in for the driver's library; a sampling loop, and what stands in for backends and systemd."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agent.backends.protocol import BackendSample
from agent.daemon.hub import Hub
from agent.daemon.reloading import Notifier
from agent.daemon.sampling import SamplingLoop
from agent.model import Instant, Lane, Snapshot
from agent.sampler.inventory import Inventory
from agent.sampler.sampler import Sampler
from agent.sampler.schedule import Settings
from agent.worker.supervisor import without_worker
from tests.fakes.nvml import build

FAST = "sampling: {fast: 250ms, slow: 1s, cold: 2s}\nbackends: {power: [estimate], infiniband: false}\n"


class Node:
    def __init__(
        self,
        start,
        library: Path,
        tmp_path: Path,
        config: str = FAST,
        commands: tuple[str, ...] = (),
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.control = tmp_path / "control"
        self.command(*commands)
        self.state = tmp_path / "state"
        self.environment = {"LD_LIBRARY_PATH": str(library), build.CONTROL: str(self.control)}
        config += f"state_dir: {self.state}\n"
        self.daemon = start("--backend", "nvml", *arguments, config=config, environment=self.environment)

    def command(self, *lines: str) -> None:
        build.command(self.control, *lines)

    def up(self) -> dict[str, float]:
        return self.daemon.family("coldplate_gpu_up")

    def until_up(self, expected: dict[str, float], seconds: float) -> float:
        return self.daemon.until(f"up is {expected}", lambda: self.up() == expected, seconds)

    def missing(self) -> dict[tuple[str, str], str]:
        """The reason, by index and UUID, for each GPU that gave no sample."""
        age = "coldplate_gpu_sample_age_seconds"
        rows = [dict(labels) for name, labels in self.daemon.page() if name == "coldplate_metric_missing"]
        return {(row["gpu"], row["uuid"]): row["reason"] for row in rows if row["metric"] == age}

    def states(self, gpu: str) -> dict[str, float]:
        """The seconds of a GPU by state."""
        name = "coldplate_gpu_state_seconds_total"
        page = [(dict(labels), value) for (each, labels), value in self.daemon.page().items() if each == name]
        return {labels["state"]: value for labels, value in page if labels["gpu"] == gpu}

    def firing(self) -> set[tuple[str, str]]:
        alerts = json.loads(self.daemon.get("/api/v1/alerts"))["data"]["alerts"]
        firing = [each["labels"] for each in alerts if each["state"] == "firing"]
        return {(labels["alertname"], labels.get("gpu", "")) for labels in firing}

    def ready(self) -> bool:
        try:
            self.daemon.get("/-/ready")
        except OSError:
            return False
        return True


class LoopRig:
    """A sampling loop without threads, its sampler, and the hub that it publishes to."""

    def __init__(
        self,
        clock: Callable[[], Instant],
        settings: Settings,
        backends: Sequence[Any] = (),
        worker: Any = None,
        **more: Any,
    ) -> None:
        self.hub = Hub()
        self.sampler = Sampler(settings, Inventory(None), "nvml")
        self.loop = SamplingLoop(self.sampler, worker or without_worker(), backends, clock, hub=self.hub, **more)

    @property
    def latest(self) -> Snapshot:
        assert self.hub.latest is not None
        return self.hub.latest


class QuickBackend:
    name = "quick"
    lanes = frozenset({Lane.FAST})
    shortest = 0.0

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        return BackendSample()

    def close(self) -> None:
        pass


class Ears(Notifier):
    def __init__(self) -> None:
        super().__init__({})
        self.heard: list[dict[str, object]] = []

    def send(self, **facts: object) -> None:
        self.heard.append(facts)
