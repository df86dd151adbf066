"""The channel of one synthetic GPU: what its driver would return at a moment, including artefacts.

Power is a mean over 1 s where the real one is, and changes ten times a second; the utilization is that of a
whole window of 1/6 s, in whole percent; degrees and clock steps are integers.
"""

import threading
from collections.abc import Sequence

from agent.backends.protocol import BackendSample, GpuProcess
from agent.backends.synthetic import activity as ch
from agent.backends.synthetic.activity import hash64
from agent.backends.synthetic.gpu_history import Track
from agent.backends.synthetic.scenario import Scenario, processes_of
from agent.backends.synthetic.supported_series import Key, fixed_readings, gpu_gaps
from agent.backends.synthetic.synthetic_faults import ReadGate, ReadingCorruptor, SyntheticErrorCounters, XidFeed
from agent.catalogue import BY_NAME
from agent.catalogue.infiniband import NEAREST_HCA
from agent.model import Gap, Gpu, GpuIdentity, Instant, Lane, NvLink, Reading, Series

FABRIC_INFO = BY_NAME["coldplate_gpu_fabric_info"]
WINDOWS_A_SECOND = 6.0
REFRESHES_A_SECOND = 10.0
CLOCK_STEP = 15e6
_WINDOWED = (ch.BUSY, ch.MEMORY_ACTIVE)
CALLS = {Lane.FAST: 7, Lane.SLOW: 12, Lane.COLD: 9}
"""Driver calls that a real GPU would take."""

_THROTTLES: tuple[tuple[Key, Key, int], ...] = tuple(
    (("coldplate_gpu_throttle_active", reason), ("coldplate_gpu_throttle_seconds_total", reason), channel)
    for reason, channel in (
        ("sw_power_cap", ch.POWER_CAP),
        ("sw_thermal_slowdown", ch.SW_THERMAL),
        ("hw_thermal_slowdown", ch.HW_THERMAL),
        ("hw_power_brake", ch.POWER_BRAKE),
    )
)
_MEANS: tuple[tuple[Key, int], ...] = tuple(
    ((f"coldplate_gpu_{activity}_ratio",), ch.SM + place)
    for place, activity in enumerate(
        ("sm_active", "sm_occupancy", "tensor_active", "dram_active", "fp64_active", "fp32_active", "fp16_active")
    )
)
"""What GPM gives, in the order of the channels."""


