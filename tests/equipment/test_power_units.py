"""Power shelves and rack PDUs, as their Redfish services tell them: load, lines, feeds and what is redundant."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.equipment.conftest import BASE, OK, Cooled, Plant
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
    controller.collection(SHELVES, {"1": {"@odata.id": f"{SHELVES}/1", **OK}})
    controller.collection(PDUS, {"2": {"@odata.id": f"{PDUS}/2", **OK}})
    yield made
    made.backend.close()


def give(plant: Plant, unit: str, member: str, documents: dict[str, Any]) -> None:
    """Give a unit a collection of these documents."""
    plant.controller.documents[unit][member] = plant.controller.collection(f"{unit}/{member}", documents)


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
        "1 power-shelf 1": "ok",
        "1 power-supply A": "ok",
        "2 rack-pdu 2": "ok",
        "2 mains AC1": "ok",
        "2 branch A": "ok",
    }
    assert shelf.values() == {
        "equipment_up": 1,
        "distribution_power_watts 1": 24_500,
        "supply_power_watts 1 A": 4100,
        "supply_rated_watts 1 A": 5500,
        "circuit_power_watts 2 mains AC1": 12_000,
        "circuit_rated_amperes 2 mains AC1": 60,
        "circuit_current_amperes 2 mains AC1 1": 31,
        "circuit_current_amperes 2 mains AC1 2": 32,
        "circuit_current_amperes 2 mains AC1 3": 33,
        "circuit_current_amperes 2 branch A": 9.5,
    }
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
        "powershelf power-shelf powershelf": "ok",
        "powershelf power-supply PSU0": "ok",
        "powershelf power-supply PSU1": "critical",
        "powershelf power-supply-redundancy N+1": "ok",
    }


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


def test_linked_supplies_are_found_once_and_a_cooling_units_are_not_a_shelfs(shelf: Plant) -> None:
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
    ("document", "said"),
    [
        ({"Status": {"State": "Disabled", "Health": "OK"}}, "ok"),  # a spare
        ({"Status": {"State": "StandbyOffline", "Health": "OK"}}, "ok"),
        ({"Status": {"State": "UnavailableOffline", "Health": "OK"}}, "unavailable"),
        ({**OK, "LineInputStatus": "Normal"}, "ok"),
        ({**OK, "LineInputStatus": "LossOfInput"}, "critical"),
        ({**OK, "LineInputStatus": "OutOfRange"}, "warning"),
        ({**OK, "LineInputStatus": 5}, "ok"),
    ],
)
def test_a_supply_that_is_off_and_well_is_a_spare_and_one_without_input_fails(
    shelf: Plant, document: Any, said: str
) -> None:
    give(shelf, f"{SHELVES}/1", "PowerSupplies", {"A": document})
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


def test_what_a_unit_says_of_its_redundancy_is_shown(shelf: Plant) -> None:
    document = shelf.controller.documents[f"{SHELVES}/1"]
    document["MainsRedundancy"] = {"RedundancyType": "Sharing", "Status": {"State": "Degraded"}}
    document["PowerSupplyRedundancy"] = {"RedundancyType": "NPlusM", **OK}
    states = shelf.states()
    assert (states["1 mains-redundancy 1"], states["1 power-supply-redundancy 1"]) == ("warning", "ok")


# Fans and the intake of a node, in both shapes in which controllers tell of them; what is blind is never well.
Make = Callable[..., Cooled]
WELL = {"State": "Enabled", "Health": "OK"}


def fan(percent: Any = 55, rpm: Any = 12_000, **status: Any) -> dict[str, Any]:
    return {"Id": "x", "SpeedPercent": {"Reading": percent, "SpeedRPM": rpm}, "Status": {**WELL, **status}}


def newer(node: Cooled, chassis: str = "c", intake: Any = 27.5, **fans: Any) -> None:
    """A chassis whose fans are documents of their own."""
    below = f"{BASE}/{chassis}/ThermalSubsystem"
    metrics = f"{below}/ThermalMetrics"
    node.controller.documents[metrics] = {"TemperatureSummaryCelsius": {"Intake": {"Reading": intake}}}
    listed = node.controller.collection(f"{below}/Fans", fans)
    node.serve(chassis, Fans=listed, ThermalMetrics={"@odata.id": metrics})


def older(node: Cooled, chassis: str = "c", **thermal: Any) -> None:
    """A chassis with the one document that lists everything."""
    node.serve(chassis)
    node.controller.documents[f"{BASE}/{chassis}"]["Thermal"] = {"@odata.id": f"{BASE}/{chassis}/Thermal"}
    node.controller.documents[f"{BASE}/{chassis}/Thermal"] = thermal


def shown(node: Cooled) -> dict[str, float]:
    """All values of a read; of states those that are 1."""
    found = {}
    for each in node.read().readings:
        labels = dict(each.labels)
        name = each.metric.name.removeprefix("coldplate_chassis_")
        part = labels.get("fan") or labels.get("sensor", "")
        if "state" not in labels:
            found[f"{name} {part}"] = each.value
        elif each.value == 1:
            found[f"{part} {labels['state']}"] = each.value
    return found


def test_fans_of_their_own_and_the_summed_up_intake_come_before_the_older_document(cooled: Make) -> None:
    node = cooled()
    newer(node, Fan1=fan(), Fan2=fan(100, 18_000, Health="Warning"))
    node.controller.documents[f"{BASE}/c"]["Thermal"] = {"@odata.id": f"{BASE}/c/Thermal"}
    node.controller.documents[f"{BASE}/c/Thermal"] = {"Fans": [{"Name": "Fan1", "Status": WELL}]}
    assert shown(node) == {
        "Fan1 ok": 1,
        "Fan2 warning": 1,
        "fan_speed_ratio Fan1": 0.55,
        "fan_speed_ratio Fan2": 1.0,
        "fan_rotation_hertz Fan1": 200.0,
        "fan_rotation_hertz Fan2": 300.0,
        "intake_temperature_celsius intake": 27.5,
    }
    assert f"{BASE}/c/Thermal" not in node.controller.asked


def test_the_older_document_with_fans_in_turns_or_percent_and_a_sensor_at_the_intake(cooled: Make) -> None:
    node = cooled()
    older(
        node,
        Fans=[
            {"Name": "FAN A", "Reading": 9000, "ReadingUnits": "RPM", "Status": WELL},
            {"FanName": "FAN B", "Reading": 40, "ReadingUnits": "Percent", "Status": {**WELL, "Health": "Critical"}},
            {"Name": "bay 3", "Status": {"State": "Absent"}},
            "no fan",
        ],
        Temperatures=[
            {"Name": "Inlet Temp", "PhysicalContext": "Intake", "ReadingCelsius": 24, "Status": WELL},
            {"Name": "CPU", "PhysicalContext": "CPU", "ReadingCelsius": 60, "Status": WELL},
            {"Name": "blind", "PhysicalContext": "Intake", "ReadingCelsius": 0, "Status": {"State": "Disabled"}},
            {"Name": "silent", "PhysicalContext": "Intake", "ReadingCelsius": None, "Status": WELL},
        ],
    )
    assert shown(node) == {
        "FAN A ok": 1,
        "FAN B critical": 1,
        "fan_rotation_hertz FAN A": 150.0,
        "fan_speed_ratio FAN B": 0.4,
        "intake_temperature_celsius Inlet Temp": 24,
    }


@pytest.mark.parametrize(
    "status", [{"State": "Disabled"}, {"State": "UnavailableOffline"}, {"Health": "Fine"}, {"State": 7}]
)
def test_a_fan_that_is_not_known_to_work_is_unavailable_and_its_speed_is_nothing(cooled: Make, status: Any) -> None:
    node = cooled()
    newer(node, intake=None, Fan1=fan(0, 0, **status))
    assert shown(node) == {"Fan1 unavailable": 1}


def test_readings_need_no_health(cooled: Make) -> None:
    node = cooled()
    older(
        node,
        Fans=[
            {"Name": "A", "Reading": 9000, "ReadingUnits": "RPM", "Status": {"State": "Enabled"}},
            {"Name": "B", "Reading": 6000, "ReadingUnits": "RPM"},
            {"Name": "C", "Reading": 6000, "ReadingUnits": "RPM", "Status": []},
            {"Name": "D"},
        ],
        Temperatures=[
            {"Name": "Inlet", "PhysicalContext": "Intake", "ReadingCelsius": 27, "Status": {"State": "Enabled"}},
            {"Name": "Bare", "PhysicalContext": "Intake", "ReadingCelsius": 28},
            {"Name": "Bad", "PhysicalContext": "Intake", "ReadingCelsius": 29, "Status": {"Health": "Critical"}},
            {"Name": "Off", "PhysicalContext": "Intake", "ReadingCelsius": 30, "Status": {"State": "Disabled"}},
        ],
    )
    assert shown(node) == {
        "A ok": 1,
        "C unavailable": 1,
        "D unavailable": 1,
        "fan_rotation_hertz A": 150,
        "fan_rotation_hertz B": 100,
        "intake_temperature_celsius Inlet": 27,
        "intake_temperature_celsius Bare": 28,
        "intake_temperature_celsius Bad": 29,
    }
    ((gap, text),) = [(gap.metric.name, gap.detail) for gap in node.read().gaps]
    assert gap == "coldplate_chassis_fan_state"
    assert text.endswith("/Thermal: Fans[2]: Status is not an object")


@pytest.mark.parametrize("more", [{}, {"State": "Disabled"}])
def test_a_fan_that_stands_still_is_shown_as_such(cooled: Make, more: dict[str, str]) -> None:
    node = cooled()
    newer(node, intake=None, Fan1=fan(0, 0, Health="Critical", **more))
    assert shown(node) == {"Fan1 critical": 1, "fan_speed_ratio Fan1": 0, "fan_rotation_hertz Fan1": 0}


@pytest.mark.parametrize("answers", [True, False])
def test_one_sample_of_the_command_has_what_the_daemon_shows(cooled: Make, tmp_path: Path, answers: bool) -> None:
    node = cooled()
    newer(node, Fan1=fan())
    if not answers:
        node.controller.broken_for_good = True
    config = tmp_path / "coldplate.yaml"
    config.write_text(f"backends: {{power: [redfish], redfish: {{url: '{node.controller.url}'}}}}\n")
    ended = warm.command(["once", "--backend", "none", "--config.file", str(config)])
    assert ended.status == 0, ended.error
    lines = ended.output.decode().splitlines()
    assert ('coldplate_chassis_fan_state{chassis="c",fan="Fan1",state="ok"} 1' in lines) is answers
    assert ('coldplate_chassis_intake_temperature_celsius{chassis="c",sensor="intake"} 27.5' in lines) is answers
