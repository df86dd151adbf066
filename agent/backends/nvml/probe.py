"""Finds out, once per GPU and opening, what the device and its driver support, and plans its reads.

Unsupported and denied values leave the plan and become gaps that are made here and shown in every
sample of their lane. Values that failed temporarily stay in the plan. A GPU is probed by its own
thread, in its first read: one that hangs in it does not delay other GPUs.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agent.backends.nvml.arrays import Slot, SlotError, highest_of, sum_of
from agent.backends.nvml.calls import SPECS, DeviceCall, arguments, clock_event_reasons, field_codes
from agent.backends.nvml.driver import (
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    PERMANENT_CODES,
    Driver,
    DriverError,
    GpuHandle,
    describe,
    escalate,
    reason_of,
)
from agent.backends.nvml.fields import FieldBatch, GpmSampler, Pair, fetch
from agent.backends.nvml.lane_reader import Code, Combine, LaneReader, Number
from agent.backends.protocol import DeviceError, SourceError
from agent.catalogue import ROWS
from agent.catalogue import nvml_constants as nvml
from agent.catalogue.bindings import ALL_LINKS, Call, Field, Gpm
from agent.model import Gap, Gpu, Lane, Metric, NvLink, Reason, Series

NvmlBinding = Field | Call | Gpm


class MetricRequest(NamedTuple):
    """One value of a row, or all its values if a binding gives them together, with its bindings in order of preference.

    The catalogue decides which there are, before any device is asked.
    """

    metric: Metric
    labels: tuple[str, ...]
    bindings: tuple[NvmlBinding, ...]

    @property
    def per_link(self) -> bool:
        """Whether there is one such value for each NVLink."""
        return self.metric.entity is NvLink


def lane_of(metric: Metric, binding: NvmlBinding) -> Lane:
    if isinstance(binding, Call) and binding.lane is not None:
        return binding.lane
    return metric.lane


def metric_requests() -> tuple[MetricRequest, ...]:
    """Return what NVML serves of the catalogue, in its order; bindings with equal labels are alternatives."""
    requests: list[MetricRequest] = []
    for row in ROWS:
        if row.entity not in (Gpu, NvLink):
            continue
        groups: dict[tuple[str, ...], list[NvmlBinding]] = {}
        for binding in row.origin:
            if isinstance(binding, Field | Call | Gpm):
                groups.setdefault(binding.labels, []).append(binding)
        requests.extend(MetricRequest(row, labels, tuple(bindings)) for labels, bindings in groups.items())
    return tuple(requests)


FAST_CALLS = 7
"""Most device calls in a fast sample: each takes the driver's locks."""
_CLOCK = "nvmlDeviceGetClockInfo"
MIG_MODE_CALL = "nvmlDeviceGetMigMode"
"""Returns the current mode: 1 if MIG is enabled."""
_LINK_COUNT: Pair = (nvml.FI_DEV_NVLINK_LINK_COUNT, 0)
_ELSEWHERE = frozenset(
    {"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlGpmMigSampleGet", "nvmlDeviceGetGpuFabricInfoV"}
)  # MigReader, FabricReader


class GpuReadPlan(NamedTuple):
    """What to read on one GPU, by lane; `mig` is whether it is divided. `gpm` may be in no lane.

    `is_provisional`: a call that decides what the GPU offers failed and may succeed later, so the plan may lack values.
    """

    lanes: dict[Lane, LaneReader]
    gpm: GpmSampler
    mig: bool
    is_provisional: bool


class _UnsupportedMetrics:
    """What is left out: one gap for a row, entity and reason, with everything that was tried."""

    def __init__(self) -> None:
        self._tried: dict[tuple[Lane, Metric, Reason], dict[str, list[str]]] = {}

    def add(self, request: MetricRequest, faults: Sequence[tuple[str, SlotError]]) -> None:
        denied = any(fault.reason is Reason.DENIED for _, fault in faults)
        reason = Reason.DENIED if denied else faults[0][1].reason
        texts = self._tried.setdefault((lane_of(request.metric, request.bindings[0]), request.metric, reason), {})
        for source, fault in faults:
            texts.setdefault(fault.text, []).append(source)

    def gaps(self, lane: Lane, gpu: Gpu, served: set[Metric], suffix: str) -> Iterable[Gap]:
        for (gap_lane, metric, reason), texts in self._tried.items():
            # The error types of links come in families, one per generation: a GPU has only one of them.
            if gap_lane is not lane or (metric in served and _by_generation(metric)):
                continue
            detail = "; ".join(f"{', '.join(dict.fromkeys(sources))}: {text}" for text, sources in texts.items())
            yield Gap(metric, gpu, reason, detail + suffix)