class SyntheticGpuChannel:
    """One synthetic GPU."""

    def __init__(
        self,
        scenario: Scenario,
        number: int,
        identity: GpuIdentity,
        epoch: float,
        *,
        released: threading.Event,
        feed: XidFeed,
    ) -> None:
        machine = scenario.topology
        self.key = identity.gpu.uuid
        self.identity: GpuIdentity | None = identity
        self._machine, self._epoch, self._feed = machine, epoch, feed
        self._scenario, self._number = scenario, number
        self._track = Track(scenario, number)
        self._noise = hash64(scenario.seed, number, 31)
        self._gate = ReadGate(scenario, number, released)
        self._spoiler = ReadingCorruptor(scenario, gpu=number)
        self._errors = SyntheticErrorCounters(scenario, number)
        self._cliques = scenario.faults_of("clique", number)
        self._limits = scenario.faults_of("power-limit", number)
        self._lanes = {lane: self._fixed(identity.gpu, number, lane) for lane in CALLS}
        self._gaps = {lane: gpu_gaps(identity.gpu, machine, lane) for lane in CALLS}

    def _fixed(self, gpu: Gpu, number: int, lane: Lane) -> list[tuple[Key, Reading]]:
        """Return each series, and its reading as long as the model gives no other."""
        machine = self._machine
        fixed = list(fixed_readings(machine, gpu, lane))
        for link in range(machine.nvlinks):
            fixed += fixed_readings(machine, NvLink(gpu, link), lane)
        if lane is Lane.COLD and machine.ports:
            labels = (("device", machine.ports[number % len(machine.ports)]), ("distance", "PIX"))
            fixed.append(((NEAREST_HCA.name,), Reading(Series(NEAREST_HCA, gpu, labels), 1.0)))
        return fixed

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        t = max(0.0, now.mono - self._epoch)
        self._feed.advance(t, now)
        self._gate.device(t)
        model = {Lane.FAST: self._fast, Lane.SLOW: self._slow}.get(lane, self._cold)
        values = model(t)
        readings: Sequence[Reading] = [
            reading if (value := values.get(key)) is None else Reading(reading.series, value)
            for key, reading in self._lanes.get(lane, ())
        ]
        if lane is Lane.COLD:
            readings = [self._in_clique(reading, t) for reading in readings]
        gaps: Sequence[Gap] = self._gaps.get(lane, ())
        if self._spoiler.active(t):
            readings, more = self._spoiler.readings(readings, t)
            gaps = [*gaps, *more]
        processes: tuple[GpuProcess, ...] | None = None
        if lane is Lane.SLOW:
            job = self._track.job_at(t)
            processes = processes_of(self._scenario, job, self._number, self._memory(t)[0])
        return BackendSample(readings, gaps, calls=CALLS.get(lane, 0), processes=processes)

    def _in_clique(self, reading: Reading, t: float) -> Reading:
        """Return the reading, or the GPU's place in its domain as a fault has it."""
        if reading.metric is FABRIC_INFO:
            for fault in self._cliques:
                if fault.window.holds(t):
                    cluster, _ = reading.series.labels
                    clique = ("clique", str(int(fault.parameters["clique"])))
                    return Reading(Series(FABRIC_INFO, reading.entity, (cluster, clique)), 1.0)
        return reading

    def _fast(self, t: float) -> dict[Key, float]:
        track, machine = self._track, self._machine
        length = min(1.0, t)
        sums, before, now = track.totals(t), track.totals(t - length), track.levels(t)
        instant = track.power((t * REFRESHES_A_SECOND + 1e-6) // 1.0 / REFRESHES_A_SECOND)
        watts = instant
        if machine.power_is_mean and length > 0.0:
            watts = (sums[ch.POWER] - before[ch.POWER]) / length
        busy, memory_active = self._windowed(t)
        heat = track.temperature(t)
        used, free = self._memory(t)
        module = instant + machine.module_power * (0.6 + 0.4 * now[ch.BUSY])
        noise = hash64(self._noise, int(t * REFRESHES_A_SECOND))
        values: dict[Key, float] = {
            ("coldplate_gpu_utilization_ratio",): busy,
            ("coldplate_gpu_memory_activity_ratio",): memory_active,
            ("coldplate_gpu_memory_used_bytes",): used,
            ("coldplate_gpu_memory_free_bytes",): free,
            ("coldplate_gpu_power_watts",): round(watts, 3),
            ("coldplate_gpu_power_instant_watts",): round(instant, 3),
            ("coldplate_gpu_power_limit_watts",): self._limit(t),
            ("coldplate_gpu_temperature_celsius",): heat // 1.0,
            ("coldplate_gpu_memory_temperature_celsius",): (heat + 5.0 + 0.1 * (heat - machine.inlet)) // 1.0,
            ("coldplate_gpu_clock_hertz", "sm"): now[ch.CLOCK] // CLOCK_STEP * CLOCK_STEP,
            ("coldplate_gpu_hw_slowdown_active",): float(now[ch.HW_THERMAL] + now[ch.POWER_BRAKE] >= 0.5),
            ("coldplate_gpu_throttle_active", "gpu_idle"): float(now[ch.IDLE] >= 0.5),
            ("coldplate_gpu_pcie_transmit_bytes_total",): sums[ch.PCIE_TX] // 1.0,
            ("coldplate_gpu_pcie_receive_bytes_total",): sums[ch.PCIE_RX] // 1.0,
            ("coldplate_gpu_nvlink_transmit_bytes_total",): sums[ch.NVLINK_TX] // 1024.0 * 1024.0,
            ("coldplate_gpu_nvlink_receive_bytes_total",): sums[ch.NVLINK_RX] // 1024.0 * 1024.0,
            ("coldplate_gpu_module_power_watts",): round(module, 3),
        }
        for active, _, channel in _THROTTLES:
            values[active] = float(now[channel] >= 0.5)
        for key, channel in _MEANS if machine.gpm else ():
            mean = (sums[channel] - before[channel]) / length if length > 0.0 else now[channel]
            wobble = 0.98 + 0.04 * (noise & 0xFF) / 255.0
            noise >>= 8
            values[key] = min(1.0, max(0.0, mean * wobble))
        return values

    def _windowed(self, t: float) -> tuple[float, float]:
        """Return utilization and memory activity of the last whole window, in whole percent."""
        window = int(t * WINDOWS_A_SECOND)
        end = window / WINDOWS_A_SECOND
        if window < 1:
            now = self._track.levels(t)
            busy, memory = now[ch.BUSY], now[ch.MEMORY_ACTIVE]
        else:
            busy, memory = self._track.sums(end, _WINDOWED)
            before, memory_before = self._track.sums(end - 1.0 / WINDOWS_A_SECOND, _WINDOWED)
            busy, memory = (busy - before) * WINDOWS_A_SECOND, (memory - memory_before) * WINDOWS_A_SECOND
        noise = hash64(self._noise, window, 1)
        if 1e-3 < busy < 0.99:
            busy += 0.04 * ((noise & 0xFFFF) / 65535.0 - 0.5) * min(1.0, 4.0 * busy)
        memory *= 0.97 + 0.06 * (noise >> 48) / 65535.0
        return round(min(1.0, max(0.0, busy)), 2), round(min(1.0, max(0.0, memory)), 2)

    def _memory(self, t: float) -> tuple[float, float]:
        used = self._track.memory_used(t)
        return used, self._machine.memory - self._machine.reserved - used

    def _limit(self, t: float) -> float:
        limits = (fault.parameters["watts"] for fault in self._limits if fault.window.holds(t))
        return min([self._machine.power_limit, *limits])

    def _slow(self, t: float) -> dict[Key, float]:
        machine, now, sums = self._machine, self._track.levels(t), self._track.totals(t)
        idle = now[ch.IDLE] >= 0.5
        values: dict[Key, float] = {
            ("coldplate_gpu_energy_joules_total",): sums[ch.POWER],
            ("coldplate_gpu_thermal_throttle_seconds_total",): sums[ch.SW_THERMAL] + sums[ch.HW_THERMAL],
            ("coldplate_gpu_throttle_seconds_total", "low_utilization"): sums[ch.IDLE],
            **{seconds: sums[channel] for _, seconds, channel in _THROTTLES},
            ("coldplate_gpu_temperature_margin_celsius",): machine.slowdown - self._track.temperature(t) // 1.0,
            ("coldplate_gpu_clock_hertz", "graphics"): now[ch.CLOCK] // CLOCK_STEP * CLOCK_STEP,
            ("coldplate_gpu_clock_hertz", "memory"): machine.clock_memory,
            ("coldplate_gpu_clock_hertz", "video"): machine.clock_video * (0.4 if idle else 1.0),
            ("coldplate_gpu_pcie_link_generation",): 1.0 if idle else float(machine.pcie_generation),
            ("coldplate_gpu_pcie_link_width",): float(machine.pcie_width),
        }
        values.update(self._errors.at(t))
        values.update(self._link_traffic(sums))
        return values

    def _cold(self, t: float) -> dict[Key, float]:
        links = self._machine.nvlinks - len(self._errors.links_down(t))
        return {("coldplate_gpu_nvlink_speed_bytes_per_second",): links * self._machine.nvlink_speed}

    def _link_traffic(self, sums: Sequence[float]) -> dict[Key, float]:
        """Share the GPU's traffic evenly among its links, those that are down included: a counter may not fall."""
        count = self._machine.nvlinks
        if not count:
            return {}
        sent, received = (sums[channel] / count // 1024.0 * 1024.0 for channel in (ch.NVLINK_TX, ch.NVLINK_RX))
        return {
            (f"coldplate_nvlink_{direction}_bytes_total", str(link)): value
            for direction, value in (("transmit", sent), ("receive", received))
            for link in range(count)
        }
