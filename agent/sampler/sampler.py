"""Assembles the node: takes the sources' readings and makes the snapshot of a moment.

It reads no clock and touches no device: the loop that owns it passes readings and the time. The newest readings of each
lane of each channel are a block, which is withdrawn when it becomes stale.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from msgspec import Struct

from agent.backends.protocol import ChannelError, GpuProcess, LaneSample, Unidentified
from agent.catalogue import BY_NAME
from agent.catalogue.bindings import Derived
from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.model import (
    EMPTY_FRAME,
    LANES,
    Backend,
    BackendReport,
    Frame,
    Framer,
    Gap,
    Gpu,
    GpuIdentity,
    Instant,
    Lane,
    Layout,
    Node,
    Outcome,
    Reading,
    Reason,
    Series,
    Snapshot,
    Xid,
)
from agent.sampler.backend_runner import Flight, Read
from agent.sampler.condition import GPU_POWER, NODE_POWER, Conditioner, Key
from agent.sampler.devices import Devices, FindUnclaimed, Trouble
from agent.sampler.health import Health, LoopFacts, MissingMetrics, Source
from agent.sampler.inventory import Inventory
from agent.sampler.ledger import GpuLedger
from agent.sampler.node_sums import LinkRates, NodeSums, estimate
from agent.sampler.rolling import RollingStatistics
from agent.sampler.schedule import Settings
from agent.sampler.xids import XidLedger


class Block(Struct, frozen=True):
    """The last sample of one lane, read at `at` (monotonic seconds)."""

    at: float
    frame: Frame
    gaps: Sequence[Gap]
    withdrawn: Layout = EMPTY_FRAME.layout
    """The series that were shown before a failure, which are now missing."""


def withdrawn(block: Block, at: float, reason: Reason, detail: str) -> Block:
    """Return the block after a failed read at `at`: its readings are now gaps, with the newest reason."""
    layout = block.frame.layout if len(block.frame.layout) else block.withdrawn
    return Block(at, EMPTY_FRAME, missed(layout, reason, detail), layout)


def missed(layout: Layout, reason: Reason, detail: str) -> list[Gap]:
    """Return a gap for each metric of these series.

    What the agent computes from a missing metric, such as its rolling mean, gets no gap of its own.
    """
    metrics = {
        (series.metric, series.entity): None
        for series in layout.series
        if not isinstance(series.metric.origin[0], Derived)
    }
    return [Gap(metric, entity, reason, detail) for metric, entity in metrics]


ESTIMATE: Key = ("estimate", "", Lane.FAST)
FALLBACK = Series(BY_NAME["coldplate_node_power_fallback"], Node())


class Sampler:
    """All state of sampling between two ticks. Belongs to one thread."""

    def __init__(
        self,
        settings: Settings,
        inventory: Inventory,
        devices: str,
        gpus_on_bus: int = 0,
        find_unclaimed: FindUnclaimed = lambda _: (),
    ) -> None:
        """`devices` names the worker's source; `gpus_on_bus`: how many to expect if nothing else says."""
        self.settings = settings
        self.devices = devices
        self.paces: Mapping[str, float] = {}
        """The seconds between two reads of the other backends."""
        self.inventory = inventory
        self.health = Health()
        self.xids = XidLedger(inventory)
        self._statistics = RollingStatistics(settings.window)
        self._conditioner = Conditioner(self._statistics)
        self._metered = False
        self._links: dict[str, LinkRates] = {}
        self._blocks: dict[Key, Block] = {}
        self._missing = MissingMetrics()
        self._sums = NodeSums()
        self._ledger = GpuLedger()
        self._stale_after: dict[tuple[str, Lane], float] = {}
        self._gpus = Devices(inventory, gpus_on_bus, find_unclaimed)
        self._processes: dict[str, tuple[float, Sequence[GpuProcess] | None]] = {}
        self._rejected = OwnSeries()
        self._own_framer, self._estimate_framer, self._power_framer = Framer(), Framer(), Framer()
        self._sequence = 0
        self._shown: list[tuple[Key, Layout]] = []
        """The blocks that the last whole snapshot showed, and their series."""
        self._blocks_then = 0
        """How many blocks there were, shown or not."""
        self._changed = True
        """Whether a device came, went or had an error since then."""
        self._computed: tuple[Frame, ...] = ()
        self._reports: tuple[BackendReport, ...] = ()
        self._lateness, self._late_at = 0.0, -inf

    def reconfigure(self, settings: Settings) -> None:
        """Continue with other settings; history and counters stay."""
        self.settings, self._changed = settings, True
        self._stale_after.clear()
        self._enumerate()
        self._gpus.recognise()
        self._statistics.set_window(settings.window)

    def enlist(
        self, channels: Sequence[tuple[str, GpuIdentity | None]], unidentified: Sequence[Unidentified], now: float
    ) -> None:
        """Take in a worker's channels, and the GPUs that have not identified themselves. Call it for each change."""
        self._changed = True
        if self._gpus.enlist(channels, unidentified, now):
            self._enumerate()
        self._gpus.recognise()
        why_none = self._gpus.why_no_channels()
        if why_none:
            self.health.outcome(self.devices, Outcome.FAILED, why_none)
        else:
            self.health.opened(self.devices)

    def refused(self, reason: Reason, detail: str, outcome: Outcome = Outcome.FAILED) -> None:
        """Record that the devices cannot be read at all, for this reason."""
        self._changed = True
        self._gpus.refused(reason, detail)
        self.health.outcome(self.devices, outcome, detail)

    def pause(self, detail: str) -> None:
        """Release the devices for a while on request; they come back as a worker shows them again."""
        self._changed = True
        self._gpus.pause(detail)
        self._processes.clear()
        self.health.outcome(self.devices, Outcome.ABSENT, detail)

    def take_lane(self, sample: LaneSample) -> bool:
        """Take in one lane of one device. True if it is back from an error, which had withdrawn its other lanes."""
        key = (self.devices, sample.channel, sample.lane)
        self._store(key, sample.mono, sample.frame, sample.gaps)
        self.health.enter_lane(self.devices, sample)
        if sample.lane is Lane.SLOW:
            self._processes[sample.channel] = (sample.mono, sample.processes)
        recovered = sample.lane is Lane.FAST and self._gpus.good(sample.channel, sample.mono)
        self._changed |= recovered
        return recovered

    def take_error(self, error: ChannelError) -> None:
        """Take in that one device could not be read as a whole."""
        self._changed = True
        self._gpus.failed(error)
        key = (self.devices, error.channel, error.lane)
        block = self._blocks.get(key)
        if block is not None and error.lane is not Lane.FAST:
            self._blocks[key] = withdrawn(block, error.mono, error.reason, error.detail)

    def take_read(self, read: Read) -> None:
        """Take in one lane of one backend of the main process."""
        self.health.record_read(read)
        key = (read.backend, "", read.lane)
        self.take_xids(read.sample.events)
        if read.outcome is Outcome.OK:
            self._store(key, read.mono, read.frame, read.sample.gaps)
        elif read.outcome is Outcome.ABSENT:
            self._blocks.pop(key, None)
        elif key in self._blocks:
            self._blocks[key] = withdrawn(self._blocks[key], read.mono, read.reason, read.detail)

    def take_xids(self, events: Sequence[Xid]) -> None:
        """Take in reported XID errors."""
        for event in events:
            self.xids.add_xid(event)

    def take_own(self, at: float, readings: Sequence[Reading]) -> None:
        """Take in what the agent measured of itself, which is shown as it is."""
        self._blocks["agent", "", Lane.SLOW] = Block(at, self._own_framer.frame(readings), ())

    def processes(self) -> dict[Gpu, Sequence[GpuProcess] | None]:
        """Return the compute processes of every known GPU; None for one that does not list them. For any thread."""
        listed = self.listed_processes()
        return {identity.gpu: listed.get(identity.gpu) for identity in list(self.inventory.gpus.values())}

    def listed_processes(self) -> dict[Gpu, Sequence[GpuProcess]]:
        """Return the compute processes of the GPUs whose driver lists them. For any thread."""
        newest = max((block.at for block in list(self._blocks.values())), default=0.0)
        oldest = newest - self.settings.stale_after(Lane.SLOW)
        listed: dict[Gpu, Sequence[GpuProcess]] = {}
        for identity in list(self.inventory.gpus.values()):
            at, processes = self._processes.get(identity.gpu.uuid, (oldest, None))
            if processes is not None and at >= oldest and not self._gpus.in_trouble(identity.gpu.uuid):
                listed[identity.gpu] = processes
        return listed

    def late(self, seconds: float, now: float) -> None:
        """Record that the agent itself was late by `seconds`: then a late sample says nothing of the GPU.

        From `now` on, devices have their whole timeout again.
        """
        if seconds >= self._lateness or now - self._late_at > self.settings.stale_after(Lane.FAST):
            self._lateness, self._late_at = max(seconds, 0.0), now

    def _device_timeout(self, now: float) -> float:
        """Return seconds after which a device that has given no sample counts as silent."""
        return self.settings.stale_after(Lane.FAST) + self._slack(now)

    def _slack(self, now: float) -> float:
        """Return seconds that a sample may be older because the agent was late."""
        return self._lateness if now - self._late_at <= self.settings.stale_after(Lane.FAST) else 0.0

    def snapshot(self, now: Instant, facts: LoopFacts, further_frames: Sequence[Frame] = ()) -> Snapshot:
        """Return the node as known now, with the frames of other parts of the agent as they are."""
        timeout = self._device_timeout(now.mono)
        frames, keys, missing = self._current(now.mono, timeout, facts.flights)
        self._shown = [(key, self._blocks[key].frame.layout) for key in keys if key is not ESTIMATE]
        self._blocks_then, self._changed = len(self._blocks), False
        unseen = self._gpus.unseen(now.mono, timeout)
        more = (*self.health.unheard().items(), (self.devices, unseen))
        missing.extend((backend, extra) for backend, extra in more if extra)
        gaps_of, missing_frame = self._missing.gather(missing)
        self._gpus.log_changes(now.mono, timeout)
        self.xids.flush_log(now.mono)
        frames += (
            self._rejected.frame(self._rejections()),
            self._statistics.frame(keys),
            missing_frame,
            self._gpus.frame(now.mono, timeout, self.settings.expected_gpus),
            self.xids.frame(),
            self.health.frame(now.mono, facts, self.settings),
            *further_frames,
        )
        frames.extend(self._ledger.frames(now.mono, frames))
        frames.append(self._sums.frame(frames))
        self._computed = tuple(frames[len(self._shown) :])
        self._reports = self.health.reports(gaps_of)
        return self._numbered(now, tuple(frames))

    def refreshed(self, now: Instant) -> Snapshot | None:
        """Return the last snapshot with the newest readings, and what was computed of earlier ones as it was.

        None if other series were read than then: a device that is lost or a new job needs a whole snapshot. Whether
        something is silent for too long is seen with the next whole one.
        """
        if self._changed or len(self._blocks) != self._blocks_then:
            return None
        frames: list[Frame] = []
        for key, layout in self._shown:
            block = self._blocks.get(key)
            if block is None or block.frame.layout is not layout:
                return None
            frames.append(block.frame)
        self._statistics.add(now.mono)
        return self._numbered(now, (*frames, *self._computed))

    def _numbered(self, now: Instant, frames: tuple[Frame, ...]) -> Snapshot:
        self._sequence += 1
        return Snapshot(self._sequence, now, frames, self._reports)

    def _current(
        self, now: float, timeout: float, flights: Mapping[str, Flight]
    ) -> tuple[list[Frame], list[Key], list[Source]]:
        """Return the readings that are shown, the keys of their blocks, and what is missing.

        The estimate of the node's power comes last. The rolling statistics take in what was read since the last call.
        """
        frames: list[Frame] = []
        keys: list[Key] = []
        missing: list[Source] = []
        slack = self._slack(now)
        silent = self.health.check_flights(flights, now, timeout)
        devices: dict[str, Trouble | None] = {}
        for key, block in self._blocks.items():
            backend, channel, lane = key
            if backend in silent:
                trouble: Trouble | None = Trouble(Reason.TIMEOUT, silent[backend])
            else:
                if channel and channel not in devices:
                    devices[channel] = self._gpus.trouble(channel, block.at, now, timeout)
                trouble = devices.get(channel)
                if trouble is None and now - block.at > self._stale_seconds(backend, lane) + slack:
                    detail = f"{backend} did not finish a {lane.value} read for {now - block.at:.1f} s"
                    trouble = Trouble(Reason.TIMEOUT, detail)
            if trouble is None:
                frames.append(block.frame)
                keys.append(key)
                gaps = block.gaps
            else:
                gaps = missed(block.frame.layout, trouble.reason, trouble.detail) + list(block.gaps)
            if gaps:
                missing.append((backend, gaps))
        readings: list[Reading] = []
        unestimated = self._node_power(now, readings, keys)
        if unestimated:
            missing.append(("estimate", unestimated))
        frames.append(self._power_framer.frame(readings))
        self._statistics.add(now)
        return frames, keys, missing

    def expected(self, now: float) -> list[str]:
        """Return the channels that answered lately, so that a tick may wait for them."""
        timeout = self._device_timeout(now)
        return [channel for channel in self._gpus.channels if self._gpus.expects(channel, now, timeout)]

    @property
    def all_devices_answered(self) -> bool:
        """Whether every lane of each device has been read, or its last word was an error."""
        return all(
            self._gpus.in_trouble(channel) or all((self.devices, channel, lane) in self._blocks for lane in LANES)
            for channel in list(self._gpus.channels)
        )

    @property
    def identities(self) -> list[GpuIdentity]:
        return self._gpus.identities

    def _store(self, key: Key, at: float, frame: Frame, gaps: Sequence[Gap]) -> None:
        conditioned, rejected = self._conditioner.pass_on(key, at, frame, self.settings.period(key[2]))
        if key[0] == self.devices and key[2] is Lane.SLOW:
            links = self._links.setdefault(key[1], LinkRates())
            conditioned = links.beside(at, conditioned, self.settings.slow / 2, self.settings.stale_after(Lane.SLOW))
        self._blocks[key] = Block(at, conditioned, [*gaps, *rejected] if rejected else gaps)

    def _stale_seconds(self, backend: str, lane: Lane) -> float:
        """Return seconds after which a backend's last read no longer says anything about the present."""
        timeout = self._stale_after.get((backend, lane))
        if timeout is None:
            timeout = max(self.settings.stale_after(lane), 3 * self.paces.get(backend, 0.0))
            self._stale_after[backend, lane] = timeout
        return timeout

    def _enumerate(self) -> None:
        """Compare what the driver shows with the inventory, and forget the readings of devices that neither has."""
        self._gpus.enumerate(self.settings.expected_gpus)
        uuids = {identity.gpu.uuid for identity in self.inventory.gpus.values()} | set(self._gpus.channels)
        for key in [key for key in self._blocks if key[1] and key[1] not in uuids]:
            del self._blocks[key]
        self._processes = {uuid: last for uuid, last in self._processes.items() if uuid in uuids}
        self._links = {uuid: rates for uuid, rates in self._links.items() if uuid in uuids}
        self._gpus.forget(uuids)
        self.xids.inventory_changed()

    def _node_power(self, now: float, readings: list[Reading], keys: list[Key]) -> list[Gap]:
        """Add an estimate and its key if nothing measures the node; return a gap if it cannot be estimated."""
        if self.settings.estimate is None or not self.inventory.gpus:
            return []
        for (backend, metric), noted in self._conditioner.noted.items():
            if metric is NODE_POWER and backend != ESTIMATE[0]:
                timeout = self._stale_seconds(backend, Lane.FAST)
                if any(now - at <= timeout for at, _ in noted.values()):
                    self._metered = True
                    readings.append(Reading(FALLBACK, 0))
                    return []
        power = self._gpu_power(now, self._device_timeout(now))
        reading = estimate(power, self.settings.estimate)
        if reading is None:
            unknown = f"the power of {power.count(None)} of {len(power)} GPUs is unknown"
            return [Gap(NODE_POWER, Node(), Reason.LOST, f"nothing measures it, and {unknown}")]
        estimated = self._estimate_framer.frame((reading,))
        passed, _ = self._conditioner.pass_on(ESTIMATE, now, estimated, self.settings.fast)
        readings.extend(passed.readings)
        keys.append(ESTIMATE)
        if self._metered:
            readings.append(Reading(FALLBACK, 1))
        return []

    def _gpu_power(self, now: float, timeout: float) -> list[float | None]:
        """Return the power of each GPU in the inventory; None where it is not known now."""
        noted = self._conditioner.noted[self.devices, GPU_POWER]
        power: list[float | None] = []
        for identity in self.inventory.gpus.values():
            at, value = noted.get(identity.gpu, (-inf, 0.0))
            fresh = now - at <= timeout and not self._gpus.in_trouble(identity.gpu.uuid)
            power.append(value if fresh else None)
        return power + [None] * len(self._gpus.strangers)

    def _rejections(self) -> Iterator[OwnReading]:
        for (backend, cause), count in self._conditioner.rejected.items():
            yield OwnReading("coldplate_readings_rejected_total", count, (("cause", cause),), Backend(backend))
