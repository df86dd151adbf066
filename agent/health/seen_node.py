"""A snapshot as its judges look at it: readings by metric and device, and why those that are absent are."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct, field

from agent.catalogue import BY_NAME
from agent.lib.wording import age, index_runs
from agent.model import Alert, BackendReport, Entity, Gap, Gpu, IbPort, NvLink, Reason, Snapshot

UP = "coldplate_gpu_up"
INFO = "coldplate_gpu_info"
EXPECTED = "coldplate_gpus_expected"
THROTTLE = "coldplate_gpu_throttle_active"
SLOWDOWN = "coldplate_gpu_hw_slowdown_active"
UMBRELLA = "hw_slowdown"
"""Also stands for heat or brake, which have reasons of their own if the GPU reports them: a separate state."""
RECOVERY = "coldplate_gpu_recovery_action"
LINK_UP = "coldplate_nvlink_up"
BUSY, POWER = "coldplate_gpu_utilization_ratio", "coldplate_gpu_power_watts"
JOBS = ("coldplate_gpu_job_info", "coldplate_gpu_shared_job_info")
CLOCKS = ("coldplate_gpu_clock_hertz", "coldplate_gpu_clock_limit_hertz")
ECC_ERRORS = "coldplate_gpu_ecc_errors_total"
AGE = "coldplate_gpu_sample_age_seconds"
DRIVER = "nvml"
"""The backend whose absence means that there is no GPU."""
NOT_READ = "no answer yet"
"""Why a reading is absent if its source gave no reason."""
_SILENT = frozenset({Reason.LOST, Reason.TIMEOUT, Reason.PAUSED})


class SeenValue(NamedTuple):
    """One reading of a metric: its entity, its further labels, and the value in the metric's unit."""

    entity: Entity
    labels: Mapping[str, str]
    value: float


class SeenGpu(Struct):
    """A GPU with its readings that have no labels, in base units by metric name; missing ones are absent.

    Of the clocks, `values` has that of the multiprocessors.
    """

    gpu: Gpu
    facts: Mapping[str, str] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    throttles: list[str] = field(default_factory=list)
    has_throttle_readings: bool = False
    """Whether the driver reports reasons for low clocks: without any, that none is active is not known."""
    links_up: int = 0
    links_down: list[int] = field(default_factory=list)
    is_linked: bool = False
    """Whether any NVLink of the node is up; where none is, they are not connected."""
    jobs: list[Mapping[str, str]] = field(default_factory=list)
    ecc_errors: dict[str, float] = field(default_factory=dict)
    """Memory errors since the driver was loaded, by type: corrected, uncorrected."""
    action: str = ""
    """The recovery action that the driver requests, as a text."""
    silence: Gap | None = None
    conditions: Sequence[Alert] = ()
    """The conditions that name it, the worst first."""
    is_judged: bool = False
    """Whether the rules were evaluated: without, that no condition names it says nothing."""
    state: str = ""
    """What it did for most of the last minute, by the ledger; empty where that is not known."""

    @property
    def is_known(self) -> bool:
        """Whether it shows its utilization or its power: without either, nothing says how it is, as for the ledger."""
        return BUSY in self.values or POWER in self.values

    @property
    def word(self) -> str:
        """What it does, or why it is not read; empty where nothing says so."""
        return self.silence_word or self.state

    @property
    def shown_word(self) -> str:
        """The same; `up` while it is read and its state is not known, and empty if nothing is read of it."""
        return self.word or ("up" if self.is_known else "")

    @property
    def is_paused(self) -> bool:
        """Whether `coldplate pause` has released the driver: that the GPU is not read says nothing about it."""
        return self.silence is not None and self.silence.reason is Reason.PAUSED

    @property
    def silence_word(self) -> str:
        """Why it is not read: `paused`, `lost` or `no answer`; empty if it is up."""
        if self.up:
            return ""
        if self.is_paused:
            return "paused"
        return "lost" if self.silence is not None and self.silence.reason is Reason.LOST else "no answer"

    @property
    def silence_text(self) -> str:
        """The same with the driver's words, the age of its last sample, and where it is; empty if it is up."""
        word = self.silence_word
        detail = "" if self.silence is None else self.silence.detail
        if not word or self.is_paused:
            return f"{word}: {detail}" if detail and word else word
        text = f"{word}: {detail}" if detail else word
        parts = [detail if detail.startswith(word) else text]
        since = self.values.get(AGE)
        if since is not None:
            parts.append(f"last sample {age(since)} ago")
        return "; ".join([*parts, *self.place])

    @property
    def up(self) -> bool:
        return self.values.get(UP) == 1

    @property
    def links(self) -> int:
        return self.links_up + len(self.links_down)

    @property
    def busy(self) -> float | None:
        return self.values.get(BUSY)

    @property
    def place(self) -> list[str]:
        """Where it is and which it is, for who replaces it: slot and serial number, as far as they are known."""
        return [f"{name} {self.facts[name]}" for name in ("slot", "serial") if self.facts.get(name)]


