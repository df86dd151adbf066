"""Where the parts of a rack's equipment are in a Redfish service, and what the resources of these say.

Cooling is in DMTF's schemas CoolingUnit and what it links to (DSP8010). A reservoir and pumping unit (RPU) is one
without a heat exchanger, and has the same parts. Power shelves and rack PDUs are in PowerDistribution, Circuit,
PowerSupply and their metrics. Outlets are not read: a PDU has dozens, and each is a resource.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from math import log
from typing import Any, NamedTuple

from msgspec import Struct

from agent.backends.equipment.equipment_resources import (
    HEALTHS,
    UNAVAILABLE,
    listed_detectors,
    parse_leak_state,
    parse_status,
    redundancies,
    resource_id,
    scaled,
    worst_state,
)
from agent.backends.redfish_service import RedfishPoll, as_list, as_number, link_path
from agent.catalogue import rack as rows
from agent.model import Labels, Metric

Document = dict[str, Any]


class EquipmentPart(Struct, frozen=True):
    """A part of a unit: the unit's Id, what kind of part it is, and its own name."""

    unit: str
    kind: str
    name: str


class PartResource(NamedTuple):
    """A document that is read each round, and the part that it is about."""

    part: EquipmentPart
    path: str


class ResourceValues(Struct, frozen=True):
    """What a document says: states of parts, and values with the labels that follow those of the unit."""

    states: Iterable[tuple[EquipmentPart, str | None]] = ()
    values: Iterable[tuple[Metric, Labels, float | None]] = ()


class EquipmentPollResult(Struct, frozen=True):
    """Result of one poll: states by part, values by row and labels, and problems of single resources."""

    states: dict[EquipmentPart, str]
    values: dict[tuple[Metric, Labels], float]
    problems: tuple[str, ...]
    calls: int


COOLING_COLLECTIONS = ("CDUs", "RPUs")
"""Members of ThermalEquipment that are collections of units which pump coolant."""
_PARTS = (
    ("Pumps", "pump"),
    ("Reservoirs", "reservoir"),
    ("Filters", "filter"),
    ("PrimaryCoolantConnectors", "primary"),
    ("SecondaryCoolantConnectors", "secondary"),
)
"""Members of a unit that are collections, and what their members are."""
_REDUNDANCIES = {
    "PumpRedundancy": "pump-redundancy",
    "FilterRedundancy": "filter-redundancy",
    "MainsRedundancy": "mains-redundancy",
    "PowerSupplyRedundancy": "power-supply-redundancy",
}
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


def cooling_documents_of(path: str, ask: RedfishPoll) -> Iterator[PartResource]:
    """Yield the documents of the unit at `path`: its own, and those of its parts. Raises DeviceError."""
    unit = resource_id(path)
    document = ask.at(path)
    yield PartResource(EquipmentPart(unit, "unit", unit), path)
    for member, kind in _PARTS:
        for each in ask.members(link_path(document.get(member))):
            yield PartResource(EquipmentPart(unit, kind, resource_id(each)), each)
    detection = link_path(document.get("LeakDetection"))
    if detection is not None:
        detectors = ask.members(link_path(ask.at(detection).get("LeakDetectors")))
        for each in detectors:
            yield PartResource(EquipmentPart(unit, "leak-detector", resource_id(each)), each)
        if not detectors:
            yield PartResource(EquipmentPart(unit, "leak-detectors", "groups"), detection)
    environment = link_path(document.get("EnvironmentMetrics"))
    if environment is not None:
        yield PartResource(EquipmentPart(unit, "environment", "air"), environment)


