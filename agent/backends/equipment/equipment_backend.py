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
    BLIND_FAN,
    UNAVAILABLE,
    CoolingComponent,
    FanReading,
    listed_detectors,
    parse_connector,
    parse_fan,
    parse_fan_list,
    parse_intake_sensors,
    parse_intake_temperature,
    parse_leak_state,
    resource_id,
)
from agent.backends.polled_source import PolledSource, Spawn, spawn_thread
from agent.backends.protocol import AbsentError, BackendSample
from agent.backends.redfish_service import CHASSIS, RedfishPoll, RedfishReader, RedfishService, link_path
from agent.catalogue.equipment import FAN_ROTATION, FAN_SPEED, FAN_STATE, INTAKE, LEAK_STATES, LEAKS, ROWS, SUPPLY
from agent.lib.http_target import HttpTarget
from agent.model import Gap, Instant, Lane, Metric, Node, Reading, Reason, Series

(LEAK_STATE,) = LEAKS
SEARCH_SECONDS = 600.0
"""Seconds after which the service is searched again: for what was added, and where nothing was found."""
MOST_PARTS = 128
"""Documents of parts of a node that are read: a controller takes up to 300 ms for each."""


_ASKED = (LEAK_STATE, FAN_STATE, INTAKE, SUPPLY)
"""A row of each kind of part, which is missing where a document of the kind cannot be understood."""
_Asks = Mapping[Metric, RedfishPoll]


class NodeCoolingReadings(Struct, frozen=True):
    """What was read at one time. `calls` counts the documents that were asked for; `silent` connectors say nothing.

    `problems` are what was wrong with single documents, with the row that is missing for each.
    """

    leaks: dict[CoolingComponent, str]
    fans: dict[CoolingComponent, FanReading]
    intakes: dict[CoolingComponent, float]
    connectors: dict[CoolingComponent, dict[Metric, float]]
    silent: frozenset[CoolingComponent]
    problems: tuple[tuple[Metric, str], ...]
    calls: int


class _ResourcePaths(NamedTuple):
    """Where what is: paths of documents, by chassis."""

    detectors: list[tuple[str, str]]
    groups: list[tuple[str, str]]
    connectors: list[tuple[str, str]]
    fans: list[tuple[str, str]]
    metrics: list[tuple[str, str]]
    thermals: list[tuple[str, str]]
    """Documents of the older kind, which list fans and temperatures together."""

    @property
    def parts(self) -> int:
        return sum(map(len, self))


