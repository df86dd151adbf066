"""The activity of a GPU: a repeating cycle of constant levels whose integrals are known in closed form.

A day of training is one cycle and a number of repetitions, so that any moment can be computed directly. The noise on it
is a function of a seed: no state, so no read depends on an earlier one.

The profiles of the kinds of work follow measurements on 8-GPU H100 nodes: 690 W in steady training with the software
power cap set throughout, 150 to 157 W at 100% utilization in a waiting collective, per-rail traffic even to 4% in
data-parallel work and all on two rails in pipeline-parallel work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from math import cos, pi, sin

from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.scenario import ScenarioJob

_MASK = (1 << 64) - 1


def hash64(*parts: int) -> int:
    """Return a 64-bit hash of whole numbers (the finaliser of splitmix64, once for each part)."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = (state + part * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def uniform(*parts: int) -> float:
    """Return a number from 0 to 1 (not 1 itself), the same for the same parts."""
    return (hash64(*parts) >> 11) * 2.0**-53


def uniform_signed(*parts: int) -> float:
    return 2.0 * uniform(*parts) - 1.0


class SmoothNoise:
    """A smooth wander between -1 and 1 around 0, together with its exact integral.

    Power is the derivative of energy, to the last digit, only if the noise on it can be integrated: three
    sines whose periods have no common multiple can.
    """

    __slots__ = ("_terms",)

    _PERIODS = (0.73, 5.9, 23.1)
    _WEIGHTS = (0.4, 0.35, 0.25)

    def __init__(self, *seed: int) -> None:
        self._terms = tuple(
            (weight, 2 * pi / (period * (1 + 0.1 * uniform_signed(*seed, order))), 2 * pi * uniform(*seed, order + 100))
            for order, (period, weight) in enumerate(zip(self._PERIODS, self._WEIGHTS, strict=True))
        )

    def value(self, t: float) -> float:
        (a, u, x), (b, v, y), (c, w, z) = self._terms
        return a * cos(u * t + x) + b * cos(v * t + y) + c * cos(w * t + z)

    def integral(self, t: float) -> float:
        (a, u, x), (b, v, y), (c, w, z) = self._terms
        return a / u * sin(u * t + x) + b / v * sin(v * t + y) + c / w * sin(w * t + z)


(
    BUSY, MEMORY_ACTIVE,  # shares of time: with a kernel running, with memory in use
    POWER,  # watts
    SM, OCCUPANCY, TENSOR, DRAM, FP64, FP32, FP16,  # shares of what there is
    NVLINK_TX, NVLINK_RX, PCIE_TX, PCIE_RX, FABRIC_TX, FABRIC_RX,  # bytes/s
    IDLE, POWER_CAP, SW_THERMAL, HW_THERMAL, POWER_BRAKE,  # shares of time with a reason for low clocks
    CLOCK,  # hertz; its integral means nothing
) = range(22)  # fmt: skip
WIDTH = 22

Levels = tuple[float, ...]


def levels(values: dict[int, float]) -> Levels:
    """Return the levels with these values, 0 elsewhere."""
    return tuple(values.get(channel, 0.0) for channel in range(WIDTH))


class ActivityCycle:
    """Pieces of constant levels, over and over. Immutable by convention."""

    __slots__ = ("_prefix", "_starts", "durations", "mean_power", "period", "pieces", "total")

    def __init__(self, pieces: Sequence[tuple[float, Levels]]) -> None:
        self.durations = tuple(duration for duration, _ in pieces)
        self.pieces = tuple(level for _, level in pieces)
        starts, prefix = [0.0], [(0.0,) * WIDTH]
        for duration, level in pieces:
            starts.append(starts[-1] + duration)
            prefix.append(tuple(before + rate * duration for before, rate in zip(prefix[-1], level, strict=True)))
        self.period = starts.pop()
        self.total = prefix.pop()
        self._starts = starts
        self._prefix = prefix
        self.mean_power = self.total[POWER] / self.period

    def locate(self, x: float) -> tuple[float, int, float]:
        """Return whole turns, piece, and time into the piece, `x` seconds after the cycle's origin."""
        turns, into = divmod(x, self.period)
        piece = bisect_right(self._starts, into) - 1
        return turns, piece, into - self._starts[piece]

    def changed(self, change: Callable[[Levels], Levels]) -> ActivityCycle:
        return ActivityCycle(list(zip(self.durations, map(change, self.pieces), strict=True)))

    def at(self, x: float) -> Levels:
        return self.pieces[bisect_right(self._starts, x % self.period) - 1]

    def added(self, base: Sequence[float], x: float) -> list[float]:
        """Return `base` plus what has accumulated since the cycle's origin, for each channel, in one pass."""
        turns, piece, into = self.locate(x)
        parts = zip(base, self.total, self._prefix[piece], self.pieces[piece], strict=True)
        return [start + turns * total + before + rate * into for start, total, before, rate in parts]

    def added_of(self, base: list[float], x: float, channels: tuple[int, ...]) -> list[float]:
        """Return the same for some channels only."""
        turns, piece, into = self.locate(x)
        total, prefix, level = self.total, self._prefix[piece], self.pieces[piece]
        return [base[c] + turns * total[c] + prefix[c] + level[c] * into for c in channels]


