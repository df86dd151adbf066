"""Power shelves and rack PDUs in a Redfish service: where their parts are, and what the documents of these say.

The documents are those of DMTF's schemas PowerDistribution, Circuit, PowerSupply and their metrics (DSP8010). Outlets
are not read: a PDU has dozens, and each is a document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from agent.backends.equipment.cooling_documents import LONGEST_NAME, last_of
from agent.backends.equipment.part_states import part_state, redundancies, worst
from agent.backends.equipment.rack_findings import PartDocument, RackPart, Told
from agent.backends.equipment.redfish_round import RedfishRound
from agent.backends.redfish_service import link, list_in, number
from agent.catalogue import rack_parts as rows
from agent.model import Labels, Metric

POWER_SHELF = "power-shelf"
COLLECTIONS = (("PowerShelves", POWER_SHELF), ("RackPDUs", "rack-pdu"))
"""Members of PowerEquipment that are collections of units, and what these are."""
DEAD_VOLTS = 20.0
"""Volts below which an input is dead: the lowest that equipment of a rack is fed with is 48 V."""
_BREAKERS = {"Normal": "ok", "Tripped": "critical"}
_INPUTS = {"LossOfInput": "critical", "OutOfRange": "warning"}
_LINES = ("Line1", "Line2", "Line3")


def power_documents_of(path: str, kind: str, ask: RedfishRound) -> Iterator[PartDocument]:
    """The documents of the unit at `path`, its supplies among them. Raises DeviceError.

    A unit lists its power supplies itself, or in the PowerSubsystem of the chassis that it links to, or that it is.
    """
    unit = last_of(path)[:LONGEST_NAME]
    document = ask.at(path)
    yield PartDocument(RackPart(unit, kind, unit), path)
    metrics = link(document.get("Metrics"))
    if metrics is not None:
        yield PartDocument(RackPart(unit, "distribution-metrics", unit), metrics)
    for member, circuit in (("Mains", "mains"), ("Branches", "branch")):
        for each in ask.members(link(document.get(member))):
            yield PartDocument(RackPart(unit, circuit, last_of(each)[:LONGEST_NAME]), each)
    yield from _supplies_of(unit, document, ask)


def chassis_documents_of(
    chassis: str | None, bare: Sequence[str], known: Collection[str], ask: RedfishRound
) -> Iterator[PartDocument]:
    """The documents of power supplies in the chassis of this collection, of which nothing is `known`.

    They belong to the shelf without supplies (`bare`) that has the chassis's Id, or that is the only one; else the
    chassis is a power shelf itself. Raises DeviceError.
    """
    for path in ask.members(chassis):
        name = last_of(path)[:LONGEST_NAME]
        unit = bare[0] if len(bare) == 1 else name
        found = list(_supplies_of(unit, ask.at(path), ask))
        if any(each.part.kind == "power-supply" for each in found) and not any(each.path in known for each in found):
            if unit not in bare:
                yield PartDocument(RackPart(unit, POWER_SHELF, unit), path)
            yield from found


def _supplies_of(unit: str, document: dict[str, Any], ask: RedfishRound) -> Iterator[PartDocument]:
    supplies = link(document.get("PowerSupplies"))
    if supplies is None:
        subsystem = _subsystem_of(document, ask)
        if subsystem is not None:
            yield PartDocument(RackPart(unit, "power-subsystem", unit), subsystem)
            supplies = link(ask.at(subsystem).get("PowerSupplies"))
    for each in ask.members(supplies):
        name = last_of(each)[:LONGEST_NAME]
        yield PartDocument(RackPart(unit, "power-supply", name), each)
        measured = link(ask.at(each).get("Metrics"))
        if measured is not None:
            yield PartDocument(RackPart(unit, "power-supply-metrics", name), measured)


def _subsystem_of(document: dict[str, Any], ask: RedfishRound) -> str | None:
    """The PowerSubsystem of a unit that is a chassis, or else of the first chassis that it links to."""
    own = link(document.get("PowerSubsystem"))
    if own is not None:
        return own
    links = document.get("Links")
    chassis = map(link, list_in(links.get("Chassis")) if isinstance(links, dict) else [])
    return link(ask.at(next(chassis, None)).get("PowerSubsystem"))


def _of_unit(part: RackPart, document: dict[str, Any] | None) -> Told:
    groups = _groups(part, document, ("MainsRedundancy", "PowerSupplyRedundancy"))
    return Told([(part, part_state(document)), *groups])


def _of_subsystem(part: RackPart, document: dict[str, Any] | None) -> Told:
    return Told(_groups(part, document, ("PowerSupplyRedundancy",)))


def _groups(
    part: RackPart, document: dict[str, Any] | None, members: tuple[str, ...]
) -> list[tuple[RackPart, str | None]]:
    kinds = {"MainsRedundancy": "mains-redundancy", "PowerSupplyRedundancy": "power-supply-redundancy"}
    return [
        (RackPart(part.unit, kinds[member], name), state)
        for member in members
        for name, state in redundancies(document or {}, member)
    ]


def _of_distribution(_: RackPart, document: dict[str, Any] | None) -> Told:
    return Told((), [(rows.POWER, (), number((document or {}).get("PowerWatts")))])


def _of_circuit(part: RackPart, document: dict[str, Any] | None) -> Told:
    """An input is dead where its voltage says so, whatever its health; a branch, where its breaker does."""
    told = document or {}
    volts = number(told.get("Voltage"))
    dead = "critical" if part.kind == "mains" and volts is not None and abs(volts) < DEAD_VOLTS else None
    breaker = told.get("BreakerState")
    state = worst(part_state(document), dead, _BREAKERS.get(breaker) if isinstance(breaker, str) else None)
    labels = (("circuit", part.kind), ("part", part.name))
    return Told(
        [(part, state)],
        [(rows.CIRCUIT_POWER, labels, number(told.get("PowerWatts"))), *_currents(labels, told)],
    )


def _currents(labels: Labels, told: dict[str, Any]) -> Iterator[tuple[Metric, Labels, float | None]]:
    """The current of each line of a circuit of several, or its one current, and what it is rated for."""
    lines = told.get("PolyPhaseCurrentAmps")
    found = {line: number(lines.get(line)) for line in _LINES} if isinstance(lines, dict) else {}
    if not any(value is not None for value in found.values()):
        yield rows.CIRCUIT_CURRENT, labels, number(told.get("CurrentAmps"))
    for line, amperes in found.items():
        yield rows.CIRCUIT_CURRENT, (*labels, ("line", line.removeprefix("Line"))), amperes
    yield rows.CIRCUIT_RATING, labels, number(told.get("RatedCurrentAmps"))


def _of_supply(part: RackPart, document: dict[str, Any] | None) -> Told:
    """A supply whose input is lost fails, even if it is in order itself (PowerSupply.LineInputStatus)."""
    told = document or {}
    line = told.get("LineInputStatus")
    fed = _INPUTS.get(line) if isinstance(line, str) else None
    capacity = number(told.get("PowerCapacityWatts"))
    return Told(
        [(part, worst(part_state(document, spare=True), fed))], [(rows.SUPPLY_RATING, (("part", part.name),), capacity)]
    )


def _of_supply_metrics(part: RackPart, document: dict[str, Any] | None) -> Told:
    watts = number((document or {}).get("OutputPowerWatts"))
    return Told((), [(rows.SUPPLY_POWER, (("part", part.name),), watts)])


READERS: dict[str, Callable[[RackPart, dict[str, Any] | None], Told]] = {
    POWER_SHELF: _of_unit,
    "rack-pdu": _of_unit,
    "distribution-metrics": _of_distribution,
    "mains": _of_circuit,
    "branch": _of_circuit,
    "power-subsystem": _of_subsystem,
    "power-supply": _of_supply,
    "power-supply-metrics": _of_supply_metrics,
}
"""What reads the document of each kind of part; it gets None for a document that could not be read."""
