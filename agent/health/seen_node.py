"""A snapshot as the checks look at it: readings by metric and GPU, and why those that are absent are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.lib.wording import index_runs
from agent.model import BackendReport, Entity, Gpu, Reason, Snapshot

UP = "coldplate_gpu_up"
INFO = "coldplate_gpu_info"
EXPECTED = "coldplate_gpus_expected"
NOT_READ = "no answer yet"
"""Why a reading is absent where nobody gave a reason."""
_NEVER = {Reason.UNSUPPORTED}
"""Reasons that are no news: the device is not made to tell this."""


class SeenValue(NamedTuple):
    """One reading of a metric: of what, told apart by which labels, and the value in the metric's unit."""

    entity: Entity
    labels: Mapping[str, str]
    value: float


class SeenNode:
    """The part of a snapshot that checks read, `metrics` by name. Costs one pass over the series.

    `devices` is the family of devices that is read, where that is known.
    """

    def __init__(self, snapshot: Snapshot, metrics: Iterable[str], devices: str = "") -> None:
        wanted = {BY_NAME[name] for name in (*metrics, UP, INFO, EXPECTED)}
        self._seen: dict[str, list[SeenValue]] = defaultdict(list)
        for layout, values in snapshot.frames:
            for series, value in zip(layout.series, values, strict=True):
                if series.metric in wanted:
                    self._seen[series.metric.name].append(SeenValue(series.entity, dict(series.labels), value))
        self._gaps: dict[tuple[str, Entity], str] = {}
        self._unsupported: set[tuple[str, Entity]] = set()
        for report in snapshot.reports:
            self._take_gaps(report)
        self.reports: dict[str, BackendReport] = {report.backend: report for report in snapshot.reports}
        presence = [(each.entity, each.value) for each in self.all(UP)]
        self.gpus = [gpu for gpu, _ in presence if isinstance(gpu, Gpu)]
        """All that are known of: those that answer, those that are lost, those that never said who they are."""
        self.is_told = bool(self.gpus) or not devices or devices in self.reports
        """Whether anybody has told of devices yet, if only that there are none."""
        self.expected_gpus = next((int(each.value) for each in self.all(EXPECTED)), 0)
        """The number that the agent expects: configured, remembered, or on the PCI bus."""
        self.answering = [gpu for gpu, up in presence if isinstance(gpu, Gpu) and up]

    def _take_gaps(self, report: BackendReport) -> None:
        for gap in report.gaps:
            key = (gap.metric.name, gap.entity)
            if gap.reason in _NEVER:
                self._unsupported.add(key)
            else:
                self._gaps[key] = f"{gap.reason.value}: {gap.detail}" if gap.detail else gap.reason.value

    def all(self, metric: str) -> list[SeenValue]:
        """Return every reading of a metric."""
        return self._seen.get(metric, [])

    def of_gpus(self, metric: str, **labels: str) -> dict[Gpu, float]:
        """Return the readings of the GPUs that answer, of one series each, by these labels where there are several."""
        answering = set(self.answering)
        return {
            each.entity: each.value
            for each in self.all(metric)
            if isinstance(each.entity, Gpu) and each.entity in answering and labels.items() <= each.labels.items()
        }

    def offers(self, gpu: Gpu, metric: str) -> bool:
        """Return False where the driver says that the GPU has no such thing."""
        return (metric, gpu) not in self._unsupported

    def why_absent(self, gpu: Gpu, metric: str) -> str:
        """Return why a GPU has no reading of a metric, as far as it is known."""
        return self._gaps.get((metric, gpu), NOT_READ)

    def models(self) -> dict[Gpu, str]:
        """Return the name under which the driver shows each GPU."""
        return {each.entity: each.labels["model"] for each in self.all(INFO) if isinstance(each.entity, Gpu)}

    def find(self, device: str) -> Gpu | None:
        """Return the GPU with this UUID, or at this PCI address, which may lack its function: `0000:1b:00`."""
        for gpu, slot in self.slots().items():
            if device == gpu.uuid or (device and slot.startswith(device)):
                return gpu
        return None

    def slots(self) -> dict[Gpu, str]:
        """Return the PCI address of each GPU."""
        return {each.entity: each.labels["slot"] for each in self.all(INFO) if isinstance(each.entity, Gpu)}


def name_of(gpu: Gpu) -> str:
    """Return a GPU as people know it."""
    return f"GPU {gpu.index} ({gpu.uuid})" if gpu.uuid else f"GPU {gpu.index} (never identified)"


def numbers(gpus: Iterable[Gpu]) -> str:
    """Return several GPUs in few words: GPU 3, or GPUs 0-2, 5."""
    indexes = [gpu.index for gpu in gpus]
    return f"GPU{'' if len(indexes) == 1 else 's'} {index_runs(indexes)}"