def _steady(level: Levels) -> ActivityCycle:
    return ActivityCycle([(60.0, level)])


CAP = 0.99  # the board holds its mean a little below the limit
CAPPED = 0.90  # from this share of the limit on, the software power cap holds the clocks
WAITING = 0.22  # of the power limit: a kernel that spins on a flag
TURN_SECONDS = 20.0  # of work and waiting, for those who wait for a straggler
CONTEXT = 0.16  # of the power limit: a process that launches nothing

Shares = tuple[float, float, float, float]
"""NVLink and fabric traffic as shares of the bandwidth: NVLink and fabric while computing, then while exchanging."""

TRAFFIC: dict[str, Shares] = {
    "data": (0.05, 0.05, 0.55, 0.60),
    "tensor": (0.35, 0.02, 0.50, 0.12),
    "pipeline": (0.08, 0.08, 0.20, 0.55),
    "none": (0.0, 0.0, 0.0, 0.0),
}


class Worker:
    """One GPU at work: turns a phase into cycles for this GPU, in watts and bytes per second."""

    def __init__(self, topology: MachineType, seed: int, gpu: int) -> None:
        self._topology = topology
        self._key = (seed, gpu)
        self._thirst = 1.0 + 0.03 * uniform_signed(seed, gpu, 11)  # chips differ in what they draw for the same work
        self._evenness = 1.0 + 0.015 * uniform_signed(seed, gpu, 12)

    def level(
        self,
        power: float,
        busy: float = 1.0,
        *,
        memory: float = 0.0,
        sm: float = 0.0,
        occupancy: float = 0.0,
        tensor: float = 0.0,
        dram: float = 0.0,
        fp: tuple[float, float, float] = (0.0, 0.0, 0.0),
        nvlink: float = 0.0,
        pcie: tuple[float, float] = (0.001, 0.001),
        fabric: float = 0.0,
    ) -> Levels:
        """Return levels from shares: of the power limit, of time, of bandwidths (`pcie`: sent, received)."""
        machine = self._topology
        watts = min(power * self._thirst, CAP)
        load = max(0.0, watts - 0.6) / 0.4
        nvlink *= machine.nvlinks * machine.nvlink_speed * self._evenness
        fabric *= machine.port_rate * self._evenness
        return levels(
            {
                BUSY: busy, MEMORY_ACTIVE: memory, POWER: watts * machine.power_limit,
                SM: sm, OCCUPANCY: occupancy, TENSOR: tensor, DRAM: dram,
                FP64: fp[0], FP32: fp[1], FP16: fp[2],
                NVLINK_TX: nvlink, NVLINK_RX: nvlink * 0.998,
                PCIE_TX: pcie[0] * machine.pcie_speed, PCIE_RX: pcie[1] * machine.pcie_speed,
                FABRIC_TX: fabric, FABRIC_RX: fabric * 0.997,
                POWER_CAP: 1.0 if watts >= CAPPED else 0.0,
                CLOCK: machine.clock_sm * (1.0 - 0.22 * load),
            }
        )  # fmt: skip

    def idle(self) -> ActivityCycle:
        """Return the levels of a GPU without a process."""
        machine = self._topology
        watts = machine.power_idle * (1.0 + 0.06 * uniform_signed(*self._key, 13))
        return _steady(levels({POWER: watts, IDLE: 1.0, CLOCK: machine.clock_idle}))

    def off(self) -> ActivityCycle:
        return _steady(levels({}))

    def allocated(self, busy: float = 0.0) -> ActivityCycle:
        """Return the work of a process that holds the GPU and hardly uses it."""
        return _steady(self._little(busy))

    def spinning(self) -> ActivityCycle:
        """Return the work of a collective that waits for a peer: a kernel runs all the time and does nothing."""
        return _steady(self._spin())

    def _spin(self) -> Levels:
        return self.level(WAITING, memory=0.01, sm=0.18, occupancy=0.04, tensor=0.0005, dram=0.004, nvlink=1e-5)

    def _little(self, busy: float, pcie: tuple[float, float] = (0.001, 0.001)) -> Levels:
        return self.level(
            CONTEXT + 0.5 * busy, busy, memory=0.4 * busy, sm=0.85 * busy, occupancy=0.3 * busy,
            tensor=0.4 * busy, dram=0.4 * busy, pcie=pcie,
        )  # fmt: skip

    def work(self, kind: str, job: ScenarioJob, parameters: Mapping[str, float], gpu: int) -> ActivityCycle:
        if kind == "training":
            return ActivityCycle(self._iteration(job, parameters, gpu))
        if kind == "inference":
            return self._inference(parameters)
        if kind == "data-starved":
            return self._starved(parameters)
        if kind == "power-swing":
            compute = self._compute(1.0, 1.0, job, gpu)
            return ActivityCycle([(parameters["high"], compute), (parameters["low"], self._spin())])
        if kind == "loading":
            return _steady(self._little(0.05, pcie=(0.002, 0.25)))
        if kind == "waiting":
            return self.spinning()
        if kind == "idle":
            return self.allocated()
        raise AssertionError(f"no profile for the phase kind {kind}")

    def _traffic(self, job: ScenarioJob, gpu: int) -> Shares:
        computing, fabric, exchanging, peak = TRAFFIC[job.parallelism]
        if job.parallelism == "pipeline" and gpu not in (job.gpus[0], job.gpus[-1]):
            fabric = peak = 0.0  # only the first and the last stage on a node talk to other nodes
        if len(job.gpus) == 1:
            computing = exchanging = 0.0
        return computing, fabric, exchanging, peak

    def _compute(self, power: float, busy: float, job: ScenarioJob, gpu: int) -> Levels:
        nvlink, fabric, _, _ = self._traffic(job, gpu)
        return self.level(
            power, busy, memory=0.52, sm=0.92, occupancy=0.41, tensor=0.56, dram=0.48, fp=(0.0, 0.06, 0.02),
            nvlink=nvlink, fabric=fabric, pcie=(0.004, 0.012),
        )  # fmt: skip

    def _iteration(self, job: ScenarioJob, parameters: Mapping[str, float], gpu: int) -> list[tuple[float, Levels]]:
        """Compute, exchange gradients, a short gap on the host."""
        power, busy, period = parameters["power"], parameters["utilization"], parameters["iteration"]
        _, _, nvlink, fabric = self._traffic(job, gpu)
        exchange = self.level(
            power * 0.96, busy, memory=0.30, sm=0.60, occupancy=0.22, tensor=0.12, dram=0.33, fp=(0.0, 0.04, 0.01),
            nvlink=nvlink, fabric=fabric, pcie=(0.006, 0.006),
        )  # fmt: skip
        host = self.level(power * 0.5, 0.4 * busy, memory=0.05, sm=0.10, occupancy=0.03, tensor=0.01, dram=0.05)
        compute = self._compute(power, busy, job, gpu)
        return [(0.80 * period, compute), (0.17 * period, exchange), (0.03 * period, host)]

    def _inference(self, parameters: Mapping[str, float]) -> ActivityCycle:
        """Return bursts of requests of uneven length: short prefills, and decoding, which is bound by memory."""
        load, pieces = parameters["load"], []
        for burst in range(6):
            length = 1.0 + 4.0 * uniform(*self._key, 21, burst)
            busy = min(1.0, max(0.01, load * (1.0 + 0.4 * uniform_signed(*self._key, 22, burst))))
            decode = self.level(
                CONTEXT + 0.42 * busy, busy, memory=0.55 * busy, sm=0.55 * busy, occupancy=0.2 * busy,
                tensor=0.10 * busy, dram=0.62 * busy, fp=(0.0, 0.05 * busy, 0.01 * busy), pcie=(0.004, 0.006),
                nvlink=0.02 * busy,
            )  # fmt: skip
            prefill = self.level(
                CONTEXT + 0.72 * busy, busy, memory=0.4 * busy, sm=0.85 * busy, occupancy=0.35 * busy,
                tensor=0.45 * busy, dram=0.4 * busy, fp=(0.0, 0.05 * busy, 0.01 * busy), pcie=(0.004, 0.02),
                nvlink=0.05 * busy,
            )  # fmt: skip
            pieces += [(0.2 * length, prefill), (0.8 * length, decode)]
        return ActivityCycle(pieces)

    def _starved(self, parameters: Mapping[str, float]) -> ActivityCycle:
        """Return a short burst of compute for each batch that arrives, then waiting for the next one."""
        busy = parameters["utilization"]
        burst = self.level(0.85, memory=0.5, sm=0.9, occupancy=0.4, tensor=0.5, dram=0.45, pcie=(0.004, 0.35))
        return ActivityCycle([(4.0 * busy, burst), (4.0 * (1.0 - busy), self._little(0.0, pcie=(0.002, 0.40)))])

    def stalled(self, writer: bool, window: tuple[float, float], job: ScenarioJob, gpu: int) -> ActivityCycle:
        """Return a checkpoint that one rank writes while the others wait for it: `window` is (every, takes)."""
        every, takes = window
        stall = self._little(0.01, pcie=(0.10, 0.002)) if writer else self._spin()
        return ActivityCycle([(takes, stall), (every - takes, self._compute(0.985, 1.0, job, gpu))])

    def held_up(self, share: float, job: ScenarioJob, gpu: int) -> ActivityCycle:
        """Work for a share of the time, and waiting for a straggler of another node for the rest."""
        if not 0.0 < share < 1.0:
            return _steady(self._spin() if share <= 0.0 else self._compute(0.985, 1.0, job, gpu))
        return self.stalled(False, (TURN_SECONDS, (1.0 - share) * TURN_SECONDS), job, gpu)