def _of_cooling_unit(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    groups = _groups(part, document, "PumpRedundancy", "FilterRedundancy")
    return ResourceValues([(part, state), *groups])


def _of_connector(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    """Count a connector's state as well: one that fails has no values, and must not be taken for an idle one."""
    labels = (("loop", part.kind), ("connector", part.name))
    resource = document if state != UNAVAILABLE else {}
    found = ((row, labels, scaled(resource.get(member), factor)) for member, row, factor in _CONNECTOR)
    return ResourceValues([(EquipmentPart(part.unit, f"{part.kind}-connector", part.name), state)], found)


def _of_pump(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    speed = scaled(document.get("PumpSpeedPercent"), 0.01)
    return ResourceValues([(part, state)], [(rows.PUMP_SPEED, _named(part), speed)])


def _of_reservoir(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    """Judge a reservoir by its level as the unit judges it, and by its Status."""
    said, level = document.get("FluidLevelStatus"), scaled(document.get("FluidLevelPercent"), 0.01)
    level_state = None if said is None else HEALTHS.get(str(said), UNAVAILABLE)
    return ResourceValues([(part, worst_state(state, level_state))], [(rows.RESERVOIR, _named(part), level)])


def _of_filter(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    served, rated = as_number(document.get("ServiceHours")), as_number(document.get("RatedServiceHours"))
    life = served / rated if served is not None and rated is not None and rated > 0 else None
    pressure = scaled(document.get("DeltaLiquidPressurekPa"), 1e3)
    values = [(rows.FILTER_PRESSURE, _named(part), pressure), (rows.FILTER_LIFE, _named(part), life)]
    return ResourceValues([(part, state)], values)


def _of_detector(part: EquipmentPart, document: Document, _: str | None) -> ResourceValues:
    return ResourceValues([(part, parse_leak_state(document))])


def _of_detector_groups(part: EquipmentPart, document: Document, _: str | None) -> ResourceValues:
    """Detectors that the unit lists within one document; if it cannot be read, those known stay unavailable."""
    listed = listed_detectors(document)
    return ResourceValues(
        [(EquipmentPart(part.unit, "leak-detector", name), parse_leak_state(each)) for name, each in listed]
    )


def _of_environment(_: EquipmentPart, document: Document, _state: str | None) -> ResourceValues:
    air = as_number(document.get("TemperatureCelsius"))
    if air is None:
        air = as_number(document.get("AmbientTemperatureCelsius"))
    humidity, dew = scaled(document.get("HumidityPercent"), 0.01), as_number(document.get("DewPointCelsius"))
    if dew is None:
        dew = dew_point(air, humidity)
    return ResourceValues((), [(rows.AIR, (), air), (rows.HUMIDITY, (), humidity), (rows.DEW_POINT, (), dew)])


def dew_point(air: float | None, humidity: float | None) -> float | None:
    """Return the dew point in °C, of air at °C and relative humidity 0 to 1; None where the formula does not hold."""
    if air is None or humidity is None or not -45 <= air <= 60 or not 0 < humidity <= 1:
        return None
    slope, base = _MAGNUS
    gamma = log(humidity) + slope * air / (base + air)
    return base * gamma / (slope - gamma)


def _named(part: EquipmentPart) -> Labels:
    return (("part", part.name),)


POWER_SHELF = "power-shelf"
POWER_COLLECTIONS = (("PowerShelves", POWER_SHELF), ("RackPDUs", "rack-pdu"))
"""Members of PowerEquipment that are collections of units, and what these are."""
DEAD_VOLTS = 20.0
"""Volts below which an input is dead: the lowest that equipment of a rack is fed with is 48 V."""
_BREAKERS = {"Normal": "ok", "Tripped": "critical"}
_INPUTS = {"LossOfInput": "critical", "OutOfRange": "warning"}
_LINES = ("Line1", "Line2", "Line3")


def power_documents_of(path: str, kind: str, ask: RedfishPoll) -> Iterator[PartResource]:
    """Yield the documents of the unit at `path`, its supplies among them. Raises DeviceError.

    A unit lists its power supplies itself, or in the PowerSubsystem of the chassis that it links to, or that it is.
    """
    unit = resource_id(path)
    document = ask.at(path)
    yield PartResource(EquipmentPart(unit, kind, unit), path)
    metrics = link_path(document.get("Metrics"))
    if metrics is not None:
        yield PartResource(EquipmentPart(unit, "distribution-metrics", unit), metrics)
    for member, circuit in (("Mains", "mains"), ("Branches", "branch")):
        for each in ask.members(link_path(document.get(member))):
            yield PartResource(EquipmentPart(unit, circuit, resource_id(each)), each)
    yield from _supplies_of(unit, document, ask)


def chassis_documents_of(
    chassis: str | None, bare: Sequence[str], known: Collection[str], ask: RedfishPoll
) -> Iterator[PartResource]:
    """Yield the documents of power supplies in the chassis of this collection, of which nothing is `known`.

    They belong to the shelf without supplies (`bare`) that has the chassis's Id, or that is the only one; else the
    chassis is a power shelf itself. Raises DeviceError.
    """
    for path in ask.members(chassis):
        name = resource_id(path)
        unit = bare[0] if len(bare) == 1 else name
        found = list(_supplies_of(unit, ask.at(path), ask))
        if any(each.part.kind == "power-supply" for each in found) and not any(each.path in known for each in found):
            if unit not in bare:
                yield PartResource(EquipmentPart(unit, POWER_SHELF, unit), path)
            yield from found


def _supplies_of(unit: str, document: Document, ask: RedfishPoll) -> Iterator[PartResource]:
    supplies = link_path(document.get("PowerSupplies"))
    if supplies is None:
        subsystem = _subsystem_of(document, ask)
        if subsystem is not None:
            yield PartResource(EquipmentPart(unit, "power-subsystem", unit), subsystem)
            supplies = link_path(ask.at(subsystem).get("PowerSupplies"))
    for each in ask.members(supplies):
        name = resource_id(each)
        yield PartResource(EquipmentPart(unit, "power-supply", name), each)
        measured = link_path(ask.at(each).get("Metrics"))
        if measured is not None:
            yield PartResource(EquipmentPart(unit, "power-supply-metrics", name), measured)


def _subsystem_of(document: Document, ask: RedfishPoll) -> str | None:
    """Return the PowerSubsystem of a unit that is a chassis, or else of the first chassis that it links to."""
    own = link_path(document.get("PowerSubsystem"))
    if own is not None:
        return own
    links = document.get("Links")
    chassis = map(link_path, as_list(links.get("Chassis")) if isinstance(links, dict) else [])
    return link_path(ask.at(next(chassis, None)).get("PowerSubsystem"))


def _of_power_unit(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    groups = _groups(part, document, "MainsRedundancy", "PowerSupplyRedundancy")
    return ResourceValues([(part, state), *groups])


def _of_subsystem(part: EquipmentPart, document: Document, _: str | None) -> ResourceValues:
    return ResourceValues(_groups(part, document, "PowerSupplyRedundancy"))


def _groups(part: EquipmentPart, document: Document, *members: str) -> list[tuple[EquipmentPart, str | None]]:
    return [
        (EquipmentPart(part.unit, _REDUNDANCIES[member], name), state)
        for member in members
        for name, state in redundancies(document, member)
    ]


def _of_distribution(_: EquipmentPart, document: Document, _state: str | None) -> ResourceValues:
    return ResourceValues((), [(rows.DISTRIBUTION_POWER, (), as_number(document.get("PowerWatts")))])


def _of_circuit(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    """Judge an input dead where its voltage says so, whatever its health; a branch, where its breaker does."""
    volts = as_number(document.get("Voltage"))
    dead = "critical" if part.kind == "mains" and volts is not None and abs(volts) < DEAD_VOLTS else None
    breaker = _BREAKERS.get(str(document.get("BreakerState")))
    labels = (("circuit", part.kind), ("part", part.name))
    power = (rows.CIRCUIT_POWER, labels, as_number(document.get("PowerWatts")))
    return ResourceValues([(part, worst_state(state, dead, breaker))], [power, *_currents(labels, document)])


def _currents(labels: Labels, resource: Document) -> Iterator[tuple[Metric, Labels, float | None]]:
    """Yield the current of each line of a circuit of several, or its one current, and what it is rated for."""
    lines = resource.get("PolyPhaseCurrentAmps")
    found = {line: as_number(lines.get(line)) for line in _LINES} if isinstance(lines, dict) else {}
    if not any(value is not None for value in found.values()):
        yield rows.CIRCUIT_CURRENT, labels, as_number(resource.get("CurrentAmps"))
    for line, amperes in found.items():
        yield rows.CIRCUIT_CURRENT, (*labels, ("line", line.removeprefix("Line"))), amperes
    yield rows.CIRCUIT_RATING, labels, as_number(resource.get("RatedCurrentAmps"))


def _of_supply(part: EquipmentPart, document: Document, state: str | None) -> ResourceValues:
    """Return a supply whose input is lost fails, even if it is in order itself (PowerSupply.LineInputStatus)."""
    fed = _INPUTS.get(str(document.get("LineInputStatus")))
    capacity = as_number(document.get("PowerCapacityWatts"))
    return ResourceValues([(part, worst_state(state, fed))], [(rows.SUPPLY_RATING, _named(part), capacity)])


def _of_supply_metrics(part: EquipmentPart, document: Document, _: str | None) -> ResourceValues:
    watts = as_number(document.get("OutputPowerWatts"))
    return ResourceValues((), [(rows.SUPPLY_POWER, _named(part), watts)])


READERS: dict[str, Callable[[EquipmentPart, Document, str | None], ResourceValues]] = {
    "unit": _of_cooling_unit,
    "pump": _of_pump,
    "reservoir": _of_reservoir,
    "filter": _of_filter,
    "primary": _of_connector,
    "secondary": _of_connector,
    "leak-detector": _of_detector,
    "leak-detectors": _of_detector_groups,
    "environment": _of_environment,
    POWER_SHELF: _of_power_unit,
    "rack-pdu": _of_power_unit,
    "distribution-metrics": _of_distribution,
    "mains": _of_circuit,
    "branch": _of_circuit,
    "power-subsystem": _of_subsystem,
    "power-supply": _of_supply,
    "power-supply-metrics": _of_supply_metrics,
}
"""What reads the document of each kind of part; it also gets the state by the document's Status."""
_SPARES = frozenset({"pump", "filter", "power-supply"})
"""Kinds of parts that are well where they are off and in good health."""


def read_part(part: EquipmentPart, document: Document | None) -> ResourceValues:
    """Return what the document of a part says; None is a document that could not be read."""
    state = parse_status(document, spare=part.kind in _SPARES)
    return READERS[part.kind](part, document or {}, state)