class SeenNode:
    """The part of a snapshot that is judged, `metrics` by name. Nothing is seen before `add_snapshot`.

    `devices` is the family of devices that is read, where that is known.
    """

    def __init__(self, metrics: Iterable[str], devices: str = "") -> None:
        self._rows = {BY_NAME[name] for name in (*metrics, UP, INFO, EXPECTED)}
        self._devices = devices
        self._values: dict[str, list[SeenValue]] = {}
        self._gaps: dict[tuple[str, Entity], str] = {}
        self._unsupported: set[tuple[str, Entity]] = set()
        self.silent: dict[Entity, Gap] = {}
        """Why GPUs and ports are silent: the first gap of each that is lost, does not answer or has no sample."""
        self.reports: dict[str, BackendReport] = {}
        self.gpus: list[Gpu] = []
        """All that are known of: those that answer, those that are lost, those that never said who they are."""
        self.answering: list[Gpu] = []

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """See a snapshot, of 20,000 series at most."""
        for layout, values in snapshot.frames:
            for series, value in zip(layout.series, values, strict=True):
                if series.metric in self._rows:
                    reading = SeenValue(series.entity, dict(series.labels), value)
                    self._values.setdefault(series.metric.name, []).append(reading)
        for report in snapshot.reports:
            self.reports[report.backend] = report
            for gap in report.gaps:
                self._add_gap(gap)
        presence = [(reading.entity, reading.value) for reading in self.all(UP)]
        self.gpus = [gpu for gpu, _ in presence if isinstance(gpu, Gpu)]
        self.answering = [gpu for gpu, up in presence if isinstance(gpu, Gpu) and up]

    def _add_gap(self, gap: Gap) -> None:
        key = (gap.metric.name, gap.entity)
        if gap.reason is Reason.UNSUPPORTED:  # which is not a problem
            self._unsupported.add(key)
        else:
            self._gaps[key] = _text_of(gap)
        if (gap.reason in _SILENT or gap.metric.name == AGE) and isinstance(gap.entity, (Gpu, IbPort)):
            self.silent.setdefault(gap.entity, gap)

    @property
    def has_devices_report(self) -> bool:
        """Whether the device source has reported yet, even if only that the node has no devices."""
        return bool(self.gpus) or not self._devices or self._devices in self.reports

    @property
    def expected_gpus(self) -> int | None:
        """The number that the agent expects: configured, remembered, or on the PCI bus."""
        return next((int(reading.value) for reading in self.all(EXPECTED)), None)

    def all(self, metric: str) -> list[SeenValue]:
        return self._values.get(metric, [])

    @cached_property
    def by_gpu(self) -> dict[Entity, SeenGpu]:
        """The GPUs by index, each with what is seen of it."""
        gpus: dict[Entity, SeenGpu] = {}
        for name, readings in self._values.items():
            for entity, labels, value in readings:
                if isinstance(entity, Gpu) and (not labels or (name in CLOCKS and labels.get("domain") == "sm")):
                    gpus.setdefault(entity, SeenGpu(entity)).values[name] = value
        for reading in self.all(INFO):
            if isinstance(reading.entity, Gpu):
                gpus.setdefault(reading.entity, SeenGpu(reading.entity)).facts = reading.labels
        for gpu in gpus.values():
            gpu.silence = self.silent.get(gpu.gpu)
        self._add_states(gpus)
        order = sorted(gpus.values(), key=lambda gpu: (len(gpu.gpu.index), gpu.gpu.index, gpu.gpu.uuid))
        return {gpu.gpu: gpu for gpu in order}

    def _add_states(self, gpus: Mapping[Entity, SeenGpu]) -> None:
        for link, _, is_up in self.all(LINK_UP):
            if isinstance(link, NvLink) and (gpu := gpus.get(link.gpu)) is not None:
                if is_up:
                    gpu.links_up += 1
                else:
                    gpu.links_down.append(link.link)
        is_linked = any(gpu.links_up for gpu in gpus.values())
        for gpu in gpus.values():
            gpu.is_linked = is_linked
        for name in (THROTTLE, SLOWDOWN, RECOVERY, ECC_ERRORS, *JOBS):
            for entity, labels, value in self.all(name):
                if (gpu := gpus.get(entity)) is None:
                    continue
                if name in JOBS:
                    if labels.get("shared") != "true":
                        gpu.jobs.append(labels)
                elif name == ECC_ERRORS:
                    gpu.ecc_errors[labels["type"]] = value
                elif name == RECOVERY:
                    if value and labels["action"] != "none":
                        gpu.action = labels["action"].replace("_", " ")
                else:
                    gpu.has_throttle_readings = True
                    if value:
                        gpu.throttles.append(labels.get("reason", UMBRELLA))

    def by_entity(self, metric: str) -> dict[Entity, float]:
        """Return the reading of each entity, of a metric with one series of each."""
        return {reading.entity: reading.value for reading in self.all(metric)}

    def of_gpus(self, metric: str, **labels: str) -> dict[Gpu, float]:
        """Return the readings of the GPUs that answer, of one series each, by these labels where there are several."""
        answering = set(self.answering)
        return {
            reading.entity: reading.value
            for reading in self.all(metric)
            if isinstance(reading.entity, Gpu)
            and reading.entity in answering
            and labels.items() <= reading.labels.items()
        }

    def offers(self, gpu: Gpu, metric: str) -> bool:
        """Return False where the driver says that the GPU has no such thing."""
        return (metric, gpu) not in self._unsupported

    def why_absent(self, gpu: Gpu, metric: str) -> str:
        """Return why a GPU has no reading of a metric, as far as it is known."""
        return self._gaps.get((metric, gpu), NOT_READ)

    def why_silent(self, gpu: Gpu) -> str:
        """Return why a GPU does not answer, as far as it is known."""
        return _text_of(self.silent[gpu]) if gpu in self.silent else NOT_READ

    def facts(self, name: str) -> dict[Gpu, str]:
        """Return a fact of each GPU: `model`, the name under which the driver shows it, or `slot`, its PCI address."""
        return {reading.entity: reading.labels[name] for reading in self.all(INFO) if isinstance(reading.entity, Gpu)}

    def find(self, device: str) -> Gpu | None:
        """Return the GPU with this UUID, or at this PCI address, which may lack its function: `0000:1b:00`."""
        for gpu, slot in self.facts("slot").items():
            if device == gpu.uuid or (device and slot.startswith(device)):
                return gpu
        return None


def name_of(gpu: Gpu) -> str:
    """Return a GPU as people know it."""
    return f"GPU {gpu.index} ({gpu.uuid})" if gpu.uuid else f"GPU {gpu.index} (never identified)"


def numbers(gpus: Iterable[Gpu]) -> str:
    """Return several GPUs in few words: GPU 3, or GPUs 0-2, 5."""
    indexes = [gpu.index for gpu in gpus]
    return f"GPU{'' if len(indexes) == 1 else 's'} {index_runs(indexes)}"


def _text_of(gap: Gap) -> str:
    return f"{gap.reason.value}: {gap.detail}" if gap.detail else gap.reason.value