RATES = (TENSOR, DRAM, NVLINK_TX, NVLINK_RX, FABRIC_TX, FABRIC_RX)
"""What falls with the clock, where a GPU does as much as it can."""


def slowed(cycle: ActivityCycle, power: float, clock: float, reason: int, floor: float = 0.0) -> ActivityCycle:
    """Return the same kernels at lower clocks: `reason` is the channel that shows why.

    The utilization stays as it is, because the kernels still run all the time: they only take longer.
    """
    factors = {**dict.fromkeys(RATES, clock), CLOCK: clock, POWER_CAP: 0.0}
    return cycle.changed(lambda level: _lowered(level, power, floor, factors, {reason: 1.0}))


def slowed_in_step(cycle: ActivityCycle, factor: float, floor: float) -> ActivityCycle:
    """Return power and clock at a factor, and as much work in a second as the peers of a synchronous job do.

    So the tensor cores are active for a larger share of fewer cycles, and the transfers are those of the peers.
    """
    factors = {TENSOR: 1 / factor, CLOCK: factor, POWER_CAP: 0.0}
    return cycle.changed(lambda level: _lowered(level, factor, floor, factors, {}))


def capped(cycle: ActivityCycle, watts: float) -> ActivityCycle:
    """Return the same work under a lower power limit."""

    def lower(level: Levels) -> Levels:
        if level[POWER] <= CAP * watts:
            return level
        share = CAP * watts / level[POWER]
        return _lowered(level, share, 0.0, {CLOCK: share**0.5}, {POWER_CAP: 1.0})

    return cycle.changed(lower)


def _lowered(
    level: Levels, power: float, floor: float, factors: Mapping[int, float], values: Mapping[int, float]
) -> Levels:
    """Return a level with its power at a factor, but at least `floor` watts, and these factors and values."""
    changed = [value * factors.get(channel, 1.0) for channel, value in enumerate(level)]
    changed[POWER] = max(min(floor, level[POWER]), level[POWER] * power)
    changed[TENSOR] = min(changed[TENSOR], 1.0)
    for channel, value in values.items():
        changed[channel] = value
    return tuple(changed)
