"""The series that a report reads and what it keeps of each, and the step time of a training job.

A step time is found by the autocorrelation of a few windows. Steps shorter than some samples appear as a multiple of
their length: 3.8 s sampled once a second gave 19.0 s. So no step shorter than ten samples is reported, and none where
a shift by one sample already breaks the likeness. What remains are beats: 1.1 s still appears as 11 s.
"""

from array import array
from collections.abc import Sequence
from math import inf
from operator import mul, sub
from statistics import median
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.model import Series
from agent.recording.recorded_block import Held, written_out
from agent.recording.report.series_statistics import (
    CounterStatistic,
    GaugeStatistic,
    SeriesStatistic,
    SnapshotRange,
    StateStatistic,
    TimeGrid,
)

WINDOW = 600
"""Samples of a window."""
WINDOWS = 6
"""Windows that are kept, spread evenly over the recording."""
SHORTEST = 10
"""Samples of the shortest step that is reported."""
LEAST_PERIODS = 5
"""Periods that a window must hold for its step to be reported."""
CLEAR = 0.5
"""Autocorrelation from which on a peak is clear."""
NEARLY = 0.75
"""Share of the highest peak's height from which on the first such peak is the period, and others are its multiples."""
FAINT = 0.3
"""Share of the peak's height that its neighbours must have."""
AGREEMENT = 0.05
"""Share by which the windows' steps may differ from their median."""


class StepTime(NamedTuple):
    """A step in seconds, and the autocorrelation there (at most 1)."""

    seconds: float
    clarity: float


