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
    CoolingPart,
    FanReading,
    connector_values,
    fan_of,
    intake_of,
    last_of,
    leak_state,
    listed_detectors,
    listed_fans,
    listed_intakes,
)
from agent.backends.protocol import AbsentError
from agent.backends.redfish_service import CHASSIS, DENIED_RETRY_SECONDS, RedfishRound, RedfishService, link, log_new
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
_Asks = Mapping[Metric, RedfishRound]


class Cooling(NamedTuple):
    """What was read at one time. `calls` counts the documents that were asked for; `silent` connectors say nothing.

    `problems` are what was wrong with single documents, with the row that is missing for each.
    """

    leaks: dict[CoolingPart, str]
    fans: dict[CoolingPart, FanReading]
    intakes: dict[CoolingPart, float]
    connectors: dict[CoolingPart, dict[Metric, float]]
    silent: frozenset[CoolingPart]
    problems: tuple[tuple[Metric, str], ...]
    calls: int


class _Found(NamedTuple):
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


class CoolingWatch:
    """One service. Asked in a thread, with at most one question at a time."""

    name = "equipment"
    period = 15.0
    configured = True
    denied_retry = DENIED_RETRY_SECONDS
    slow = True
    grace = 0.0
    patience = 60.0

    def __init__(self, target: HttpTarget, chassis: str | None, clock: Callable[[], float]) -> None:
        """Only what is in `chassis`, if it is given. `clock` gives monotonic seconds."""
        self._service = RedfishService(target, 10.0, clock)
        self._chassis = chassis
        self._clock = clock
        self._found: _Found | None = None
        self._searched_at = 0.0
        self._problems: list[tuple[Metric, str]] = []
        self._logged: Collection[str] = ()
        self.known: dict[CoolingPart, str] = {}
        """Every detector that ever was there, with what it said last."""
        self.known_fans: dict[CoolingPart, FanReading] = {}
        """The same of fans."""

    def look(self) -> Cooling:
        """All parts, as they are now. Raises AbsentError if there are none, and DeviceError."""
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
        intakes: dict[CoolingPart, float] = {}
        self._read_air(self._found, asks[FAN_STATE], fans, intakes)
        self._read_metrics(self._found, asks[INTAKE], intakes)
        self.known_fans = fans
        connectors = dict(self._connectors(self._found, asks[SUPPLY]))
        silent = frozenset(place for place, values in connectors.items() if not values)
        problems = tuple(dict.fromkeys((*self._problems, *_problems_of(asks))))
        log_new((each for _, each in problems), self._logged)
        self._logged = {each for _, each in problems}
        return Cooling(dict(leaks), dict(fans), intakes, connectors, silent, problems, calls + _calls_of(asks))

    def close(self) -> None:
        self._service.close()

    def _asks(self) -> _Asks:
        return {row: RedfishRound(self._service, self._clock, linked=False) for row in _ASKED}

    @staticmethod
    def _leaks(found: _Found, ask: RedfishRound) -> Iterator[tuple[CoolingPart, str]]:
        for chassis, path in found.detectors:
            state = leak_state(ask.at(path))
            if state is not None:
                yield CoolingPart(chassis, last_of(path)[:LONGEST_NAME]), state
        for chassis, path in found.groups:
            for name, document in listed_detectors(ask.at(path)):
                state = leak_state(document)
                if state is not None:
                    yield CoolingPart(chassis, name), state

    @staticmethod
    def _read_air(
        found: _Found, ask: RedfishRound, fans: dict[CoolingPart, FanReading], intakes: dict[CoolingPart, float]
    ) -> None:
        """Note what fans say, and with them the intakes of older controllers."""
        for chassis, path in found.fans:
            fan = fan_of(ask.at(path))
            if fan is not None:
                fans[CoolingPart(chassis, last_of(path)[:LONGEST_NAME])] = fan
        for chassis, path in found.thermals:
            document = ask.at(path)
            fans.update((CoolingPart(chassis, name), fan) for name, fan in listed_fans(document))
            intakes.update((CoolingPart(chassis, name), value) for name, value in listed_intakes(document))

    @staticmethod
    def _read_metrics(found: _Found, ask: RedfishRound, intakes: dict[CoolingPart, float]) -> None:
        for chassis, path in found.metrics:
            value = intake_of(ask.at(path))
            if value is not None:
                intakes[CoolingPart(chassis, "intake")] = value

    @staticmethod
    def _connectors(found: _Found, ask: RedfishRound) -> Iterator[tuple[CoolingPart, dict[Metric, float]]]:
        for chassis, path in found.connectors:
            yield CoolingPart(chassis, last_of(path)[:LONGEST_NAME]), connector_values(ask.at(path))

    def _search(self, asks: _Asks) -> _Found:
        """Follow the links from every chassis."""
        found = _Found([], [], [], [], [], [])
        ask = asks[LEAK_STATE]
        if self._chassis is None:
            paths = ask.members_in(CHASSIS, ask.examined(CHASSIS, self._service.get(CHASSIS)))
        else:
            paths = [f"{CHASSIS}/{quote(self._chassis, '')}"]
        for path in paths:
            document = ask.at(path)
            if found.parts < MOST_PARTS:
                self._search_in(last_of(path)[:LONGEST_NAME], document, found, asks)
        for each in found:
            del each[MOST_PARTS:]
        return found

    @staticmethod
    def _search_in(chassis: str, document: dict[str, Any], found: _Found, asks: _Asks) -> None:
        """Those of one chassis, which lists its detectors itself (since 2023) or in its ThermalSubsystem, or both."""
        ask = asks[LEAK_STATE]
        thermal = ask.at(link(document.get("ThermalSubsystem")))
        detection = link(thermal.get("LeakDetection"))
        leaks = ask.at(detection)
        detectors = [
            *ask.members(link(document.get("LeakDetectors"))),
            *ask.members(link(leaks.get("LeakDetectors"))),
        ]
        found.detectors.extend((chassis, path) for path in dict.fromkeys(detectors))
        if detection is not None and not detectors and any(True for _ in listed_detectors(leaks)):
            found.groups.append((chassis, detection))
        found.connectors.extend(
            (chassis, path) for path in asks[SUPPLY].members(link(thermal.get("CoolantConnectors")))
        )
        fans = asks[FAN_STATE].members(link(thermal.get("Fans")))
        found.fans.extend((chassis, path) for path in fans)
        metrics, older = link(thermal.get("ThermalMetrics")), link(document.get("Thermal"))
        if metrics is not None:
            found.metrics.append((chassis, metrics))
        if older is not None and not fans:
            found.thermals.append((chassis, older))


def _problems_of(asks: _Asks) -> list[tuple[Metric, str]]:
    return [(row, problem) for row, ask in asks.items() for problem in ask.problems]


def _calls_of(asks: _Asks) -> int:
    return sum(ask.calls for ask in asks.values())
