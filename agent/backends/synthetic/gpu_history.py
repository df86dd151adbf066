"""One GPU's history as a chain of segments, in each of which everything has a closed form.

A segment ends where the scenario has an edge, or where temperature crosses a limit. Any moment can be computed: the
result depends only on the scenario, never on earlier requests. Only the segments of the last few seconds are kept; an
older moment walks the chain again from the start, which takes one short step for each edge, not for each second.
"""

from collections.abc import Callable, Sequence
from math import exp, inf, log

from agent.backends.synthetic import activity as ch
from agent.backends.synthetic.activity import ActivityCycle, Levels, SmoothNoise, Worker, uniform
from agent.backends.synthetic.coolant_loop import OF_COOLANT, warmed
from agent.backends.synthetic.machines import MIB
from agent.backends.synthetic.scenario import Scenario, ScenarioFault, ScenarioJob, ScenarioPhase

WHOLE_JOB = frozenset({"checkpoint-stall", "lost"})
"""Faults of one GPU for which the other GPUs of its job have to wait."""

PACED = frozenset({"checkpoint-stall", "straggler"})
"""Faults that make those who wait alternate between work and waiting, in step from their onset."""

PHYSICAL = WHOLE_JOB | OF_COOLANT | {"straggler", "slow", "hot", "power-brake", "power-limit"}
"""Faults that change what a GPU does; all others change only what is read."""

REMEMBERED = 16
"""Cycles of a GPU that are kept: those of a job, of the faults that come again in it, and of heat."""

Faults = Sequence[ScenarioFault]

TAU_SECONDS = 25.0  # seconds: how slowly a heat sink follows its load
SW_FLOOR = 0.55  # of the power: below it the driver alone cannot cool the GPU, and the hardware steps in
HW_FLOOR = 0.25
RIPPLE = 0.015  # of the mean power
KEPT_SECONDS = 5.0  # seconds of the past that can be computed without walking again


class Segment:
    """A stretch with one cycle, one cooling and one throttling stage. `origin`: when the cycle began."""

    __slots__ = ("_coefficient", "_offset", "_steady", "_targets", "cycle", "end", "mean", "origin", "ripple", "start")

    def __init__(self, start: float, origin: float, cycle: ActivityCycle, inlet: float, resistance: float) -> None:
        self.start, self.end, self.origin, self.cycle = start, inf, origin, cycle
        self.ripple = RIPPLE * cycle.mean_power
        self._targets = [inlet + resistance * level[ch.POWER] for level in cycle.pieces]
        self._steady = self._steady_swing()
        self.mean = (inlet + resistance * cycle.mean_power, 0.0)
        self._coefficient = 0.0
        self._offset: list[float] = []

    def _steady_swing(self) -> list[float]:
        """Return the temperature at the start of each piece, once the swing of the cycle has settled."""
        swing, factor = 0.0, 1.0
        for target, duration in zip(self._targets, self.cycle.durations, strict=True):
            decay = exp(-duration / TAU_SECONDS)
            swing, factor = target + (swing - target) * decay, factor * decay
        at, starts = swing / (1.0 - factor), []
        for target, duration in zip(self._targets, self.cycle.durations, strict=True):
            starts.append(at)
            at = target + (at - target) * exp(-duration / TAU_SECONDS)
        return starts

    def begin(self, totals: list[float], ripple: float, temperature: float, mean: float) -> None:
        """Continue from the segment before: the integrals, the noise's integral, the temperatures."""
        accumulated = self.cycle.added([0.0] * ch.WIDTH, self.start - self.origin)
        self._offset = [total - added for total, added in zip(totals, accumulated, strict=True)]
        self._offset[ch.POWER] -= self.ripple * ripple
        self._coefficient = temperature - self._settled(self.start)
        target, _ = self.mean
        self.mean = (target, mean - target)

    def skip_settled_swing(self) -> None:
        """Leave out the first swing if the mean is in balance already."""
        if abs(self.mean[1]) < 1e-6:
            self._coefficient = 0.0

    def _settled(self, t: float) -> float:
        _, piece, into = self.cycle.locate(t - self.origin)
        target = self._targets[piece]
        return target + (self._steady[piece] - target) * exp(-into / TAU_SECONDS)

    def temperature(self, t: float) -> float:
        return self._settled(t) + self._coefficient * exp((self.start - t) / TAU_SECONDS)

    def mean_temperature(self, t: float) -> float:
        """Return the temperature without the swing of the cycle, which decides on throttling."""
        target, excess = self.mean
        return target + excess * exp((self.start - t) / TAU_SECONDS)

    def crossing(self, limit: float) -> float:
        """Return when the mean temperature will reach `limit` from below; infinity if never."""
        target, excess = self.mean
        if target <= limit or target + excess >= limit:
            return inf
        return self.start + TAU_SECONDS * log(excess / (limit - target))

    def totals(self, t: float, ripple: float) -> list[float]:
        sums = self.cycle.added(self._offset, t - self.origin)
        sums[ch.POWER] += self.ripple * ripple
        return sums

    def sums(self, t: float, channels: tuple[int, ...]) -> list[float]:
        return self.cycle.added_of(self._offset, t - self.origin, channels)


