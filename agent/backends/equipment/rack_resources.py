"""Where the parts of a rack's equipment are in a Redfish service, and what the resources of these say.

Cooling is in DMTF's schemas CoolingUnit and what it links to (DSP8010). A reservoir and pumping unit (RPU) is one
without a heat exchanger, and has the same parts. Power shelves and rack PDUs are in PowerDistribution, Circuit,
PowerSupply and their metrics. Outlets are not read: a PDU has dozens, and each is a resource.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from math import log
from typing import NamedTuple

from agent.backends.equipment.equipment_backend import Document, PartDocument
from agent.backends.equipment.equipment_resources import (
    HEALTHS,
    UNAVAILABLE,
    PartValue,
    listed_detectors,
    parse_leak_state,
    parse_status,
    redundancies,
    scaled,
    worst_state,
)
from agent.backends.redfish_service import RedfishPoll, as_number, link_path, link_paths, resource_id
from agent.catalogue import rack as rows


class EquipmentPart(NamedTuple):
    """What kind of part of a unit it is, and its own name."""

    kind: str
    name: str


ReadPart = Callable[[EquipmentPart, Document, str | None], Iterator[PartValue]]
"""Yields what the document of a part says; it also gets the state by the document's Status. None is left out."""


def _resource(unit: str, kind: str, name: str, path: str, read: ReadPart) -> PartDocument:
    return PartDocument(path, rows.PART, unit, partial(_values, EquipmentPart(kind, name), read), kind)


def _values(part: EquipmentPart, read: ReadPart, document: Document | None) -> Iterator[PartValue]:
    """Yield what the document says; None is a document that could not be read."""
    state = parse_status(document, spare=part.kind in _SPARES)
    return (v for v in read(part, document or {}, state) if v[2] is not None)


def _state(kind: str, name: str, state: str | None) -> PartValue:
    return rows.PART, (kind, name), state


COOLING_COLLECTIONS = ("CDUs", "RPUs")
"""Members of ThermalEquipment that are collections of units which pump coolant."""
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