class Prober:
    """Makes one GPU's plan."""

    def __init__(self, driver: Driver, device: GpuHandle, gpu: Gpu, requests: Sequence[MetricRequest]) -> None:
        self._device = device
        self._gpu = gpu
        self._requests = requests
        self._fields = {lane: FieldBatch() for lane in Lane}
        self._lanes = {lane: LaneReader() for lane in Lane}
        self._missing = _UnsupportedMetrics()
        self._served: set[Metric] = set()
        self._gpm = GpmSampler(driver)
        self._gpm_fault: SlotError | None = None
        self._queries: dict[tuple[str, tuple[object, ...]], tuple[DeviceCall, object] | SlotError] = {}
        self._is_provisional = False

    def plan(self) -> GpuReadPlan:
        """Ask the device. Raises DeviceError or SourceError when it is out of order as a whole."""
        try:
            return self._make_plan()
        except (DeviceError, SourceError):
            self._gpm.close()
            raise

    def _make_plan(self) -> GpuReadPlan:
        mig = self._mig_enabled()
        links = fetch(self._device, [_LINK_COUNT])[_LINK_COUNT]
        self._links: range | SlotError = links if isinstance(links, SlotError) else range(int(links))
        self._is_provisional |= isinstance(links, SlotError) and links.code not in PERMANENT_CODES
        self._slots = fetch(self._device, self._pairs())
        self._gpm_fault = self._probe_gpm()
        for request in self._requests:
            self._resolve(request)
        self._hold_to_budget()
        suffix = "; MIG is enabled" if mig else ""
        for lane, reader in self._lanes.items():
            reader.gaps = tuple(self._missing.gaps(lane, self._gpu, self._served, suffix))
        return GpuReadPlan(self._lanes, self._gpm, mig, self._is_provisional)

    def _mig_enabled(self) -> bool:
        try:
            return bool(self._device.call(MIG_MODE_CALL) == 1)
        except DriverError as error:
            escalate(error)
            self._is_provisional |= error.code not in PERMANENT_CODES
            return False

    def _probe_gpm(self) -> SlotError | None:
        try:
            self._gpm.probe(self._device)
        except DriverError as error:
            escalate(error)
            if error.code in PERMANENT_CODES or not self._gpm.ready:
                self._is_provisional |= error.code not in PERMANENT_CODES
                self._gpm.close()
                return SlotError(reason_of(error.code), str(error), error.code)
        # First, so that `now` is the sample's own time: a slow call before it would shorten its interval.
        self._lanes[Lane.FAST].sources.append(self._gpm)
        return None

    def _pairs(self) -> list[Pair]:
        pairs: dict[Pair, None] = {}
        for request in self._requests:
            for binding in request.bindings:
                if isinstance(binding, Field):
                    pairs.update(dict.fromkeys(self._scopes(binding)))
        return list(pairs)

    def _scopes(self, binding: Field) -> list[Pair]:
        if not binding.per_link:
            return [(binding.id, binding.scope)]
        return [] if isinstance(self._links, SlotError) else [(binding.id, link) for link in self._links]

    def _resolve(self, request: MetricRequest) -> None:
        faults: list[tuple[str, SlotError]] = []
        for binding in request.bindings:
            if isinstance(binding, Call) and binding.name in _ELSEWHERE:
                return
            fault = self._plan_binding(request, binding)
            if fault is None:
                self._served.add(request.metric)
                return
            faults.append((_source(binding), fault))
        self._missing.add(request, faults)

    def _plan_binding(self, request: MetricRequest, binding: NvmlBinding) -> SlotError | None:
        """Put the binding into the plan; else the fault that keeps it out."""
        lane = lane_of(request.metric, binding)
        if isinstance(binding, Call):
            return self._plan_call(request, binding, self._lanes[lane])
        if isinstance(binding, Field):
            return self._plan_field(request, binding, lane)
        if self._gpm_fault is None:
            self._lanes[lane].add_value(self._gpm.number(binding, self._series(request)))
        return self._gpm_fault

    def _series(self, request: MetricRequest, entity: Gpu | NvLink | None = None) -> Series:
        labels = tuple(zip(request.metric.labels, request.labels, strict=True)) if request.metric.labels else ()
        return Series(request.metric, entity or self._gpu, labels)

    def _plan_field(self, request: MetricRequest, binding: Field, lane: Lane) -> SlotError | None:
        """Plan a field; a link that is down now stays in, as long as any link offers the field."""
        if binding.per_link and isinstance(self._links, SlotError):
            return SlotError(self._links.reason, f"the number of NVLinks is unknown, {self._links.text}")
        pairs = self._scopes(binding)
        if not pairs:
            return None if request.per_link else SlotError(Reason.UNSUPPORTED, "the GPU has no NVLink")
        faults = [_permanent(self._slots[pair]) for pair in pairs]
        able = [pair for pair, fault in zip(pairs, faults, strict=True) if fault is None]
        if not able:
            return faults[0]
        if request.per_link:
            for pair in pairs:
                self._add_field(request, binding, lane, [pair], NvLink(self._gpu, pair[1]))
        else:
            self._add_field(request, binding, lane, able, self._gpu)
        return None

    def _add_field(
        self, request: MetricRequest, binding: Field, lane: Lane, pairs: Sequence[Pair], entity: Gpu | NvLink
    ) -> None:
        """Plan a field of the GPU or of one link; of several links their sum, or the highest of packed ratios."""
        batch, reader = self._fields[lane], self._lanes[lane]
        places = [batch.place(pair) for pair in pairs]
        table = field_codes(binding.id, request.metric, entity)
        if table is not None:
            reader.add_value(Code(batch, places[0], str(binding), request.metric, entity, table.get))
            return
        combine: Combine | None = None
        if binding.packed:
            combine = highest_of
        elif len(pairs) > 1:
            combine = sum_of
        reader.add_value(Number(batch, places, str(binding), binding.scale, self._series(request, entity), combine))

    def _plan_call(self, request: MetricRequest, binding: Call, lane: LaneReader) -> SlotError | None:
        key = (binding.name, arguments(binding.name, binding.labels))
        if key not in self._queries:
            self._queries[key] = self._try_call(*key)
        outcome = self._queries[key]
        if isinstance(outcome, SlotError):
            return outcome
        query, answer = outcome
        spec = SPECS[binding.name]
        part = binding.labels[0] if spec.parts else ""
        if isinstance(answer, dict) and part not in answer:
            return SlotError(Reason.UNSUPPORTED, f"only {query.name} is available, which counts it as used")
        if binding.bit is not None or (request.metric.labels and not binding.labels):
            decode = clock_event_reasons(request.metric, self._gpu, binding.bit)
            lane.add_value(Code(query, query.place(part), query.name, request.metric, self._gpu, decode))
        else:
            lane.add_value(Number(query, [query.place(part)], query.name, spec.scale, self._series(request)))
        return None

    def _try_call(self, name: str, args: tuple[object, ...]) -> tuple[DeviceCall, object] | SlotError:
        older = SPECS[name].older
        fault: SlotError | None = None
        for candidate in (name, older) if older else (name,):
            try:
                answer = self._device.call(candidate, *args)
            except DriverError as error:
                escalate(error)
                if error.code not in PERMANENT_CODES:
                    return DeviceCall(name, candidate, args), None  # may pass: try again on every sample
                # Of two failures keep the more informative: a missing function says nothing about the device.
                if fault is None or fault.code == FUNCTION_NOT_FOUND:
                    fault = SlotError(reason_of(error.code), describe(error.code), error.code)
                if error.code == NO_PERMISSION:
                    break
            else:
                return DeviceCall(name, candidate, args), answer
        return fault or SlotError(Reason.UNSUPPORTED, f"{name} was not tried")

    def _hold_to_budget(self) -> None:
        """Move the SM clock to the slow lane when an older driver's fallbacks fill the fast one.

        The reasons for reduced clocks are still in each sample.
        """
        fast = self._lanes[Lane.FAST]
        if len(fast.sources) > FAST_CALLS:
            for source in [s for s in fast.sources if isinstance(s, DeviceCall) and s.name == _CLOCK]:
                fast.move(source, self._lanes[Lane.SLOW])


def _by_generation(metric: Metric) -> bool:
    """Return whether different generations of NVLink count this by different types."""
    return metric.entity is NvLink or any(isinstance(b, Field) and b.per_link for b in metric.origin)


def _source(binding: NvmlBinding) -> str:
    """Describe the binding, with the scope that distinguishes a module's power from the board's."""
    if not isinstance(binding, Field) or (binding.scope == 0 and not binding.per_link):
        return str(binding)
    if binding.per_link or binding.scope == ALL_LINKS:
        return f"{binding} of {'each link' if binding.per_link else 'all links'}"
    return f"{binding} of scope {binding.scope}"


def _permanent(slot: Slot) -> SlotError | None:
    """Return the fault, if it will not go away while the library is open."""
    return slot if isinstance(slot, SlotError) and slot.code in PERMANENT_CODES else None
