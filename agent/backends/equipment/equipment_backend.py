"""What cools the node, from its management controller (`backends.redfish`): leak detectors, coolant, fans, intake.

Only what belongs to this node: what serves a rack is read by `agent.backends.rack_equipment`.

The controller is asked every 15 s, in its own thread (`agent.backends.polled_source`). While it does not answer, every
known detector and fan is unavailable, and all values are missing: what cannot be read is never dry.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.backends.equipment.equipment_resources import UNAVAILABLE, CoolingComponent
from agent.backends.equipment.node_cooling_reader import NodeCoolingReader, NodeCoolingReadings
from agent.backends.polled_source import PolledSource, Spawn, spawn_thread
from agent.backends.protocol import AbsentError, BackendSample
from agent.catalogue.equipment import FAN_ROTATION, FAN_SPEED, FAN_STATE, INTAKE, LEAK_STATES, LEAKS, ROWS
from agent.model import Gap, Instant, Lane, Metric, Node, Reading, Reason, Series

(LEAK_STATE,) = LEAKS
_OWN_LABELS = {LEAK_STATE: "detector", INTAKE: "sensor", **dict.fromkeys((FAN_STATE, FAN_SPEED, FAN_ROTATION), "fan")}
"""What a part is called in the labels of a row; in all others it is a connector."""


class EquipmentBackend:
    """Shows what the watch last saw, and what it cannot see."""

    name = "equipment"
    lanes = frozenset({Lane.SLOW})
    shortest = 1.0

    def __init__(self, watch: NodeCoolingReader, spawn: Spawn = spawn_thread) -> None:
        self._watch = watch
        self._paced: PolledSource[NodeCoolingReadings] = PolledSource(watch, watch.look, spawn)
        self._series: dict[tuple[Metric, CoolingComponent, str], Series] = {}

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - the protocol's signature
        """Return the state of every detector and fan, and all values. Raises AbsentError on a node without them."""
        calls = self._paced.poll(now.mono)
        seen = self._paced.value
        if self._paced.absence:
            raise AbsentError(self._paced.absence)
        readings: list[Reading] = []
        gaps: list[Gap] = []
        if seen is not None:
            self._show_states(readings, LEAK_STATE, seen.leaks)
            self._show_states(readings, FAN_STATE, {place: fan.state for place, fan in seen.fans.items()})
            readings += [Reading(self._of(INTAKE, place), value) for place, value in seen.intakes.items()]
            for place, fan in seen.fans.items():
                readings += [Reading(self._of(row, place), value) for row, value in fan.speeds.items()]
            for place, values in seen.connectors.items():
                readings += [Reading(self._of(row, place), value) for row, value in values.items()]
            gaps = [self._silent(row, place) for row, place, _ in self._series if place in seen.silent]
            gaps += [Gap(row, Node(), Reason.MALFORMED, problem) for row, problem in seen.problems]
            calls = seen.calls if calls else 0
        elif self._paced.fault is not None:
            fault = self._paced.fault
            self._show_states(readings, LEAK_STATE, dict.fromkeys(self._watch.known, UNAVAILABLE))
            self._show_states(readings, FAN_STATE, dict.fromkeys(self._watch.known_fans, UNAVAILABLE))
            gaps = [Gap(row, Node(), fault.reason, fault.detail) for row in self._shown_once()]
        return BackendSample(readings, gaps, calls=calls, awaited=self._paced.awaited)

    def close(self) -> None:
        self._paced.close()

    def _show_states(self, readings: list[Reading], row: Metric, parts: Mapping[CoolingComponent, str | None]) -> None:
        for place, said in parts.items():
            if said is None:
                continue
            readings += [Reading(self._of(row, place, state), int(state == said)) for state in LEAK_STATES]

    @staticmethod
    def _silent(row: Metric, place: CoolingComponent) -> Gap:
        return Gap(
            row, Node(), Reason.MALFORMED, f"the coolant connector {place.name} of {place.chassis} has no values"
        )

    def _shown_once(self) -> list[Metric]:
        """Return the rows that are missing now: those that there have been, or the leak detectors if nothing ever
        was.
        """
        seen = {metric for metric, _, _ in self._series if metric not in (LEAK_STATE, FAN_STATE)}
        return [row for row in ROWS if row in seen] or [LEAK_STATE]

    def _of(self, row: Metric, place: CoolingComponent, state: str = "") -> Series:
        series = self._series.get((row, place, state))
        if series is None:
            own = (_OWN_LABELS.get(row, "connector"), place.name)
            more = (("state", state),) if state else ()
            series = self._series[row, place, state] = Series(row, Node(), (("chassis", place.chassis), own, *more))
        return series
