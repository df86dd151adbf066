"""Finds what cools a node in its controller's Redfish service, and reads it: leak detectors, coolant, fans, intake.

They are found by links alone: ids and depths differ between makers. Where they are is looked up again from time to
time. A detector or a fan that was there once stays known: if the controller does not list it any more, or it cannot be
read, it is unavailable, and never dry or well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

from agent.backends.equipment import air_documents, cooling_documents
from agent.backends.equipment.air_documents import FanReading
from agent.backends.equipment.cooling_documents import UNAVAILABLE, CoolingPart
from agent.backends.protocol import AbsentError
from agent.backends.redfish_service import CHASSIS, DENIED_RETRY_SECONDS, RedfishService, link, members_of
from agent.lib.http_target import HttpTarget
from agent.model import Metric

SEARCH_SECONDS = 600.0
"""Seconds after which the service is searched again: for what was added, and where nothing was found."""
MOST_PARTS = 128
"""Documents of parts of a node that are read: a controller takes up to 300 ms for each."""


BLIND_FAN = FanReading(UNAVAILABLE, {})
"""What is said of a fan that cannot be read."""


class Cooling(NamedTuple):
    """What was read at one time. `calls` counts the documents that were asked for; `silent` connectors say nothing."""

    leaks: dict[CoolingPart, str]
    fans: dict[CoolingPart, FanReading]
    intakes: dict[CoolingPart, float]
    connectors: dict[CoolingPart, dict[Metric, float]]
    silent: frozenset[CoolingPart]
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
        self.known: dict[CoolingPart, str] = {}
        """Every detector that ever was there, with what it said last."""
        self.known_fans: dict[CoolingPart, FanReading] = {}
        """The same of fans."""

    def look(self) -> Cooling:
        """All parts, as they are now. Raises AbsentError if there are none, and DeviceError."""
        now = self._clock()
        calls = 0
        if self._found is None or now - self._searched_at >= SEARCH_SECONDS:
            self._found, calls = self._search()
            self._searched_at = now
        if not self._found.parts and not self.known and not self.known_fans:
            raise AbsentError("the management controller lists neither leak detectors, coolant connectors nor fans")
        leaks = dict.fromkeys(self.known, UNAVAILABLE)
        leaks.update(self._leaks(self._found))
        self.known = leaks
        fans = dict.fromkeys(self.known_fans, BLIND_FAN)
        intakes: dict[CoolingPart, float] = {}
        self._read_air(self._found, fans, intakes)
        self.known_fans = fans
        connectors = dict(self._connectors(self._found))
        silent = frozenset(place for place, values in connectors.items() if not values)
        return Cooling(dict(leaks), dict(fans), intakes, connectors, silent, calls + self._found.parts)

    def close(self) -> None:
        self._service.close()

    def _leaks(self, found: _Found) -> Iterator[tuple[CoolingPart, str]]:
        for chassis, path in found.detectors:
            document = self._service.attempt(path)
            state = cooling_documents.leak_state(document)
            if state is not None:
                yield CoolingPart(chassis, cooling_documents.last_of(path)[: cooling_documents.LONGEST_NAME]), state
        for chassis, path in found.groups:
            for name, document in cooling_documents.listed_detectors(self._service.attempt(path)):
                state = cooling_documents.leak_state(document)
                if state is not None:
                    yield CoolingPart(chassis, name), state

    def _read_air(self, found: _Found, fans: dict[CoolingPart, FanReading], intakes: dict[CoolingPart, float]) -> None:
        """Note what fans and the intakes of chassis say."""
        for chassis, path in found.fans:
            fan = air_documents.fan_of(self._service.attempt(path))
            if fan is not None:
                fans[CoolingPart(chassis, cooling_documents.last_of(path)[: cooling_documents.LONGEST_NAME])] = fan
        for chassis, path in found.metrics:
            value = air_documents.intake_of(self._service.attempt(path))
            if value is not None:
                intakes[CoolingPart(chassis, "intake")] = value
        for chassis, path in found.thermals:
            document = self._service.attempt(path)
            fans.update((CoolingPart(chassis, name), fan) for name, fan in air_documents.listed_fans(document))
            listed = air_documents.listed_intakes(document)
            intakes.update((CoolingPart(chassis, name), value) for name, value in listed)

    def _connectors(self, found: _Found) -> Iterator[tuple[CoolingPart, dict[Metric, float]]]:
        for chassis, path in found.connectors:
            values = cooling_documents.connector_values(self._service.attempt(path))
            yield CoolingPart(chassis, cooling_documents.last_of(path)[: cooling_documents.LONGEST_NAME]), values

    def _search(self) -> tuple[_Found, int]:
        """Follow the links from every chassis; also how many documents that took."""
        found = _Found([], [], [], [], [], [])
        calls = 1
        paths = self._service.members(CHASSIS) if self._chassis is None else [f"{CHASSIS}/{quote(self._chassis, '')}"]
        for path in paths:
            document = self._service.attempt(path)
            calls += 1
            if found.parts < MOST_PARTS:
                calls += self._search_in(cooling_documents.last_of(path), document, found)
        for each in found:
            del each[MOST_PARTS:]
        return found, calls

    def _search_in(self, chassis: str, document: dict[str, Any], found: _Found) -> int:
        """Those of one chassis, which lists its detectors itself (since 2023) or in its ThermalSubsystem, or both."""
        chassis = chassis[: cooling_documents.LONGEST_NAME]
        thermal = self._at(link(document.get("ThermalSubsystem")))
        detection = link(thermal.get("LeakDetection"))
        leaks = self._at(detection)
        detectors = [
            *self._members(link(document.get("LeakDetectors"))),
            *self._members(link(leaks.get("LeakDetectors"))),
        ]
        found.detectors.extend((chassis, path) for path in dict.fromkeys(detectors))
        if detection is not None and not detectors and any(True for _ in cooling_documents.listed_detectors(leaks)):
            found.groups.append((chassis, detection))
        connectors = self._members(link(thermal.get("CoolantConnectors")))
        found.connectors.extend((chassis, path) for path in connectors)
        fans = self._members(link(thermal.get("Fans")))
        found.fans.extend((chassis, path) for path in fans)
        metrics, older = link(thermal.get("ThermalMetrics")), link(document.get("Thermal"))
        if metrics is not None:
            found.metrics.append((chassis, metrics))
        if older is not None and not fans:
            found.thermals.append((chassis, older))
        return sum(map(bool, (thermal, leaks, detectors, connectors, fans)))

    def _at(self, path: str | None) -> dict[str, Any]:
        """The document at a link; an empty one where there is none."""
        return self._service.attempt(path) if path is not None else {}

    def _members(self, collection: str | None) -> list[str]:
        """Those of a collection; none where it is not there."""
        return members_of(self._at(collection))