class Track:
    """One GPU's levels, integrals and temperature at any moment of a scenario. Not for two threads at once."""

    def __init__(self, scenario: Scenario, gpu: int) -> None:
        machine = scenario.topology
        self._gpu, self._machine = gpu, machine
        self._worker = Worker(machine, scenario.seed, gpu)
        self._jobs = tuple(job for job in scenario.jobs if gpu in job.gpus)
        peers = {peer for job in self._jobs for peer in job.gpus}
        faults = [
            (number, None, fault)
            for number, fault in enumerate(scenario.faults)
            if (fault.kind in PHYSICAL and gpu in fault.gpus)
            or (fault.kind in WHOLE_JOB and not peers.isdisjoint(fault.gpus))
        ]
        awaited = [
            (-2 - number, scenario.jobs[wait.job], wait.fault)
            for number, wait in enumerate(scenario.awaited)
            if gpu in scenario.jobs[wait.job].gpus and gpu not in wait.fault.gpus
        ]
        self._faults: Sequence[tuple[int, ScenarioJob | None, ScenarioFault]] = (*faults, *awaited)
        """What changes the GPU's work: number, the one job that waits for it if it is elsewhere, and the fault."""
        self._windows = [
            *(fault.window for _, _, fault in self._faults),
            *(job.window for job in self._jobs),
            *(phase.window for job in self._jobs for phase in job.phases),
        ]
        self._ripple = SmoothNoise(scenario.seed, gpu, 1)
        warmth = machine.slot_warmth[gpu % len(machine.slot_warmth)]
        self._resistance = (machine.full_load_rise + warmth) / machine.power_limit
        self._initial = self._history(scenario.seed, gpu)
        self._cycles: dict[tuple[object, ...], ActivityCycle] = {}
        self._segments: list[Segment] = []

    @staticmethod
    def _history(seed: int, gpu: int) -> list[float]:
        """Return initial counters: on a machine that has been up for a while they are not zero."""
        initial = [0.0] * ch.WIDTH
        initial[ch.POWER] = 1e8 * (1.0 + uniform(seed, gpu, 2))
        for channel in range(ch.NVLINK_TX, ch.FABRIC_RX + 1):
            initial[channel] = 1e12 * (1.0 + uniform(seed, gpu, 3, channel))
        initial[ch.IDLE] = 3600.0 * (1.0 + uniform(seed, gpu, 4))
        initial[ch.POWER_CAP] = 1800.0 * (1.0 + uniform(seed, gpu, 5))
        return initial

    def job_at(self, t: float) -> ScenarioJob | None:
        return next((job for job in self._jobs if job.window.holds(t)), None)

    def memory_used(self, t: float) -> float:
        """Return bytes of device memory in use at `t`: a job's share of it, which grows while the job is loading."""
        job = self.job_at(t)
        if job is None:
            return 0.0
        share, phase = job.memory, _phase_at(job, t)
        if phase is not None and phase.kind == "loading" and phase.window.duration:
            share *= min(1.0, max(0.0, t - phase.window.at) / phase.window.duration)
        usable = self._machine.memory - self._machine.reserved
        return (share * usable) // (2 * MIB) * (2 * MIB)

    def totals(self, t: float) -> list[float]:
        """Return the integral of each channel up to `t`; joules in POWER."""
        return self._segment(t).totals(t, self._ripple.integral(t))

    def sums(self, t: float, channels: tuple[int, ...]) -> list[float]:
        """Return the integrals of some channels up to `t`; POWER, the only one with noise, must not be among them."""
        return self._segment(t).sums(t, channels)

    def levels(self, t: float) -> Levels:
        segment = self._segment(t)
        return segment.cycle.at(t - segment.origin)

    def power(self, t: float) -> float:
        """Return watts at `t`: the derivative of the energy."""
        segment = self._segment(t)
        return segment.cycle.at(t - segment.origin)[ch.POWER] + segment.ripple * self._ripple.value(t)

    def temperature(self, t: float) -> float:
        return self._segment(t).temperature(t)

    def _segment(self, t: float) -> Segment:
        segments = self._segments
        if not segments or t < segments[0].start:
            segments[:] = [self._first()]
        last = segments[-1]
        while t >= last.end:
            last = self._after(last)
            segments.append(last)
        if t < last.start:
            return next(s for s in reversed(segments) if s.start <= t)
        while len(segments) > 1 and segments[0].end < t - KEPT_SECONDS:
            del segments[0]
        return last

    def _first(self) -> Segment:
        """Return the first segment, in balance: the node has worked for long; a fault at 0 begins there."""
        job = self.job_at(0.0)
        healthy = self._work(job, _phase_at(job, 0.0), [], [])
        heat = self._machine.inlet + self._resistance * healthy.mean_power
        segment = self._build(0.0, list(self._initial), heat, heat)
        segment.skip_settled_swing()
        return segment

    def _after(self, segment: Segment) -> Segment:
        end = segment.end
        totals = segment.totals(end, self._ripple.integral(end))
        return self._build(end, totals, segment.temperature(end), segment.mean_temperature(end))

    def _build(self, start: float, totals: list[float], temperature: float, mean: float) -> Segment:
        """Return the segment from `start` to the next edge of the scenario, or of the heat."""
        job = self.job_at(start)
        phase = _phase_at(job, start)
        holding = [f for f in self._faults if f[2].window.holds(start) and f[1] in (None, job)]
        mine = [fault for _, _, fault in holding if self._gpu in fault.gpus]
        theirs = [
            fault
            for _, waiting, fault in holding
            if waiting or (job and fault.kind in WHOLE_JOB and not set(job.gpus).isdisjoint(fault.gpus))
        ]
        # When the cycle began, the same for a whole job.
        begun = [fault.window.begun(start) or 0.0 for fault in theirs if fault.kind in PACED]
        origin = max([phase.window.at if phase is not None else 0.0, *begun])
        hot = [fault.parameters for fault in mine if fault.kind == "hot"]
        inlet = self._machine.inlet + (sum(h["inlet"] for h in hot) + warmed(self._machine, mine))
        resistance = self._resistance * max([h["resistance"] for h in hot], default=1.0)
        key = (job and job.window, phase and phase.window, *(number for number, _, _ in holding))
        cycle = self._remembered(key, lambda: self._changed(self._work(job, phase, mine, theirs), mine))
        cycle, limit = self._throttled(key, cycle, (inlet, resistance), mean)
        segment = Segment(start, origin, cycle, inlet, resistance)
        segment.begin(totals, self._ripple.integral(start), temperature, mean)
        next_edge = min((window.next_edge(start) for window in self._windows), default=inf)
        segment.end = min(next_edge, segment.crossing(limit))
        return segment

    def _remembered(self, key: tuple[object, ...], make: Callable[[], ActivityCycle]) -> ActivityCycle:
        cycle = self._cycles.get(key)
        if cycle is None:
            if len(self._cycles) >= REMEMBERED:  # jobs and faults may come for weeks
                self._cycles.clear()
            cycle = self._cycles[key] = make()
        return cycle

    def _work(
        self, job: ScenarioJob | None, phase: ScenarioPhase | None, mine: Faults, theirs: Faults
    ) -> ActivityCycle:
        """Return what the GPU does, by its job and by what its job waits for."""
        if job is None or phase is None:
            return self._worker.idle()
        if any(fault.kind == "lost" for fault in theirs):
            return self._worker.spinning()
        stall = _first(theirs, "checkpoint-stall")
        if stall is not None:
            values = stall.parameters
            return self._worker.stalled(stall in mine, (values["every"], values["takes"]), job, self._gpu)
        straggler = _first(mine, "straggler")
        if straggler is not None:
            return self._worker.allocated(straggler.parameters["utilization"])
        awaited = _first(theirs, "straggler")
        if awaited is not None:
            return self._worker.held_up(awaited.parameters["utilization"], job, self._gpu)
        return self._worker.work(phase.kind, job, phase.parameters, self._gpu)

    def _changed(self, cycle: ActivityCycle, mine: Faults) -> ActivityCycle:
        """Return the work as the GPU's own faults leave it."""
        idle_watts = self._machine.power_idle
        for fault in mine:
            values = fault.parameters
            if fault.kind == "lost":
                return self._worker.off()
            if fault.kind == "slow":
                cycle = ch.slowed_in_step(cycle, values["factor"], idle_watts)
            elif fault.kind == "power-brake":
                cycle = ch.slowed(cycle, values["power"], values["clock"], ch.POWER_BRAKE, idle_watts)
            elif fault.kind == "power-limit":
                cycle = ch.capped(cycle, values["watts"])
        return cycle

    def _throttled(
        self, key: tuple[object, ...], cycle: ActivityCycle, cooling: tuple[float, float], mean: float
    ) -> tuple[ActivityCycle, float]:
        """Return the cycle that the heat allows, and the temperature at which it will be cut further.

        `cooling` is the inlet, and the degrees above it for each watt.
        """
        machine, (inlet, resistance) = self._machine, cooling
        uncut = inlet + resistance * cycle.mean_power
        if uncut <= machine.sw_slowdown or mean < machine.sw_slowdown - 1e-3:
            return cycle, machine.sw_slowdown
        hold = (machine.sw_slowdown - inlet) / (uncut - inlet)
        if hold >= SW_FLOOR or mean < machine.slowdown - 1e-3:
            reason, power, limit = ch.SW_THERMAL, max(SW_FLOOR, hold), machine.slowdown
        else:
            hold = (machine.slowdown - inlet) / (uncut - inlet)
            reason, power, limit = ch.HW_THERMAL, min(SW_FLOOR, max(HW_FLOOR, hold)), inf
        clock = power**0.6 if reason == ch.SW_THERMAL else 0.5
        return self._remembered((*key, reason, power), lambda: ch.slowed(cycle, power, clock, reason)), limit


def _first(faults: Faults, kind: str) -> ScenarioFault | None:
    return next((fault for fault in faults if fault.kind == kind), None)


def _phase_at(job: ScenarioJob | None, t: float) -> ScenarioPhase | None:
    return next((phase for phase in job.phases if phase.window.holds(t)), None) if job is not None else None
