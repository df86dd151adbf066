"""Power shelves and rack PDUs, as their Redfish services tell them: load, lines, feeds and what is redundant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.equipment.plant import OK, Plant
from tests.power.conftest import Controller

POWER = "/redfish/v1/PowerEquipment"
SHELVES, PDUS = f"{POWER}/PowerShelves", f"{POWER}/RackPDUs"
BAD = {"Status": {"State": "Enabled", "Health": "Critical"}}


@pytest.fixture
def shelf(controller: Controller) -> Iterator[Plant]:
    """A service with a shelf and a PDU that have nothing yet."""
    made = Plant(controller)
    documents = controller.documents
    documents["/redfish/v1/"]["PowerEquipment"] = {"@odata.id": POWER}
    documents[POWER] = {"PowerShelves": {"@odata.id": SHELVES}, "RackPDUs": {"@odata.id": PDUS}}
    documents[SHELVES] = {"Members": [{"@odata.id": f"{SHELVES}/1"}]}
    documents[PDUS] = {"Members": [{"@odata.id": f"{PDUS}/2"}]}
    documents[f"{SHELVES}/1"] = {"@odata.id": f"{SHELVES}/1", **OK}
    documents[f"{PDUS}/2"] = {"@odata.id": f"{PDUS}/2", **OK}
    yield made
    made.backend.close()


def give(plant: Plant, unit: str, member: str, documents: dict[str, Any]) -> None:
    """Give a unit a collection of these documents."""
    path = f"{unit}/{member}"
    plant.controller.documents[unit][member] = {"@odata.id": path}
    plant.controller.documents[path] = {"Members": [{"@odata.id": f"{path}/{name}"} for name in documents]}
    plant.controller.documents.update({f"{path}/{name}": document for name, document in documents.items()})


def test_load_lines_and_supplies_are_shown_in_base_units(shelf: Plant) -> None:
    documents = shelf.controller.documents
    documents[f"{SHELVES}/1"]["Metrics"] = {"@odata.id": f"{SHELVES}/1/Metrics"}
    documents[f"{SHELVES}/1/Metrics"] = {"PowerWatts": {"Reading": 24_500, "ApparentVA": 25_000}}
    measured = f"{SHELVES}/1/PowerSupplies/A/Metrics"
    supply = {**OK, "PowerCapacityWatts": 5500, "Metrics": {"@odata.id": measured}}
    give(shelf, f"{SHELVES}/1", "PowerSupplies", {"A": supply})
    documents[measured] = {"OutputPowerWatts": {"Reading": 4100}}
    lines = {"Line1": {"Reading": 31}, "Line2": {"Reading": 32}, "Line3": {"Reading": 33}, "Neutral": {"Reading": 1}}
    mains = {**OK, "Voltage": {"Reading": 415}, "PowerWatts": {"Reading": 12_000}, "RatedCurrentAmps": 60}
    give(shelf, f"{PDUS}/2", "Mains", {"AC1": {**mains, "PolyPhaseCurrentAmps": lines}})
    give(shelf, f"{PDUS}/2", "Branches", {"A": {**OK, "CurrentAmps": {"Reading": 9.5}, "BreakerState": "Normal"}})
    give(shelf, f"{PDUS}/2", "Outlets", {str(number): OK for number in range(48)})
    assert shelf.states() == {
        "1 power-shelf 1": "ok", "1 power-supply A": "ok",
        "2 rack-pdu 2": "ok", "2 mains AC1": "ok", "2 branch A": "ok",
    }  # fmt: skip
    assert shelf.values() == {
        "equipment_up": 1, "distribution_power_watts 1": 24_500,
        "supply_power_watts 1 A": 4100, "supply_rated_watts 1 A": 5500,
        "circuit_power_watts 2 mains AC1": 12_000, "circuit_rated_amperes 2 mains AC1": 60,
        "circuit_current_amperes 2 mains AC1 1": 31, "circuit_current_amperes 2 mains AC1 2": 32,
        "circuit_current_amperes 2 mains AC1 3": 33, "circuit_current_amperes 2 branch A": 9.5,
    }  # fmt: skip
    assert not any("Outlets" in path for path in shelf.controller.asked)


def test_supplies_are_found_in_the_chassis_as_well(shelf: Plant) -> None:
    documents = shelf.controller.documents
    chassis = "/redfish/v1/Chassis/Shelf"
    documents[f"{SHELVES}/1"]["Links"] = {"Chassis": [{"@odata.id": chassis}]}
    documents[chassis] = {"PowerSubsystem": {"@odata.id": f"{chassis}/PowerSubsystem"}}
    documents[f"{chassis}/PowerSubsystem"] = {"PowerSupplyRedundancy": [{"GroupName": "N+N", **BAD}]}
    give(shelf, f"{chassis}/PowerSubsystem", "PowerSupplies", {"Bay1": OK, "Bay2": BAD})
    states = shelf.states()
    assert (states["1 power-supply Bay1"], states["1 power-supply Bay2"]) == ("ok", "critical")
    assert states["1 power-supply-redundancy N+N"] == "critical"


def chassis_with_supplies(plant: Plant, name: str, **supplies: Any) -> None:
    """A chassis that the service's root leads to, with a PowerSubsystem that lists supplies."""
    root = "/redfish/v1/Chassis"
    documents = plant.controller.documents
    documents["/redfish/v1/"]["Chassis"] = {"@odata.id": root}
    documents.setdefault(root, {"Members": []})["Members"].append({"@odata.id": f"{root}/{name}"})
    documents[f"{root}/{name}"] = {**OK, "PowerSubsystem": {"@odata.id": f"{root}/{name}/PowerSubsystem"}}
    documents[f"{root}/{name}/PowerSubsystem"] = {}
    give(plant, f"{root}/{name}/PowerSubsystem", "PowerSupplies", supplies)


