"""The channel of everything except GPUs: ports, optical modules, NVSwitches, the node's power and water, and the jobs.

It has its own tracks and shares none with the GPUs' channels, so that no lock is needed and a GPU
whose read hangs does not block the ports.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from math import floor

from agent.backends.protocol import BackendSample
from agent.backends.synthetic import activity as ch
from agent.backends.synthetic.activity import hash64
from agent.backends.synthetic.coolant_loop import CoolantLoop
from agent.backends.synthetic.gpu_history import Track
from agent.backends.synthetic.machines import MachineType
from agent.backends.synthetic.scenario import Scenario, ScenarioFault, ScenarioJob
from agent.backends.synthetic.synthetic_faults import ReadGate, SwitchErrors, XidFeed
from agent.backends.synthetic.synthetic_ports import SyntheticOptic, SyntheticPort
from agent.catalogue import BY_NAME, equipment
from agent.catalogue.equipment import LEAK_STATES
from agent.model import Gap, Gpu, GpuIdentity, Instant, Lane, Metric, Node, Reading, Series

CHASSIS = "Chassis_0"
JOULES_PER_LITER = 3_850.0
"""What a liter takes up for each degree: water with a quarter of propylene glycol."""
DROP = 45_000.0  # pascals between supply and return at the rated flow, which go with its square
MOST_RISE = 60.0
"""Degrees above the supply at which coolant returns at most: what stands still takes up no more."""
WORST_LAST = {state: place for place, state in enumerate(("ok", "unavailable", "warning", "critical"))}


class TrayWater:
    """Leak detectors and coolant connectors, as the node's management controller reports them.

    None for a machine that is cooled by air. Advances the tracks that it is given: it belongs to one thread.
    """

    def __init__(self, scenario: Scenario, tracks: Sequence[Track]) -> None:
        self._machine, self._tracks = scenario.topology, tracks
        self._loop = CoolantLoop(scenario)
        leaks = scenario.faults_of("leak")
        (row,) = equipment.LEAKS
        self._detectors = []
        for detector in self._machine.leak_detectors:
            labels = (("chassis", CHASSIS), ("detector", detector))
            states = {state: Series(row, Node(), (*labels, ("state", state))) for state in LEAK_STATES}
            self._detectors.append(([fault for fault in leaks if fault.part == detector], states))
        self._connectors = [
            {row: Series(row, Node(), (("chassis", CHASSIS), ("connector", connector))) for row in equipment.COOLANT}
            for connector in self._machine.connectors
        ]

    def readings(self, t: float) -> Iterator[Reading]:
        """Yield what the detectors and the connectors say at `t`."""
        for leaks, states in self._detectors:
            active_state = leak_state(leaks, t)
            for state, series in states.items():
                yield Reading(series, float(state == active_state))
        values = self._values(t) if self._connectors else {}
        for rows in self._connectors:
            for row, series in rows.items():
                yield Reading(series, values[row])

    def _values(self, t: float) -> dict[Metric, float]:
        """Return those of one connector; all have the same share of the node's heat."""
        share = 1.0 / len(self._connectors)
        rated = self._machine.rated_flow * share
        flow = self._loop.flow(t)
        rise = rise_of(heat_of(self._machine, self._tracks, t) * share, flow * rated)
        supply = self._machine.inlet + self._loop.warmth(t)
        return {
            equipment.SUPPLY: round(supply, 2),
            equipment.RETURN: round(supply + rise, 2),
            equipment.FLOW: flow * rated,
            equipment.RATED_FLOW: rated,
            equipment.HEAT: round(rise * flow * rated * JOULES_PER_LITER, -1),
            equipment.PRESSURE: DROP * flow**2,
        }


def heat_of(machine: MachineType, tracks: Sequence[Track], t: float) -> float:
    """Return watts that a node gives to its coolant."""
    return sum(track.power(t) + machine.module_power for track in tracks)


def rise_of(heat: float, flow: float) -> float:
    """Return the degrees by which the coolant gets warmer, by its liters a second and the watts that it takes."""
    return min(heat / (flow * JOULES_PER_LITER), MOST_RISE)


def leak_state(faults: Sequence[ScenarioFault], t: float) -> str:
    """Return what a detector says to which these are done."""
    states = (fault.options["state"] for fault in faults if fault.window.holds(t))
    return max(states, key=WORST_LAST.__getitem__, default="ok")


