"""Coolant distribution units in a Redfish service: where their parts are, and what the documents of these say.

The documents are those of DMTF's schemas CoolingUnit and what it links to (DSP8010). A reservoir and pumping unit (RPU)
is one without a heat exchanger, and has the same parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log
from typing import Any

from agent.backends.equipment.cooling_documents import LONGEST_NAME, last_of, listed_detectors
from agent.backends.equipment.part_states import detector_state, level_state, part_state, redundancies
from agent.backends.equipment.rack_findings import PartDocument, RackPart, Told
from agent.backends.equipment.redfish_round import RedfishRound
from agent.backends.redfish_service import link, number
from agent.catalogue import rack_parts as rows
from agent.model import Labels

COLLECTIONS = ("CDUs", "RPUs")
"""Members of ThermalEquipment that are collections of units which pump coolant."""
_PARTS = (
    ("Pumps", "pump"),
    ("Reservoirs", "reservoir"),
    ("Filters", "filter"),
    ("PrimaryCoolantConnectors", "primary"),
    ("SecondaryCoolantConnectors", "secondary"),
)
"""Members of a unit that are collections, and what their members are."""
_REDUNDANCIES = (("PumpRedundancy", "pump-redundancy"), ("FilterRedundancy", "filter-redundancy"))
_CONNECTOR = (
    # (member, row, what one of its unit is in the row's)
    ("SupplyTemperatureCelsius", rows.SUPPLY, 1.0),
    ("ReturnTemperatureCelsius", rows.RETURN, 1.0),
    ("FlowLitersPerMinute", rows.FLOW, 1 / 60),
    ("RatedFlowLitersPerMinute", rows.RATED_FLOW, 1 / 60),
    ("HeatRemovedkW", rows.HEAT, 1e3),
    ("SupplyPressurekPa", rows.SUPPLY_PRESSURE, 1e3),
    ("ReturnPressurekPa", rows.RETURN_PRESSURE, 1e3),
    ("DeltaPressurekPa", rows.DELTA_PRESSURE, 1e3),
)
_MAGNUS = (17.62, 243.12)
"""Constants of the Magnus formula over water, -45 to 60 °C (Sonntag 1990)."""


def cooling_documents_of(path: str, ask: RedfishRound) -> Iterator[PartDocument]:
    """The documents of the unit at `path`: its own, and those of its parts. Raises DeviceError."""
    unit = last_of(path)[:LONGEST_NAME]
    document = ask.at(path)
    yield PartDocument(RackPart(unit, "unit", unit), path)
    for member, kind in _PARTS:
        for each in ask.members(link(document.get(member))):
            yield PartDocument(RackPart(unit, kind, last_of(each)[:LONGEST_NAME]), each)
    detection = link(document.get("LeakDetection"))
    if detection is not None:
        detectors = ask.members(link(ask.at(detection).get("LeakDetectors")))
        for each in detectors:
            yield PartDocument(RackPart(unit, "leak-detector", last_of(each)[:LONGEST_NAME]), each)
        if not detectors:
            yield PartDocument(RackPart(unit, "leak-detectors", "groups"), detection)
    environment = link(document.get("EnvironmentMetrics"))
    if environment is not None:
        yield PartDocument(RackPart(unit, "environment", "air"), environment)


def _of_unit(part: RackPart, document: dict[str, Any] | None) -> Told:
    states = [(part, part_state(document))]
    for member, kind in _REDUNDANCIES:
        found = redundancies(document or {}, member)
        states += [(RackPart(part.unit, kind, name), state) for name, state in found]
    return Told(states)


def _of_connector(part: RackPart, document: dict[str, Any] | None) -> Told:
    """A connector's state counts as well: one that fails has no values, and must not be taken for an idle one."""
    state = part_state(document)
    kind = f"{part.kind}-connector"
    labels = (("loop", part.kind), ("connector", part.name))
    told = document if document is not None and state in ("ok", "warning", "critical", None) else {}
    found = ((row, labels, _scaled(told.get(member), factor)) for member, row, factor in _CONNECTOR)
    return Told([(RackPart(part.unit, kind, part.name), state)], found)


def _of_pump(part: RackPart, document: dict[str, Any] | None) -> Told:
    speed = _scaled((document or {}).get("PumpSpeedPercent"), 0.01)
    return Told([(part, part_state(document, spare=True))], [(rows.PUMP_SPEED, _named(part), speed)])


def _of_reservoir(part: RackPart, document: dict[str, Any] | None) -> Told:
    level = _scaled((document or {}).get("FluidLevelPercent"), 0.01)
    return Told([(part, level_state(document))], [(rows.RESERVOIR, _named(part), level)])


def _of_filter(part: RackPart, document: dict[str, Any] | None) -> Told:
    told = document or {}
    served, rated = number(told.get("ServiceHours")), number(told.get("RatedServiceHours"))
    life = served / rated if served is not None and rated is not None and rated > 0 else None
    return Told(
        [(part, part_state(document, spare=True))],
        [
            (rows.FILTER_PRESSURE, _named(part), _scaled(told.get("DeltaLiquidPressurekPa"), 1e3)),
            (rows.FILTER_LIFE, _named(part), life),
        ],
    )


def _of_detector(part: RackPart, document: dict[str, Any] | None) -> Told:
    return Told([(part, detector_state(document))])


def _of_detector_groups(part: RackPart, document: dict[str, Any] | None) -> Told:
    """Detectors that the unit lists within one document; if it cannot be read, those known stay unavailable."""
    listed = listed_detectors(document or {})
    return Told([(RackPart(part.unit, "leak-detector", name), detector_state(each)) for name, each in listed])


def _of_environment(_: RackPart, document: dict[str, Any] | None) -> Told:
    told = document or {}
    air = number(told.get("TemperatureCelsius"))
    if air is None:
        air = number(told.get("AmbientTemperatureCelsius"))
    humidity, dew = _scaled(told.get("HumidityPercent"), 0.01), number(told.get("DewPointCelsius"))
    if dew is None:
        dew = dew_point(air, humidity)
    return Told((), [(rows.AIR, (), air), (rows.HUMIDITY, (), humidity), (rows.DEW_POINT, (), dew)])


READERS: dict[str, Callable[[RackPart, dict[str, Any] | None], Told]] = {
    "unit": _of_unit,
    "pump": _of_pump,
    "reservoir": _of_reservoir,
    "filter": _of_filter,
    "primary": _of_connector,
    "secondary": _of_connector,
    "leak-detector": _of_detector,
    "leak-detectors": _of_detector_groups,
    "environment": _of_environment,
}
"""What reads the document of each kind of part; it gets None for a document that could not be read."""


def dew_point(air: float | None, humidity: float | None) -> float | None:
    """The dew point in °C, of air at °C and relative humidity from 0 to 1; None where the formula does not hold."""
    if air is None or humidity is None or not -45 <= air <= 60 or not 0 < humidity <= 1:
        return None
    slope, base = _MAGNUS
    gamma = log(humidity) + slope * air / (base + air)
    return base * gamma / (slope - gamma)


def _scaled(value: Any, factor: float) -> float | None:
    found = number(value)
    return None if found is None else found * factor


def _named(part: RackPart) -> Labels:
    return (("part", part.name),)