class NodeCoolingReader(RedfishReader):
    """One service. Asked in a thread, with at most one question at a time."""

    name = "equipment"

    def __init__(self, target: HttpTarget, chassis: str | None, clock: Callable[[], float]) -> None:
        """Only what is in `chassis`, if it is given. `clock` gives monotonic seconds."""
        self._service = RedfishService(target, 10.0, clock)
        self._chassis = chassis
        self._clock = clock
        self._found: _ResourcePaths | None = None
        self._searched_at = 0.0
        self._problems: list[tuple[Metric, str]] = []
        self.known: dict[CoolingComponent, str] = {}
        """Every detector that ever was there, with what it said last."""
        self.known_fans: dict[CoolingComponent, FanReading] = {}
        """The same of fans."""

    def look(self) -> NodeCoolingReadings:
        """Return all parts, as they are now. Raises AbsentError if the node has no such part, and DeviceError."""
        now = self._clock()
        asks, calls = self._asks(), 0
        if self._found is None or now - self._searched_at >= SEARCH_SECONDS:
            searching = self._asks()
            self._found = self._search(searching)
            self._searched_at = now
            self._problems, calls = _problems_of(searching), _calls_of(searching)
        if not (self._found.parts or self.known or self.known_fans or self._problems):
            raise AbsentError("the management controller lists neither leak detectors, coolant connectors nor fans")
        leaks = dict.fromkeys(self.known, UNAVAILABLE)
        leaks.update(self._leaks(self._found, asks[LEAK_STATE]))
        self.known = leaks
        fans = dict.fromkeys(self.known_fans, BLIND_FAN)
        intakes: dict[CoolingComponent, float] = {}
        self._read_air(self._found, asks, fans, intakes)
        self.known_fans = fans
        connectors = dict(self._connectors(self._found, asks[SUPPLY]))
        silent = frozenset(place for place, values in connectors.items() if not values)
        problems = tuple(dict.fromkeys((*self._problems, *_problems_of(asks))))
        self.log_new(dict.fromkeys(each for _, each in problems))
        calls += _calls_of(asks)
        return NodeCoolingReadings(dict(leaks), dict(fans), intakes, connectors, silent, problems, calls)

    def close(self) -> None:
        self._service.close()

    def _asks(self) -> _Asks:
        return {row: RedfishPoll(self._service, self._clock, linked=False) for row in _ASKED}

    @staticmethod
    def _leaks(found: _ResourcePaths, ask: RedfishPoll) -> Iterator[tuple[CoolingComponent, str]]:
        for chassis, path in found.detectors:
            state = parse_leak_state(ask.at(path))
            if state is not None:
                yield CoolingComponent(chassis, resource_id(path)), state
        for chassis, path in found.groups:
            for name, document in listed_detectors(ask.at(path)):
                state = parse_leak_state(document)
                if state is not None:
                    yield CoolingComponent(chassis, name), state

    @staticmethod
    def _read_air(
        found: _ResourcePaths, asks: _Asks, fans: dict[CoolingComponent, FanReading],
        intakes: dict[CoolingComponent, float],
    ) -> None:  # fmt: skip
        """Note what fans and intakes say; older controllers have both in one document."""
        for chassis, path in found.fans:
            fan = parse_fan(asks[FAN_STATE].at(path))
            if fan is not None:
                fans[CoolingComponent(chassis, resource_id(path))] = fan
        for chassis, path in found.thermals:
            document = asks[FAN_STATE].at(path)
            fans.update((CoolingComponent(chassis, name), fan) for name, fan in parse_fan_list(document))
            intakes.update((CoolingComponent(chassis, name), value) for name, value in parse_intake_sensors(document))
        for chassis, path in found.metrics:
            value = parse_intake_temperature(asks[INTAKE].at(path))
            if value is not None:
                intakes[CoolingComponent(chassis, "intake")] = value

    @staticmethod
    def _connectors(found: _ResourcePaths, ask: RedfishPoll) -> Iterator[tuple[CoolingComponent, dict[Metric, float]]]:
        for chassis, path in found.connectors:
            yield CoolingComponent(chassis, resource_id(path)), parse_connector(ask.at(path))

    def _search(self, asks: _Asks) -> _ResourcePaths:
        found = _ResourcePaths([], [], [], [], [], [])
        ask = asks[LEAK_STATE]
        if self._chassis is None:
            paths = ask.members_in(CHASSIS, ask.examined(CHASSIS, self._service.get(CHASSIS)))
        else:
            paths = [f"{CHASSIS}/{quote(self._chassis, '')}"]
        for path in paths:
            document = ask.at(path)
            if found.parts < MOST_PARTS:
                self._search_in(resource_id(path), document, found, asks)
        for each in found:
            del each[MOST_PARTS:]
        return found

    @staticmethod
    def _search_in(chassis: str, document: dict[str, Any], found: _ResourcePaths, asks: _Asks) -> None:
        """Those of one chassis, which lists its detectors itself (since 2023) or in its ThermalSubsystem, or both."""
        ask = asks[LEAK_STATE]
        thermal = ask.at(link_path(document.get("ThermalSubsystem")))
        detection = link_path(thermal.get("LeakDetection"))
        leaks = ask.at(detection)
        detectors = [path for each in (document, leaks) for path in ask.members(link_path(each.get("LeakDetectors")))]
        found.detectors.extend((chassis, path) for path in dict.fromkeys(detectors))
        if detection is not None and not detectors and any(True for _ in listed_detectors(leaks)):
            found.groups.append((chassis, detection))
        connectors = asks[SUPPLY].members(link_path(thermal.get("CoolantConnectors")))
        found.connectors.extend((chassis, path) for path in connectors)
        fans = asks[FAN_STATE].members(link_path(thermal.get("Fans")))
        found.fans.extend((chassis, path) for path in fans)
        metrics, older = link_path(thermal.get("ThermalMetrics")), link_path(document.get("Thermal"))
        if metrics is not None:
            found.metrics.append((chassis, metrics))
        if older is not None and not fans:
            found.thermals.append((chassis, older))


def _problems_of(asks: _Asks) -> list[tuple[Metric, str]]:
    return [(row, problem) for row, ask in asks.items() for problem in ask.problems]


def _calls_of(asks: _Asks) -> int:
    return sum(ask.calls for ask in asks.values())


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
            gaps = [
                Gap(row, Node(), Reason.MALFORMED, f"the coolant connector {at.name} of {at.chassis} has no values")
                for row, at, _ in self._series
                if at in seen.silent
            ]
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

    def _shown_once(self) -> list[Metric]:
        """Return the rows that are missing now: those that there have been, or else the leak detectors."""
        seen = {metric for metric, _, _ in self._series if metric not in (LEAK_STATE, FAN_STATE)}
        return [row for row in ROWS if row in seen] or [LEAK_STATE]

    def _of(self, row: Metric, place: CoolingComponent, state: str = "") -> Series:
        series = self._series.get((row, place, state))
        if series is None:
            own = (_OWN_LABELS.get(row, "connector"), place.name)
            more = (("state", state),) if state else ()
            series = self._series[row, place, state] = Series(row, Node(), (("chassis", place.chassis), own, *more))
        return series
