"""The cycle of a GPU at a moment: its job's phase, changed by the active faults."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from agent.backends.synthetic.coolant_loop import OF_COOLANT, warmed
from agent.backends.synthetic.levels import POWER_BRAKE, Cycle
from agent.backends.synthetic.scenario import Scenario, ScenarioFault, ScenarioJob, ScenarioPhase, Window
from agent.backends.synthetic.workloads import Worker, capped, slowed, slowed_in_step

WHOLE_JOB = frozenset({"checkpoint-stall", "lost"})
"""Faults of one GPU for which the other GPUs of its job have to wait."""

PACED = frozenset({"checkpoint-stall", "straggler"})
"""Faults that make those who wait alternate between work and waiting, in step from their onset."""

PHYSICAL = WHOLE_JOB | OF_COOLANT | {"straggler", "slow", "hot", "power-brake", "power-limit"}
"""Faults that change what a GPU does; all others change only what is read."""


REMEMBERED = 16
"""Cycles of a GPU that are kept: those of a job, and of the faults that come again in it."""


class Regime(NamedTuple):
    """What holds for a GPU until the next edge. `origin`: when the cycle began, the same for a whole job."""

    key: tuple[int, ...]
    cycle: Cycle
    origin: float
    resistance: float = 1.0  # of the cooling, as a multiple of the healthy one
    inlet: float = 0.0  # celsius above the healthy inlet


class Director:
    """Knows the regimes of one GPU and the moments at which they change."""

    def __init__(self, scenario: Scenario, gpu: int) -> None:
        self._gpu, self._machine = gpu, scenario.topology
        self._worker = Worker(scenario.topology, scenario.seed, gpu)
        self._idle_watts = scenario.topology.power_idle
        self._jobs = tuple(job for job in scenario.jobs if gpu in job.gpus)
        peers = {peer for job in self._jobs for peer in job.gpus}
        self._faults = tuple(
            (number, fault)
            for number, fault in enumerate(scenario.faults)
            if (fault.kind in PHYSICAL and gpu in fault.gpus)
            or (fault.kind in WHOLE_JOB and not peers.isdisjoint(fault.gpus))
        )
        self._awaited = tuple(
            (-2 - number, scenario.jobs[each.job], each.fault)
            for number, each in enumerate(scenario.awaited)
            if gpu in scenario.jobs[each.job].gpus and gpu not in each.fault.gpus
        )
        self._cycles: dict[tuple[int, ...], Cycle] = {}

    def job_at(self, t: float) -> ScenarioJob | None:
        """The job that holds the GPU."""
        return next((job for job in self._jobs if job.window.holds(t)), None)

    def next_edge(self, t: float) -> float:
        """When something changes next; infinity when nothing ever will."""
        windows: list[Window] = [fault.window for _, fault in self._faults]
        windows.extend(fault.window for _, _, fault in self._awaited)
        for job in self._jobs:
            windows.append(job.window)
            windows.extend(phase.window for phase in job.phases)
        return min((window.next_edge(t) for window in windows), default=inf)

    def memory_share(self, t: float) -> float:
        """The share of its memory that the GPU's job holds: it grows while the job is loading."""
        job = self.job_at(t)
        if job is None:
            return 0.0
        phase = _phase_at(job, t)
        if phase is not None and phase.kind == "loading" and phase.window.duration:
            return job.memory * min(1.0, max(0.0, t - phase.window.at) / phase.window.duration)
        return job.memory

    def regime(self, t: float) -> Regime:
        """The GPU's regime at `t`, which holds until the next edge."""
        job = self.job_at(t)
        phase = _phase_at(job, t) if job is not None else None
        holding = [(number, fault) for number, fault in self._faults if fault.window.holds(t)]
        mine = [(number, fault) for number, fault in holding if self._gpu in fault.gpus]
        theirs = [
            (number, fault)
            for number, fault in holding
            if fault.kind in WHOLE_JOB and job is not None and not set(job.gpus).isdisjoint(fault.gpus)
        ]
        awaited = [(number, fault) for number, of, fault in self._awaited if of is job and fault.window.holds(t)]
        theirs += awaited
        key = (
            self._jobs.index(job) if job is not None else -1,
            job.phases.index(phase) if job is not None and phase is not None else -1,
            *(number for number, _ in (*holding, *awaited)),
        )
        if key not in self._cycles:
            if len(self._cycles) >= REMEMBERED:  # jobs and faults may come for weeks
                self._cycles.clear()
            self._cycles[key] = self._cycle(job, phase, [f for _, f in mine], [f for _, f in theirs])
        origin = max(
            [phase.window.at if phase is not None else 0.0]
            + [fault.window.begun(t) or 0.0 for _, fault in theirs if fault.kind in PACED]
        )
        hot = [fault.parameters for _, fault in mine if fault.kind == "hot"]
        return Regime(
            key,
            self._cycles[key],
            origin,
            max([each["resistance"] for each in hot], default=1.0),
            sum(each["inlet"] for each in hot) + warmed(self._machine, (fault for _, fault in mine)),
        )

    def healthy(self, t: float) -> Cycle:
        """The GPU's cycle at `t` if there were no fault."""
        job = self.job_at(t)
        return self._base(job, _phase_at(job, t) if job is not None else None, [], [])

    def _cycle(
        self,
        job: ScenarioJob | None,
        phase: ScenarioPhase | None,
        mine: list[ScenarioFault],
        theirs: list[ScenarioFault],
    ) -> Cycle:
        if any(fault.kind == "lost" for fault in mine):
            return self._worker.off()
        cycle = self._base(job, phase, mine, theirs)
        for fault in mine:
            values = fault.parameters
            if fault.kind == "slow":
                cycle = slowed_in_step(cycle, values["factor"], self._idle_watts)
            elif fault.kind == "power-brake":
                cycle = slowed(cycle, values["power"], values["clock"], POWER_BRAKE, self._idle_watts)
            elif fault.kind == "power-limit":
                cycle = capped(cycle, values["watts"])
        return cycle

    def _base(
        self,
        job: ScenarioJob | None,
        phase: ScenarioPhase | None,
        mine: list[ScenarioFault],
        theirs: list[ScenarioFault],
    ) -> Cycle:
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


def _first(faults: list[ScenarioFault], kind: str) -> ScenarioFault | None:
    return next((fault for fault in faults if fault.kind == kind), None)


def _phase_at(job: ScenarioJob, t: float) -> ScenarioPhase | None:
    return next((phase for phase in job.phases if phase.window.holds(t)), None)
