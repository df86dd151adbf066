"""Finds what cools a node in its controller's Redfish service, and reads it: leak detectors, coolant, fans, intake.

They are found by links alone: ids and depths differ between makers. Where they are is looked up again from time to
time. A detector or a fan that was there once stays known: if the controller does not list it any more, or it cannot be
read, it is unavailable, and never dry or well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from agent.backends.equipment.equipment_resources import (
    BLIND_FAN,
    LONGEST_NAME,
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
from agent.backends.protocol import AbsentError
from agent.backends.redfish_service import (
    CHASSIS,
    RedfishPoll,
    RedfishReader,
    RedfishService,
    link_path,
    log_new,
)
from agent.catalogue.equipment import FAN_STATE, INTAKE, LEAKS, SUPPLY
from agent.lib.http_target import HttpTarget
from agent.model import Metric

(LEAK_STATE,) = LEAKS
SEARCH_SECONDS = 600.0
"""Seconds after which the service is searched again: for what was added, and where nothing was found."""
MOST_PARTS = 128
"""Documents of parts of a node that are read: a controller takes up to 300 ms for each."""


_ASKED = (LEAK_STATE, FAN_STATE, INTAKE, SUPPLY)
"""A row of each kind of part, which is missing where a document of the kind cannot be understood."""
_Asks = Mapping[Metric, RedfishPoll]


class NodeCoolingReadings(NamedTuple):
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
        """How many documents are to be read."""
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
        self._logged: Collection[str] = ()
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
        self._read_air(self._found, asks[FAN_STATE], fans, intakes)
        self._read_metrics(self._found, asks[INTAKE], intakes)
        self.known_fans = fans
        connectors = dict(self._connectors(self._found, asks[SUPPLY]))
        silent = frozenset(place for place, values in connectors.items() if not values)
        problems = tuple(dict.fromkeys((*self._problems, *_problems_of(asks))))
        log_new((each for _, each in problems), self._logged)
        self._logged = {each for _, each in problems}
        return NodeCoolingReadings(
            dict(leaks), dict(fans), intakes, connectors, silent, problems, calls + _calls_of(asks)
        )

    def close(self) -> None:
        self._service.close()

    def _asks(self) -> _Asks:
        return {row: RedfishPoll(self._service, self._clock, linked=False) for row in _ASKED}

    @staticmethod
    def _leaks(found: _ResourcePaths, ask: RedfishPoll) -> Iterator[tuple[CoolingComponent, str]]:
        for chassis, path in found.detectors:
            state = parse_leak_state(ask.at(path))
            if state is not None:
                yield CoolingComponent(chassis, resource_id(path)[:LONGEST_NAME]), state
        for chassis, path in found.groups:
            for name, document in listed_detectors(ask.at(path)):
                state = parse_leak_state(document)
                if state is not None:
                    yield CoolingComponent(chassis, name), state

    @staticmethod
    def _read_air(
        found: _ResourcePaths,
        ask: RedfishPoll,
        fans: dict[CoolingComponent, FanReading],
        intakes: dict[CoolingComponent, float],
    ) -> None:
        """Note what fans say, and with them the intakes of older controllers."""
        for chassis, path in found.fans:
            fan = parse_fan(ask.at(path))
            if fan is not None:
                fans[CoolingComponent(chassis, resource_id(path)[:LONGEST_NAME])] = fan
        for chassis, path in found.thermals:
            document = ask.at(path)
            fans.update((CoolingComponent(chassis, name), fan) for name, fan in parse_fan_list(document))
            intakes.update((CoolingComponent(chassis, name), value) for name, value in parse_intake_sensors(document))

    @staticmethod
    def _read_metrics(found: _ResourcePaths, ask: RedfishPoll, intakes: dict[CoolingComponent, float]) -> None:
        for chassis, path in found.metrics:
            value = parse_intake_temperature(ask.at(path))
            if value is not None:
                intakes[CoolingComponent(chassis, "intake")] = value

    @staticmethod
    def _connectors(found: _ResourcePaths, ask: RedfishPoll) -> Iterator[tuple[CoolingComponent, dict[Metric, float]]]:
        for chassis, path in found.connectors:
            yield CoolingComponent(chassis, resource_id(path)[:LONGEST_NAME]), parse_connector(ask.at(path))

    def _search(self, asks: _Asks) -> _ResourcePaths:
        """Follow the links from every chassis."""
        found = _ResourcePaths([], [], [], [], [], [])
        ask = asks[LEAK_STATE]
        if self._chassis is None:
            paths = ask.members_in(CHASSIS, ask.examined(CHASSIS, self._service.get(CHASSIS)))
        else:
            paths = [f"{CHASSIS}/{quote(self._chassis, '')}"]
        for path in paths:
            document = ask.at(path)
            if found.parts < MOST_PARTS:
                self._search_in(resource_id(path)[:LONGEST_NAME], document, found, asks)
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
        detectors = [
            *ask.members(link_path(document.get("LeakDetectors"))),
            *ask.members(link_path(leaks.get("LeakDetectors"))),
        ]
        found.detectors.extend((chassis, path) for path in dict.fromkeys(detectors))
        if detection is not None and not detectors and any(True for _ in listed_detectors(leaks)):
            found.groups.append((chassis, detection))
        found.connectors.extend(
            (chassis, path) for path in asks[SUPPLY].members(link_path(thermal.get("CoolantConnectors")))
        )
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