def test_a_shelf_that_is_a_chassis_alone_is_found(shelf: Plant) -> None:
    documents = shelf.controller.documents
    del documents["/redfish/v1/"]["PowerEquipment"]
    chassis_with_supplies(shelf, "powershelf", PSU0=OK, PSU1=BAD)
    chassis_with_supplies(shelf, "bmc")
    documents["/redfish/v1/Chassis/powershelf/PowerSubsystem"]["PowerSupplyRedundancy"] = [{"GroupName": "N+1", **OK}]
    assert shelf.states() == {
        "powershelf power-shelf powershelf": "ok", "powershelf power-supply PSU0": "ok",
        "powershelf power-supply PSU1": "critical", "powershelf power-supply-redundancy N+1": "ok",
    }  # fmt: skip


def test_supplies_in_a_chassis_belong_to_the_shelf_that_has_none(shelf: Plant) -> None:
    chassis_with_supplies(shelf, "Shelf", PSU0=OK)
    assert shelf.states() == {"1 power-shelf 1": "ok", "2 rack-pdu 2": "ok", "1 power-supply PSU0": "ok"}
    members = shelf.controller.documents[SHELVES]["Members"]
    members.append({"@odata.id": f"{SHELVES}/3"})
    shelf.controller.documents[f"{SHELVES}/3"] = OK
    chassis_with_supplies(shelf, "3", PSU0=BAD)
    states = shelf.states(700.0)
    assert states["3 power-shelf 3"] == states["Shelf power-shelf Shelf"] == "ok"
    assert (states["3 power-supply PSU0"], states["Shelf power-supply PSU0"]) == ("critical", "ok")


def test_supplies_that_a_shelf_links_are_found_once_and_those_of_a_cooling_unit_are_none_of_a_shelf(
    shelf: Plant,
) -> None:
    chassis_with_supplies(shelf, "Shelf", PSU0=OK)
    path = "/redfish/v1/Chassis/Shelf"
    shelf.controller.documents[f"{SHELVES}/1"]["Links"] = {"Chassis": [{"@odata.id": path}]}
    assert [key for key in shelf.states() if "power-supply" in key] == ["1 power-supply PSU0"]
    del shelf.controller.documents["/redfish/v1/"]["PowerEquipment"]
    shelf.unit("cdu")
    states = shelf.states(700.0)
    assert states["cdu unit cdu"] == "ok"
    assert states["1 power-supply PSU0"] == "unavailable", "it is not listed any more"
    assert "Shelf power-shelf Shelf" not in states


@pytest.mark.parametrize(
    ("status", "said"), [("Disabled", "ok"), ("StandbyOffline", "ok"), ("UnavailableOffline", "unavailable")]
)
def test_a_supply_that_is_off_and_well_is_a_spare(shelf: Plant, status: str, said: str) -> None:
    give(shelf, f"{SHELVES}/1", "PowerSupplies", {"A": {"Status": {"State": status, "Health": "OK"}}})
    assert shelf.states()["1 power-supply A"] == said


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({**OK, "Voltage": {"Reading": 0.4}}, "critical"),
        ({**OK, "Voltage": {"Reading": 54}}, "ok"),
        ({**OK, "Voltage": {"Reading": -48}}, "ok"),
        ({**OK, "Voltage": {"Reading": None}}, "ok"),
        ({**OK, "BreakerState": "Tripped"}, "critical"),
        ({**OK, "BreakerState": ["Tripped"]}, "ok"),
        ({"Status": {"Health": "OK"}}, "ok"),
        ({"Voltage": {"Reading": 230}}, None),
        (b"{", "unavailable"),
    ],
)
def test_a_feed_is_lost_when_its_voltage_or_its_breaker_says_so(shelf: Plant, document: Any, said: str | None) -> None:
    give(shelf, f"{SHELVES}/1", "Mains", {"A": document, "B": OK})
    states = shelf.states()
    assert states.get("1 mains A") == said
    assert states["1 mains B"] == "ok"


@pytest.mark.parametrize(
    ("line", "said"), [("Normal", "ok"), ("LossOfInput", "critical"), ("OutOfRange", "warning"), (5, "ok")]
)
def test_a_supply_without_input_fails(shelf: Plant, line: Any, said: str) -> None:
    give(shelf, f"{SHELVES}/1", "PowerSupplies", {"A": {**OK, "LineInputStatus": line}})
    assert shelf.states()["1 power-supply A"] == said


def test_what_a_unit_says_of_its_redundancy_is_shown(shelf: Plant) -> None:
    document = shelf.controller.documents[f"{SHELVES}/1"]
    document["MainsRedundancy"] = {"RedundancyType": "Sharing", "Status": {"State": "Degraded"}}
    document["PowerSupplyRedundancy"] = {"RedundancyType": "NPlusM", **OK}
    states = shelf.states()
    assert (states["1 mains-redundancy 1"], states["1 power-supply-redundancy 1"]) == ("warning", "ok")