class StepSampler:
    """A few windows of a series, sample by sample, evenly spread over the recording. A gap ends a window early."""

    def __init__(self, snapshots: int, *, counts: bool) -> None:
        """`snapshots` are those of the recording; of a series that `counts`, its growth is looked at."""
        self._counts = counts
        self._stride = max(snapshots // WINDOWS, WINDOW)
        self._samples = 0
        self._until = -inf
        self._before: float | None = None
        self._open: array[float] | None = None
        self.windows: list[tuple[float, array[float]]] = []
        """Seconds between two samples, and the samples."""

    def add(self, stretch: SnapshotRange, held: Held) -> None:
        count = len(stretch.walls)
        start, self._samples = self._samples % self._stride, self._samples + count
        if not 0 < stretch.monos[0] - self._until < 1.5 * stretch.steps[0]:
            self._open, self._before = None, None
        self._until = stretch.monos[-1]
        if stretch.gaps and max(stretch.gaps) >= 1.5 * min(stretch.gaps):
            self._open, self._before = None, None
            return
        values = written_out(held, count)
        if start < WINDOW:
            samples = list(map(sub, values, (self._before or 0.0, *values))) if self._counts else values
            if self._counts and self._before is None:
                samples = samples[1:]
            self._add_samples(stretch.seconds / count, samples)
        else:
            self._open = None
        self._before = values[-1]

    def _add_samples(self, interval: float, samples: Sequence[float]) -> None:
        if self._open is None or len(self._open) >= WINDOW:
            if len(self.windows) >= WINDOWS:
                return
            self._open = array("d")
            self.windows.append((interval, self._open))
        self._open.extend(samples[: WINDOW - len(self._open)])


def period_of(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return the period of a signal in samples, and its autocorrelation there; None if none is clear."""
    count = len(samples)
    longest = count // LEAST_PERIODS
    if longest <= SHORTEST:
        return None
    mean = sum(samples) / count
    centred = [value - mean for value in samples]
    whole = sum(map(mul, centred, centred))
    if whole <= 1e-12 * count * max(mean * mean, 1e-300):
        return None
    heights = [
        sum(map(mul, centred, centred[lag:])) / whole * count / (count - lag)  # the overlap gets shorter
        for lag in range(longest + 2)
    ]
    peaks = [lag for lag in range(2, longest + 1) if heights[lag - 1] < heights[lag] >= heights[lag + 1]]
    highest = max((heights[lag] for lag in peaks), default=0.0)
    if highest < CLEAR:
        return None
    first = next(lag for lag in peaks if heights[lag] >= NEARLY * highest)
    before, here, after = heights[first - 1 : first + 2]
    if first < SHORTEST or min(before, after) < FAINT * here:
        return None
    if min(heights[:first]) > 0.5 * here:
        return None
    bend = before - 2 * here + after
    return first + (0.5 * (before - after) / bend if bend else 0.0), min(here, 1.0)


def step_time(signal: StepSampler) -> StepTime | None:
    """Return the step that most windows of a signal agree on; None if they do not."""
    windows = [window for window in signal.windows if len(window[1]) >= SHORTEST * LEAST_PERIODS]
    periods = [
        (period[0] * interval, period[1]) for interval, samples in windows if (period := period_of(samples)) is not None
    ]
    if not periods:
        return None
    middle = median(seconds for seconds, _ in periods)
    near = [period for period in periods if abs(period[0] - middle) <= AGREEMENT * middle]
    if 2 * len(near) <= len(windows):
        return None
    return StepTime(median(period[0] for period in near), median(period[1] for period in near))


UTILIZATION = "coldplate_gpu_utilization_ratio"
SM, TENSOR, DRAM = (f"coldplate_gpu_{unit}_active_ratio" for unit in ("sm", "tensor", "dram"))
OCCUPANCY = "coldplate_gpu_sm_occupancy_ratio"
MEMORY = "coldplate_gpu_memory_used_bytes"
POWER, POWER_LIMIT = "coldplate_gpu_power_watts", "coldplate_gpu_power_limit_watts"
TEMPERATURE, MEMORY_TEMPERATURE = "coldplate_gpu_temperature_celsius", "coldplate_gpu_memory_temperature_celsius"
CLOCK = "coldplate_gpu_clock_hertz"
SM_CLOCK = (("domain", "sm"),)
ENERGY = "coldplate_gpu_energy_joules_total"
PCIE_OUT, PCIE_IN = "coldplate_gpu_pcie_transmit_bytes_total", "coldplate_gpu_pcie_receive_bytes_total"
NVLINK_OUT, NVLINK_IN = "coldplate_gpu_nvlink_transmit_bytes_total", "coldplate_gpu_nvlink_receive_bytes_total"
PORT_OUT, PORT_IN = (
    f"coldplate_infiniband_port_data_{direction}_bytes_total" for direction in ("transmitted", "received")
)
NVLINK, PCIE, PORTS = (NVLINK_OUT, NVLINK_IN), (PCIE_OUT, PCIE_IN), (PORT_OUT, PORT_IN)
PORT_RATE, PORT_UP = "coldplate_infiniband_rate_bytes_per_second", "coldplate_infiniband_port_up"
THROTTLED, THROTTLE_ACTIVE = "coldplate_gpu_throttle_seconds_total", "coldplate_gpu_throttle_active"
GPU_UP, GPU_INFO = "coldplate_gpu_up", "coldplate_gpu_info"
STATE_SECONDS = "coldplate_gpu_state_seconds_total"
XIDS, ECC = "coldplate_gpu_xid_errors_total", "coldplate_gpu_ecc_errors_total"
NVLINK_ERRORS, NVLINK_UP = "coldplate_gpu_nvlink_errors_total", "coldplate_nvlink_up"
PCIE_REPLAYS = "coldplate_gpu_pcie_replays_total"
PORT_ERRORS = tuple(
    f"coldplate_infiniband_{error}_total"
    for error in ("symbol_error", "link_downed", "link_error_recovery", "port_errors_received", "link_down_events")
)
HOLDER = "coldplate_gpu_job_info"
CPU, PRESSURE = "coldplate_node_cpu_seconds_total", "coldplate_node_pressure_waiting_seconds_total"
NODE_POWER, ALERT = "coldplate_node_power_watts", "coldplate_alert"

_GAUGES = (UTILIZATION, SM, TENSOR, DRAM, OCCUPANCY, MEMORY, POWER, POWER_LIMIT, TEMPERATURE,
           MEMORY_TEMPERATURE, CLOCK, PORT_RATE, NODE_POWER)  # fmt: skip
_RATES = (*NVLINK, *PCIE, *PORTS)
_COUNTERS = (ENERGY, STATE_SECONDS, THROTTLED, ECC, NVLINK_ERRORS, PCIE_REPLAYS, *PORT_ERRORS, CPU, PRESSURE)
_BORN_AT_ZERO = (XIDS,)
"""Counters of which a series appears with what it counts: its first value has happened since the snapshot before."""
_STATES = (GPU_UP, GPU_INFO, THROTTLE_ACTIVE, NVLINK_UP, PORT_UP, HOLDER, ALERT)
STEPPING = {NVLINK_OUT: "NVLink traffic", TENSOR: "tensor activity", POWER: "power"}
"""Signals in which the steps of a training job can be seen, the clearest first, and what they are called."""

_KEPT = {*_GAUGES, *_RATES, *_COUNTERS, *_BORN_AT_ZERO, *_STATES}
if not BY_NAME.keys() >= _KEPT:
    raise AssertionError(f"no rows of the catalogue: {sorted(_KEPT - BY_NAME.keys())}")


def figure_of(series: Series, grid: TimeGrid) -> SeriesStatistic | None:
    """Return what to keep of a series; None if nothing is."""
    name = series.metric.name
    if name in _STATES:
        return StateStatistic()
    if name in _GAUGES:
        return GaugeStatistic(grid, series.metric.unit) if name != CLOCK or series.labels == SM_CLOCK else None
    if name in _KEPT:
        return CounterStatistic(grid if name in _RATES else None, born_at_zero=name in _BORN_AT_ZERO)
    return None


def signal_of(series: Series, snapshots: int) -> StepSampler | None:
    """Return what to keep of a series to find the steps of a job in it; None if they do not show in it."""
    name = series.metric.name
    shows_steps = name in STEPPING and not series.labels
    return StepSampler(snapshots, counts=name == NVLINK_OUT) if shows_steps else None
