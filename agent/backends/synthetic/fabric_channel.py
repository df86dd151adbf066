"""The channel of everything except GPUs: ports, optical modules, NVSwitches, the node's power and water, and the jobs.

It has its own tracks and shares none with the GPUs' channels, so that no lock is needed and a GPU
whose read hangs does not block the ports.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from agent.backends.protocol import BackendSample
from agent.backends.synthetic.fault_effects import Gate
from agent.backends.synthetic.noise import mix
from agent.backends.synthetic.offered_series import port_offers
from agent.backends.synthetic.placement import PlacedJob
from agent.backends.synthetic.ports import SyntheticPort
from agent.backends.synthetic.scenario import Scenario, ScenarioFault
from agent.backends.synthetic.switch_errors import SwitchErrors
from agent.backends.synthetic.synthetic_optics import SyntheticOptic
from agent.backends.synthetic.track import Track
from agent.backends.synthetic.tray_water import TrayWater
from agent.backends.synthetic.xid_feed import XidFeed
from agent.catalogue import metric
from agent.model import Gap, Gpu, GpuIdentity, Instant, Lane, Node, Reading, Series

BMC_STEP = 25.0  # watts: a power supply's sensor is coarse
BMC_NOISE = 0.015
CALLS = {Lane.FAST: 11, Lane.SLOW: 40, Lane.COLD: 4}
"""File reads that a real port would take."""


class FabricChannel:
    """Ports, modules, switches, power, water and jobs of a synthetic node."""

    key = "fabric"
    identity: GpuIdentity | None = None

    def __init__(
        self,
        scenario: Scenario,
        gpus: tuple[Gpu, ...],
        epoch: float,
        released: threading.Event,
        feed: XidFeed,
        waiting: Mapping[int, GpuIdentity],
    ) -> None:
        """`waiting` are the GPUs, by number, that have not said who they are: nobody can tell of them by name."""
        machine = scenario.topology
        self._epoch, self._feed = epoch, feed
        self._waiting = waiting
        self._gate = Gate(scenario, None, released)
        self._tracks = [Track(scenario, number) for number in range(machine.gpus)]
        offers, rails = list(port_offers()), len(machine.ports)
        self._ports = [
            SyntheticPort(
                scenario, number, [track for gpu, track in enumerate(self._tracks) if gpu % rails == number], offers
            )
            for number in range(rails)
        ]
        self._power = Series(metric("coldplate_node_power_watts"), Node(), (("source", "synthetic"),))
        self._draw = PowerDraw(scenario, self._tracks)
        self._switch_errors = SwitchErrors(scenario)
        self._optics = [SyntheticOptic(scenario, number) for number in range(len(machine.optics))]
        self._water = TrayWater(scenario, self._tracks)
        self._jobs = [
            PlacedJob(job, [gpus[number] for number in job.gpus], [self._tracks[number] for number in job.gpus])
            for job in scenario.jobs
        ]

    def read(self, lane: Lane, now: Instant) -> BackendSample:
        """What the node shows at `now`, apart from its GPUs."""
        t = max(0.0, now.mono - self._epoch)
        self._feed.advance(t, now)
        self._gate.source(t)
        readings: list[Reading] = []
        gaps: list[Gap] = []
        for port in self._ports:
            found, missing = port.readings(lane, t)
            readings += found
            gaps += missing
        for optic in self._optics:
            readings += optic.readings(lane, t)
        if lane is Lane.FAST:
            readings.append(Reading(self._power, self._draw.watts(t)))
            readings += self._switch_errors.readings(t)
        elif lane is Lane.SLOW:
            unnamed = {identity.gpu for identity in list(self._waiting.values())}
            for job in self._jobs:
                readings += [each for each in job.readings(t, now) if each.entity not in unnamed]
            readings += self._water.readings(t)
        return BackendSample(readings, gaps, calls=CALLS.get(lane, 0) * len(self._ports))


class PowerDraw:
    """The power of a whole node. Advances the tracks that it is given, so it belongs to one thread."""

    def __init__(self, scenario: Scenario, tracks: Sequence[Track]) -> None:
        self._machine, self._tracks = scenario.topology, tracks
        self._extra = tuple(fault for fault in scenario.faults if fault.kind == "node-power")
        self._noise = mix(scenario.seed, 61)

    def watts(self, t: float) -> float:
        """What a sensor shows `t` seconds into the scenario."""
        wobble = 2.0 * (mix(self._noise, int(t)) & 0xFFFF) / 65535.0 - 1.0
        return round(self.drawn(t) * (1.0 + BMC_NOISE * wobble) / BMC_STEP) * BMC_STEP

    def drawn(self, t: float) -> float:
        """What is drawn, without the sensor's noise."""
        machine = self._machine
        total = machine.base_power
        for track in self._tracks:
            total += (track.power(t) + machine.module_power) * machine.power_overhead
        for fault in self._extra:
            total += _extra_watts(fault, t)
        return total


def _extra_watts(fault: ScenarioFault, t: float) -> float:
    begun = fault.window.begun(t)
    if begun is None:
        return 0.0
    ramp = fault.parameters["ramp"]
    return fault.parameters["watts"] * (min(1.0, max(0.0, t - begun) / ramp) if ramp > 0.0 else 1.0)
