"""What cools the node, from its management controller (`backends.redfish`): leak detectors, coolant, fans, intake.

The parts are found by links alone: ids and depths differ between makers. A detector or a fan that was there once stays
known: if the controller does not answer or list it any more, or it cannot be read, it is unavailable, and never dry or
well. The controller is asked every 15 s, in its own thread (`agent.backends.polled_source`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec import Struct

from agent.backends.equipment.equipment_resources import (
    LEAK_STATE,
    UNAVAILABLE,
    PartValue,
    listed_detectors,
    read_connector,
    read_detector,
    read_detector_groups,
    read_fan,
    read_thermal,
    read_thermal_metrics,
    resource_id,
)
from agent.backends.polled_source import PolledSource, Spawn, spawn_thread
from agent.backends.protocol import AbsentError, BackendSample
from agent.backends.redfish_service import CHASSIS, RedfishPoll, RedfishReader, RedfishService, link_path
from agent.catalogue.equipment import COOLANT, FAN_STATE, INTAKE, LEAK_STATES, ROWS, SUPPLY
from agent.lib.http_target import HttpTarget
from agent.model import Gap, Instant, Lane, Metric, Node, Reading, Reason, Series

SEARCH_SECONDS = 600.0
"""Seconds after which the service is searched again: for what was added, and where nothing was found."""
MOST_PARTS = 128
"""Documents of parts of a node that are read: a controller takes up to 300 ms for each."""
_STATES = (LEAK_STATE, FAN_STATE)
"""The rows that show how a part is, in the words of LEAK_STATES."""


class CoolingPart(NamedTuple):
    """What is shown of a part: a row, the chassis that the part is in, and its own name."""

    row: Metric
    chassis: str
    name: str


class PartDocument(NamedTuple):
    """A document that is read each time, and by what. If it cannot be understood, `row` is missing."""

    row: Metric
    read: Callable[[str, dict[str, Any]], Iterator[PartValue]]
    chassis: str
    path: str


_ASKED = (LEAK_STATE, FAN_STATE, INTAKE, SUPPLY)
_Asks = Mapping[Metric, RedfishPoll]
"""For each kind of part what asks for its documents, by the row that is missing where one cannot be understood."""


class NodeCoolingReadings(Struct, frozen=True):
    """What was read at one time: states of parts, None for one without, and values.

    `silent` coolant connectors, by chassis and name, say nothing. `problems` are what was wrong with single documents,
    with the row that is missing for each. `calls` counts the documents that were asked for.
    """

    states: dict[CoolingPart, str | None]
    values: dict[CoolingPart, float]
    silent: frozenset[tuple[str, str]]
    problems: tuple[tuple[Metric, str], ...]
    calls: int


class NodeCoolingReader(RedfishReader):
    """One service. Asked in a thread, with at most one question at a time."""

    name = "equipment"

    def __init__(self, target: HttpTarget, chassis: str | None, clock: Callable[[], float]) -> None:
        """Only what is in `chassis`, if it is given. `clock` gives monotonic seconds."""
        self._service = RedfishService(target, 10.0, clock)
        self._chassis = chassis
        self._clock = clock
        self._found: list[PartDocument] | None = None
        self._searched_at = 0.0
        self._problems: list[tuple[Metric, str]] = []
        self.known: dict[CoolingPart, str | None] = {}
        """Every detector and fan that ever was there, with what it said last."""

    def look(self) -> NodeCoolingReadings:
        """Return all parts, as they are now. Raises AbsentError if the node has no such part, and DeviceError."""
        now = self._clock()
        asks, calls = self._asks(), 0
        if self._found is None or now - self._searched_at >= SEARCH_SECONDS:
            searching = self._asks()
            self._found = self._search(searching)
            self._searched_at = now
            self._problems, calls = _problems_of(searching), _calls_of(searching)
        if not (self._found or self.known or self._problems):
            raise AbsentError("the management controller lists neither leak detectors, coolant connectors nor fans")
        states: dict[CoolingPart, str | None] = dict.fromkeys(self.known, UNAVAILABLE)
        values: dict[CoolingPart, float] = {}
        silent: set[tuple[str, str]] = set()
        for row, read, chassis, path in self._found:
            said = list(read(resource_id(path), asks[row].at(path)))
            if row is SUPPLY and not said:
                silent.add((chassis, resource_id(path)))
            for shown, name, value in said:
                part = CoolingPart(shown, chassis, name)
                if isinstance(value, float):
                    values[part] = value
                else:
                    states[part] = value
        self.known = states
        problems = tuple(dict.fromkeys((*self._problems, *_problems_of(asks))))
        self.log_new(dict.fromkeys(each for _, each in problems))
        return NodeCoolingReadings(dict(states), values, frozenset(silent), problems, calls + _calls_of(asks))

    def close(self) -> None:
        self._service.close()

    def _asks(self) -> _Asks:
        return {row: RedfishPoll(self._service, self._clock, linked=False) for row in _ASKED}

    def _search(self, asks: _Asks) -> list[PartDocument]:
        found: list[PartDocument] = []
        ask = asks[LEAK_STATE]
        if self._chassis is None:
            paths = ask.members_in(CHASSIS, ask.examined(CHASSIS, self._service.get(CHASSIS)))
        else:
            paths = [f"{CHASSIS}/{quote(self._chassis, '')}"]
        for path in paths:
            document = ask.at(path)
            if len(found) < MOST_PARTS:
                found += self._search_in(resource_id(path), document, asks)
        return found[:MOST_PARTS]

    @staticmethod
    def _search_in(chassis: str, document: dict[str, Any], asks: _Asks) -> Iterator[PartDocument]:
        """Those of one chassis, which lists its detectors itself (since 2023) or in its ThermalSubsystem, or both."""
        ask = asks[LEAK_STATE]
        thermal = ask.at(link_path(document.get("ThermalSubsystem")))
        detection = link_path(thermal.get("LeakDetection"))
        leaks = ask.at(detection)
        detectors = [path for each in (document, leaks) for path in ask.members(link_path(each.get("LeakDetectors")))]
        for path in dict.fromkeys(detectors):
            yield PartDocument(LEAK_STATE, read_detector, chassis, path)
        if detection is not None and not detectors and any(True for _ in listed_detectors(leaks)):
            yield PartDocument(LEAK_STATE, read_detector_groups, chassis, detection)
        for path in asks[SUPPLY].members(link_path(thermal.get("CoolantConnectors"))):
            yield PartDocument(SUPPLY, read_connector, chassis, path)
        fans = asks[FAN_STATE].members(link_path(thermal.get("Fans")))
        for path in fans:
            yield PartDocument(FAN_STATE, read_fan, chassis, path)
        metrics, older = link_path(thermal.get("ThermalMetrics")), link_path(document.get("Thermal"))
        if older is not None and not fans:
            yield PartDocument(FAN_STATE, read_thermal, chassis, older)
        if metrics is not None:
            yield PartDocument(INTAKE, read_thermal_metrics, chassis, metrics)


def _problems_of(asks: _Asks) -> list[tuple[Metric, str]]:
    return [(row, problem) for row, ask in asks.items() for problem in ask.problems]


def _calls_of(asks: _Asks) -> int:
    return sum(ask.calls for ask in asks.values())


class EquipmentBackend:
    """Shows what the watch last saw, and what it cannot see."""

    name = "equipment"
    lanes = frozenset({Lane.SLOW})
    shortest = 1.0

    def __init__(self, watch: NodeCoolingReader, spawn: Spawn = spawn_thread) -> None:
        self._watch = watch
        self._paced: PolledSource[NodeCoolingReadings] = PolledSource(watch, watch.look, spawn)
        self._series: dict[tuple[CoolingPart, tuple[str, ...]], Series] = {}

    def read(self, lane: Lane, now: Instant) -> BackendSample:  # noqa: ARG002 - the protocol's signature
        """Return the state of every detector and fan, and all values. Raises AbsentError on a node without them."""
        calls = self._paced.poll(now.mono)
        seen, fault = self._paced.value, self._paced.fault
        if self._paced.absence:
            raise AbsentError(self._paced.absence)
        readings: list[Reading] = []
        gaps: list[Gap] = []
        if seen is not None:
            readings = [
                *self._states(seen.states),
                *(Reading(self._of(part), seen.values[part]) for part in seen.values),
            ]
            gaps = [
                Gap(row, Node(), Reason.MALFORMED, f"the coolant connector {name} of {chassis} has no values")
                for (row, chassis, name), _ in self._series
                if row in COOLANT and (chassis, name) in seen.silent
            ]
            gaps += [Gap(row, Node(), Reason.MALFORMED, problem) for row, problem in seen.problems]
            calls = seen.calls if calls else 0
        elif fault is not None:
            readings = list(self._states(dict.fromkeys(self._watch.known, UNAVAILABLE)))
            gaps = [Gap(row, Node(), fault.reason, fault.detail) for row in self._shown_once()]
        return BackendSample(readings, gaps, calls=calls, awaited=self._paced.awaited)

    def close(self) -> None:
        self._paced.close()

    def _states(self, states: Mapping[CoolingPart, str | None]) -> Iterator[Reading]:
        for part, said in states.items():
            if said is not None:
                for state in LEAK_STATES:
                    yield Reading(self._of(part, state), int(state == said))

    def _shown_once(self) -> list[Metric]:
        """Return the rows that are missing now: those that there have been, or else the leak detectors."""
        seen = {part.row for part, _ in self._series if part.row not in _STATES}
        return [row for row in ROWS if row in seen] or [LEAK_STATE]

    def _of(self, part: CoolingPart, *state: str) -> Series:
        key = (part, state)
        series = self._series.get(key)
        if series is None:
            labels = zip(part.row.labels, (part.chassis, part.name, *state), strict=True)
            series = self._series[key] = Series(part.row, Node(), tuple(labels))
        return series