class PlacedJob:
    """A job and its GPUs, in the same rows as on a real node.

    Advances the tracks that it is given, so it belongs to one thread.
    """

    def __init__(self, job: ScenarioJob, gpus: Sequence[Gpu], tracks: Sequence[Track]) -> None:
        self._job, self._tracks = job, tracks
        self._before: list[float] = []
        self._started = 0.0
        facts = {
            "scheduler": job.scheduler, "job_id": job.id, "user": job.user, "name": job.name, "account": job.account,
            "partition": job.partition, "mig": "0", "shared": "false", "held": "false",
        }  # fmt: skip
        self._holders = [Reading(_series("coldplate_gpu_job_info", gpu, facts), 1.0) for gpu in gpus]
        self._memory = [_series("coldplate_gpu_job_memory_used_bytes", gpu, facts) for gpu in gpus]
        numbers = {"coldplate_job_info": 1, "coldplate_job_gpus": len(gpus), "coldplate_job_processes": len(gpus)}
        self._facts = [Reading(_series(name, Node(), facts), float(number)) for name, number in numbers.items()]
        self._start = _series("coldplate_job_start_timestamp_seconds", Node(), facts)
        self._energy = _series("coldplate_job_energy_joules_total", Node(), facts)

    def readings(self, t: float, now: Instant) -> list[Reading]:
        """Return the job's readings at `t`, which is `now`: none unless it is running."""
        begin = self._job.window.at
        if not self._job.window.holds(t):
            return []
        if not self._before:
            self._before = [track.totals(begin)[ch.POWER] for track in self._tracks]
            self._started = float(floor(now.wall - t + begin))
        joules = sum(track.totals(t)[ch.POWER] for track in self._tracks) - sum(self._before)
        used = (track.memory_used(t) for track in self._tracks)
        memory = map(Reading, self._memory, used)
        own = (Reading(self._start, self._started), Reading(self._energy, joules))
        return [*self._holders, *memory, *self._facts, *own]


def _series(name: str, entity: Gpu | Node, facts: dict[str, str]) -> Series:
    row = BY_NAME[name]
    return Series(row, entity, tuple((label, facts.get(label, "")) for label in row.labels))


BMC_STEP = 25.0  # watts: a power supply's sensor is coarse
BMC_NOISE = 0.015
CALLS = {Lane.FAST: 11, Lane.SLOW: 40, Lane.COLD: 4}
"""File reads that a real port would take."""


class NonGpuChannel:
    """Ports, modules, switches, power, water and jobs of a synthetic node."""

    key = "fabric"
    identity: GpuIdentity | None = None

    def __init__(
        self, scenario: Scenario, gpus: tuple[Gpu, ...], epoch: float, released: threading.Event,
        *, feed: XidFeed, waiting: Mapping[int, GpuIdentity],
    ) -> None:  # fmt: skip
        """Take a scenario; `waiting` are the GPUs, by number, that have no identity yet, and so no series by name."""
        machine = scenario.topology
        self._epoch, self._feed = epoch, feed
        self._waiting = waiting
        self._gate = ReadGate(scenario, None, released)
        self._tracks = [Track(scenario, number) for number in range(machine.gpus)]
        rails = len(machine.ports)
        self._ports = [SyntheticPort(scenario, number, self._tracks[number::rails]) for number in range(rails)]
        self._power = Series(BY_NAME["coldplate_node_power_watts"], Node(), (("source", "synthetic"),))
        self._draw = NodePowerModel(scenario, self._tracks)
        self._mute = scenario.faults_of("meter-lost")
        self._switch_errors = SwitchErrors(scenario)
        self._optics = [SyntheticOptic(scenario, number) for number in range(len(machine.optics))]
        self._water = TrayWater(scenario, self._tracks)
        self._jobs = [
            PlacedJob(job, [gpus[number] for number in job.gpus], [self._tracks[number] for number in job.gpus])
            for job in scenario.jobs
        ]

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        t = max(0.0, now.mono - self._epoch)
        self._feed.advance(t, now)
        self._gate.source(t)
        readings: list[Reading] = []
        gaps: list[Gap] = []
        for port in self._ports:
            port_readings, missing = port.readings(lane, t)
            readings += port_readings
            gaps += missing
        for optic in self._optics:
            readings += optic.readings(lane, t)
        if lane is Lane.FAST:
            if not any(fault.window.holds(t) for fault in self._mute):
                readings.append(Reading(self._power, self._draw.watts(t)))
            readings += self._switch_errors.readings(t)
        elif lane is Lane.SLOW:
            unnamed = {identity.gpu for identity in list(self._waiting.values())}
            for job in self._jobs:
                readings += [r for r in job.readings(t, now) if r.entity not in unnamed]
            readings += self._water.readings(t)
        return BackendSample(readings, gaps, calls=CALLS.get(lane, 0) * len(self._ports))


class NodePowerModel:
    """The power of a whole node. Advances the tracks that it is given, so it belongs to one thread."""

    def __init__(self, scenario: Scenario, tracks: Sequence[Track]) -> None:
        self._machine, self._tracks = scenario.topology, tracks
        self._extra = scenario.faults_of("node-power")
        self._noise = hash64(scenario.seed, 61)

    def watts(self, t: float) -> float:
        wobble = 2.0 * (hash64(self._noise, int(t)) & 0xFFFF) / 65535.0 - 1.0
        return round(self.drawn(t) * (1.0 + BMC_NOISE * wobble) / BMC_STEP) * BMC_STEP

    def drawn(self, t: float) -> float:
        """Return what is drawn, without the sensor's noise."""
        machine = self._machine
        total = machine.base_power
        for track in self._tracks:
            total += (track.power(t) + machine.module_power) * machine.power_overhead
        return total + sum(_extra_watts(fault, t) for fault in self._extra)


def _extra_watts(fault: ScenarioFault, t: float) -> float:
    begun = fault.window.begun(t)
    if begun is None:
        return 0.0
    ramp = fault.parameters["ramp"]
    return fault.parameters["watts"] * (min(1.0, max(0.0, t - begun) / ramp) if ramp > 0.0 else 1.0)