def _of_cooling_unit(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    yield _state(*part, state)
    yield from _groups(document, "PumpRedundancy", "FilterRedundancy")


def _of_connector(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    """Count a connector's state as well: one that fails has no values, and must not be taken for an idle one."""
    yield _state(f"{part.kind}-connector", part.name, state)
    for member, row, factor in _CONNECTOR if state != UNAVAILABLE else ():
        yield (row, part, scaled(document.get(member), factor))


def _of_pump(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    yield _state(*part, state)
    yield rows.PUMP_SPEED, (part.name,), scaled(document.get("PumpSpeedPercent"), 0.01)


def _of_reservoir(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    """Judge a reservoir by its level as the unit judges it, and by its Status."""
    fluid_level = document.get("FluidLevelStatus")
    level_state = None if fluid_level is None else HEALTHS.get(str(fluid_level), UNAVAILABLE)
    yield _state(*part, worst_state(state, level_state))
    yield rows.RESERVOIR, (part.name,), scaled(document.get("FluidLevelPercent"), 0.01)


def _of_filter(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    served, rated = as_number(document.get("ServiceHours")), as_number(document.get("RatedServiceHours"))
    life = served / rated if served is not None and rated is not None and rated > 0 else None
    yield _state(*part, state)
    yield rows.FILTER_PRESSURE, (part.name,), scaled(document.get("DeltaLiquidPressurekPa"), 1e3)
    yield rows.FILTER_LIFE, (part.name,), life


def _of_detector(part: EquipmentPart, document: Document, _: str | None) -> Iterator[PartValue]:
    yield _state(*part, parse_leak_state(document))


def _of_detector_groups(_: EquipmentPart, document: Document, _state_of_document: str | None) -> Iterator[PartValue]:
    """Yield the detectors listed within one document; if it cannot be read, those known stay unavailable."""
    for name, detector in listed_detectors(document):
        yield _state("leak-detector", name, parse_leak_state(detector))


def _of_environment(_: EquipmentPart, document: Document, _state_of_document: str | None) -> Iterator[PartValue]:
    air = as_number(document.get("TemperatureCelsius"))
    if air is None:
        air = as_number(document.get("AmbientTemperatureCelsius"))
    humidity, dew = scaled(document.get("HumidityPercent"), 0.01), as_number(document.get("DewPointCelsius"))
    yield rows.AIR, (), air
    yield rows.HUMIDITY, (), humidity
    yield rows.DEW_POINT, (), dew_point(air, humidity) if dew is None else dew


_PARTS: tuple[tuple[str, str, ReadPart], ...] = (
    ("Pumps", "pump", _of_pump),
    ("Reservoirs", "reservoir", _of_reservoir),
    ("Filters", "filter", _of_filter),
    ("PrimaryCoolantConnectors", "primary", _of_connector),
    ("SecondaryCoolantConnectors", "secondary", _of_connector),
)
"""Members of a unit that are collections, and what their members are."""


def cooling_documents_of(path: str, poll: RedfishPoll) -> Iterator[PartDocument]:
    """Yield the documents of the unit at `path`: its own, and those of its parts. Raises DeviceError."""
    unit = resource_id(path)
    document = poll.at(path)
    yield _resource(unit, "unit", unit, path, _of_cooling_unit)
    for member, kind, read in _PARTS:
        for resource in poll.members(link_path(document.get(member))):
            yield _resource(unit, kind, resource_id(resource), resource, read)
    detection = link_path(document.get("LeakDetection"))
    if detection is not None:
        detectors = poll.members(link_path(poll.at(detection).get("LeakDetectors")))
        for detector in detectors:
            yield _resource(unit, "leak-detector", resource_id(detector), detector, _of_detector)
        if not detectors:
            yield _resource(unit, "leak-detectors", "groups", detection, _of_detector_groups)
    environment = link_path(document.get("EnvironmentMetrics"))
    if environment is not None:
        yield _resource(unit, "environment", "air", environment, _of_environment)


def dew_point(air: float | None, humidity: float | None) -> float | None:
    """Return the dew point in °C, of air at °C and relative humidity 0 to 1; None where the formula does not hold."""
    if air is None or humidity is None or not -45 <= air <= 60 or not 0 < humidity <= 1:
        return None
    slope, base = _MAGNUS
    gamma = log(humidity) + slope * air / (base + air)
    return base * gamma / (slope - gamma)


POWER_SHELF = "power-shelf"
POWER_COLLECTIONS = (("PowerShelves", POWER_SHELF), ("RackPDUs", "rack-pdu"))
"""Members of PowerEquipment that are collections of units, and what these are."""
DEAD_VOLTS = 20.0
"""Volts below which an input is dead: the lowest that equipment of a rack is fed with is 48 V."""
_BREAKERS = {"Normal": "ok", "Tripped": "critical"}
_INPUTS = {"LossOfInput": "critical", "OutOfRange": "warning"}
_LINES = ("Line1", "Line2", "Line3")


def power_documents_of(path: str, kind: str, poll: RedfishPoll) -> Iterator[PartDocument]:
    """Yield the documents of the unit at `path`, its supplies among them. Raises DeviceError.

    A unit lists its power supplies itself, or in the PowerSubsystem of the chassis that it links to, or that it is.
    """
    unit = resource_id(path)
    document = poll.at(path)
    yield _resource(unit, kind, unit, path, _of_power_unit)
    metrics = link_path(document.get("Metrics"))
    if metrics is not None:
        yield _resource(unit, "distribution-metrics", unit, metrics, _of_distribution)
    for member, circuit in (("Mains", "mains"), ("Branches", "branch")):
        for resource in poll.members(link_path(document.get(member))):
            yield _resource(unit, circuit, resource_id(resource), resource, _of_circuit)
    yield from _supplies_of(unit, document, poll)


def chassis_documents_of(
    chassis: str | None, bare: Sequence[str], known_paths: Collection[str], poll: RedfishPoll
) -> Iterator[PartDocument]:
    """Yield the documents of power supplies in the chassis of this collection that have none of `known_paths`.

    They belong to the shelf without supplies (`bare`) that has the chassis's Id, or that is the only one; else the
    chassis is a power shelf itself. Raises DeviceError.
    """
    for path in poll.members(chassis):
        name = resource_id(path)
        unit = bare[0] if len(bare) == 1 else name
        supplies = list(_supplies_of(unit, poll.at(path), poll))
        if any(s.kind == "power-supply" for s in supplies) and not any(s.path in known_paths for s in supplies):
            if unit not in bare:
                yield _resource(unit, POWER_SHELF, unit, path, _of_power_unit)
            yield from supplies


def _supplies_of(unit: str, document: Document, poll: RedfishPoll) -> Iterator[PartDocument]:
    supplies = link_path(document.get("PowerSupplies"))
    if supplies is None:
        subsystem = _subsystem_of(document, poll)
        if subsystem is not None:
            yield _resource(unit, "power-subsystem", unit, subsystem, _of_subsystem)
            supplies = link_path(poll.at(subsystem).get("PowerSupplies"))
    for supply in poll.members(supplies):
        name = resource_id(supply)
        yield _resource(unit, "power-supply", name, supply, _of_supply)
        measured = link_path(poll.at(supply).get("Metrics"))
        if measured is not None:
            yield _resource(unit, "power-supply-metrics", name, measured, _of_supply_metrics)


def _subsystem_of(document: Document, poll: RedfishPoll) -> str | None:
    """Return the PowerSubsystem of a unit that is a chassis, or else of the first chassis that it links to."""
    own = link_path(document.get("PowerSubsystem"))
    if own is not None:
        return own
    links = document.get("Links")
    chassis = link_paths(links.get("Chassis")) if isinstance(links, dict) else []
    return link_path(poll.at(chassis[0] if chassis else None).get("PowerSubsystem"))


def _of_power_unit(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    yield _state(*part, state)
    yield from _groups(document, "MainsRedundancy", "PowerSupplyRedundancy")


def _of_subsystem(_: EquipmentPart, document: Document, _state_of_document: str | None) -> Iterator[PartValue]:
    return _groups(document, "PowerSupplyRedundancy")


def _groups(document: Document, *members: str) -> Iterator[PartValue]:
    for member in members:
        for name, state in redundancies(document, member):
            yield _state(_REDUNDANCIES[member], name, state)


def _of_distribution(_: EquipmentPart, document: Document, _state_of_document: str | None) -> Iterator[PartValue]:
    yield rows.DISTRIBUTION_POWER, (), as_number(document.get("PowerWatts"))


def _of_circuit(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    """Judge an input dead where its voltage says so, whatever its health; a branch, where its breaker does."""
    volts = as_number(document.get("Voltage"))
    dead = "critical" if part.kind == "mains" and volts is not None and abs(volts) < DEAD_VOLTS else None
    breaker = _BREAKERS.get(str(document.get("BreakerState")))
    yield _state(*part, worst_state(state, dead, breaker))
    yield rows.CIRCUIT_POWER, part, as_number(document.get("PowerWatts"))
    # The current of each line of a circuit of several, or its one current.
    lines = document.get("PolyPhaseCurrentAmps")
    amperes_by_line = {line: as_number(lines.get(line)) for line in _LINES} if isinstance(lines, dict) else {}
    if not any(value is not None for value in amperes_by_line.values()):
        yield rows.CIRCUIT_CURRENT, part, as_number(document.get("CurrentAmps"))
    for line, amperes in amperes_by_line.items():
        yield rows.CIRCUIT_CURRENT, (*part, line.removeprefix("Line")), amperes
    yield rows.CIRCUIT_RATING, part, as_number(document.get("RatedCurrentAmps"))


def _of_supply(part: EquipmentPart, document: Document, state: str | None) -> Iterator[PartValue]:
    """Judge a supply whose input is lost as failed, even if it is in order itself (PowerSupply.LineInputStatus)."""
    yield _state(*part, worst_state(state, _INPUTS.get(str(document.get("LineInputStatus")))))
    yield rows.SUPPLY_RATING, (part.name,), as_number(document.get("PowerCapacityWatts"))


def _of_supply_metrics(part: EquipmentPart, document: Document, _: str | None) -> Iterator[PartValue]:
    yield rows.SUPPLY_POWER, (part.name,), as_number(document.get("OutputPowerWatts"))


_SPARES = frozenset({"pump", "filter", "power-supply"})
"""Kinds of parts that are well where they are off and in good health."""
