"""Leak detectors and coolant as a management controller tells them: found by links, and never taken for dry."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.backends.protocol import AbsentError
from agent.model import Reason
from tests.equipment import mockups
from tests.equipment.conftest import BASE, Cooled, detector

Make = Callable[..., Cooled]

CONNECTOR = {
    "SupplyTemperatureCelsius": {"Reading": 31.5},
    "ReturnTemperatureCelsius": {"Reading": 41},
    "FlowLitersPerMinute": {"Reading": 90},
    "RatedFlowLitersPerMinute": 120,
    "HeatRemovedkW": {"Reading": 62.5},
    "DeltaPressurekPa": {"Reading": 80},
}


def test_detectors_and_connectors_are_found_by_links_and_shown_in_base_units(cooled: Make) -> None:
    node = cooled()
    node.serve(
        "Chassis_0",
        LeakDetection=node.leaks("Chassis_0", ColdPlate="OK", Manifold="Warning"),
        CoolantConnectors=node.connectors("Chassis_0", In=CONNECTOR),
    )
    node.serve("HGX_Chassis_0", LeakDetection=node.leaks("HGX_Chassis_0", Tray="Critical"))
    assert node.leak_states() == {
        "Chassis_0/ColdPlate": "ok",
        "Chassis_0/Manifold": "warning",
        "HGX_Chassis_0/Tray": "critical",
    }
    assert node.coolant() == {
        "supply_temperature_celsius In": 31.5,
        "return_temperature_celsius In": 41,
        "flow_liters_per_second In": 1.5,
        "rated_flow_liters_per_second In": 2.0,
        "heat_removed_watts In": 62_500,
        "delta_pressure_pascals In": 80_000,
    }
    asked = len(node.controller.asked)
    node.read()
    assert len(node.controller.asked) - asked == 4, "a round reads each part once, and does not search again"


def test_detectors_in_groups_are_found_and_have_a_series_for_every_state(cooled: Make) -> None:
    node = cooled()
    path = f"{BASE}/c/ThermalSubsystem/LeakDetection"
    detectors = [{"DeviceName": "Rope A", "DetectorState": "OK"}, {"DetectorState": "Critical"}, "no detector"]
    node.controller.documents[path] = {"LeakDetectorGroups": [{"GroupName": "Tray", "Detectors": detectors}, None]}
    node.serve("c", LeakDetection={"@odata.id": path})
    assert node.leak_states() == {"c/Rope A": "ok", "c/Tray-1": "critical"}
    states = [dict(each.labels)["state"] for each in node.read().readings]
    assert sorted(states) == sorted(2 * ["ok", "warning", "critical", "unavailable"])


def test_detectors_that_the_chassis_lists_itself_are_found_once(cooled: Make) -> None:
    node = cooled()
    link = node.leaks("c", A="OK")
    node.serve("c", LeakDetection=link)
    node.controller.documents[f"{BASE}/c"]["LeakDetectors"] = {"@odata.id": f"{link['@odata.id']}/LeakDetectors"}
    node.serve("cdu")
    own = node.controller.collection(f"{BASE}/cdu/LeakDetectors", {"Moisture": detector("Warning")})
    node.controller.documents[f"{BASE}/cdu"]["LeakDetectors"] = own
    assert node.leak_states() == {"c/A": "ok", "cdu/Moisture": "warning"}
    asked = len(node.controller.asked)
    node.read()
    assert len(node.controller.asked) - asked == 2


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (detector("OK", "Disabled"), "unavailable"),
        (detector("OK", "UnavailableOffline"), "unavailable"),
        (detector("Unavailable"), "unavailable"),
        (detector("Fine"), "unavailable"),
        (detector(None), "unavailable"),
        ({"DetectorState": 1}, "unavailable"),
        ({"Status": "OK"}, "unavailable"),
        ({"DetectorState": "OK", "Status": []}, "ok"),
        (detector("OK", "Absent"), None),
        (detector("Absent"), None),
    ],
)
def test_only_an_enabled_detector_that_says_so_is_dry(cooled: Make, document: dict[str, Any], said: str | None) -> None:
    node = cooled()
    node.serve("c", LeakDetection=node.leaks("c", D=document, Other="OK"))
    assert node.leak_states().get("c/D") == said


def test_a_detector_that_cannot_be_read_or_is_not_listed_any_more_is_unavailable(cooled: Make) -> None:
    node = cooled()
    node.serve("c", LeakDetection=node.leaks("c", A="OK", B="OK"), CoolantConnectors=node.connectors("c", In=CONNECTOR))
    assert node.leak_states() == {"c/A": "ok", "c/B": "ok"}
    node.controller.broken_for_good = True
    sample = node.read()
    assert node.leak_states(0.0) == {"c/A": "unavailable", "c/B": "unavailable"}
    assert "coldplate_coolant_flow_liters_per_second" in {gap.metric.name for gap in sample.gaps}
    assert {gap.reason for gap in sample.gaps} == {Reason.LOST}
    node.controller.broken_for_good = False
    path = f"{BASE}/c/ThermalSubsystem/LeakDetection/LeakDetectors"
    node.controller.documents[f"{path}/A"] = b"<html>"
    assert node.leak_states() == {"c/A": "unavailable", "c/B": "ok"}
    node.controller.documents[path] = {"Members": [{"@odata.id": f"{path}/A"}]}
    node.controller.documents[f"{path}/A"] = detector("OK")
    assert node.leak_states(700.0) == {"c/A": "ok", "c/B": "unavailable"}, "after another search"


def test_a_connector_that_loses_its_values_is_missing_and_the_other_is_shown(cooled: Make) -> None:
    node = cooled()
    node.serve("c", CoolantConnectors=node.connectors("c", In=CONNECTOR, Out=CONNECTOR))
    assert len(node.coolant()) == 12
    node.controller.documents[f"{BASE}/c/ThermalSubsystem/CoolantConnectors/In"] = {"error": {"code": "Base.1.0"}}
    sample = node.read()
    assert {dict(each.labels)["connector"] for each in sample.readings} == {"Out"}
    assert {gap.reason for gap in sample.gaps} == {Reason.MALFORMED}
    details = [gap.detail for gap in sample.gaps]
    assert details.count("the coolant connector In of c has no values") == 6
    assert details[6:] == [f"{node.controller.url}{BASE}/c/ThermalSubsystem/CoolantConnectors/In: an error: Base.1.0"]


def test_a_controller_without_any_is_absent_and_is_not_searched_at_each_read(cooled: Make) -> None:
    node = cooled()
    node.serve("c", Fans={"@odata.id": f"{BASE}/c/ThermalSubsystem/Fans"})
    with pytest.raises(AbsentError, match="neither leak detectors, coolant connectors nor fans"):
        node.read()
    asked = len(node.controller.asked)
    with pytest.raises(AbsentError):
        node.read(70.0)
    assert len(node.controller.asked) == asked
    node.controller.documents[f"{BASE}/c/ThermalSubsystem"] = {"LeakDetection": node.leaks("c", A="OK")}
    assert node.leak_states(700.0) == {"c/A": "ok"}


def test_only_the_configured_chassis_is_looked_into(cooled: Make) -> None:
    node = cooled(chassis="mine")
    node.serve("mine", LeakDetection=node.leaks("mine", A="OK"))
    node.serve("other", LeakDetection=node.leaks("other", A="Critical"))
    assert node.leak_states() == {"mine/A": "ok"}


@pytest.mark.parametrize(
    ("path", "document", "row", "words"),
    [
        ("/c", {"ThermalSubsystem": 7}, "leak_detector_state", "ThermalSubsystem is not a link"),
        ("/c/ThermalSubsystem/Fans", {"Members": "none"}, "chassis_fan_state", "Members is not a list"),
        ("/c/ThermalSubsystem/Fans/F", {"Status": []}, "chassis_fan_state", "Status is not an object"),
        (
            "/c/ThermalSubsystem/CoolantConnectors/In",
            {**CONNECTOR, "Status": 1},
            "coolant_supply_temperature_celsius",
            "Status is not an object",
        ),
        (
            "/c/ThermalSubsystem/LeakDetection",
            {"LeakDetectorGroups": [{"Detectors": [{"Status": []}]}]},
            "leak_detector_state",
            "LeakDetectorGroups[0]: Detectors[0]: Status is not an object",
        ),
        ("/c/ThermalSubsystem/LeakDetection", {"LeakDetectors": []}, None, ""),
    ],
)
def test_what_cannot_be_understood_is_a_gap_and_is_logged_once(
    cooled: Make, caplog: pytest.LogCaptureFixture, path: str, document: Any, row: str | None, words: str
) -> None:
    node = cooled()
    node.serve(
        "c",
        LeakDetection=node.leaks("c", A="OK"),
        CoolantConnectors=node.connectors("c", In=CONNECTOR),
        Fans=node.controller.collection(f"{BASE}/c/ThermalSubsystem/Fans", {"F": {}}),
    )
    node.controller.documents[f"{BASE}{path}"] = document
    for _ in range(2):
        found = [(gap.metric.name, gap.reason) for gap in node.read().gaps if words and words in gap.detail]
        assert found == ([(f"coldplate_{row}", Reason.MALFORMED)] if row else [])
    assert len([each for each in caplog.records if words in each.getMessage()]) == (1 if row else 0)


@pytest.mark.parametrize("odd", [b"\xff", b"\r"])
def test_an_odd_byte_or_a_busy_moment_of_the_controller_costs_no_detector(cooled: Make, odd: bytes) -> None:
    node = cooled()
    node.serve("c", LeakDetection=node.leaks("c", A={**detector("OK"), "SerialNumber": "@"}))
    path = f"{BASE}/c/ThermalSubsystem/LeakDetection/LeakDetectors/A"
    node.controller.documents[path] = json.dumps(node.controller.documents[path]).encode().replace(b"@", odd)
    assert node.leak_states() == {"c/A": "ok"}
    node.controller.refusals = 1
    assert node.leak_states() == {"c/A": "ok"}
    node.controller.is_gzip_only = True
    assert node.leak_states() == {"c/A": "ok"}


def test_a_collection_on_several_pages_is_read_whole(cooled: Make) -> None:
    node = cooled()
    node.serve("c", LeakDetection=node.leaks("c", A="OK", B="Warning"))
    path = f"{BASE}/c/ThermalSubsystem/LeakDetection/LeakDetectors"
    first, second = node.controller.documents[path]["Members"]
    node.controller.documents[path] = {"Members": [first], "Members@odata.nextLink": f"{path}?$skip=1"}
    node.controller.documents[f"{path}?$skip=1"] = {"Members": second}
    sample = node.read()
    assert not sample.gaps
    assert node.leak_states(0.0) == {"c/A": "ok", "c/B": "warning"}


def test_a_page_that_cannot_be_read_is_a_gap(cooled: Make) -> None:
    node = cooled()
    node.serve("c", LeakDetection=node.leaks("c", A="OK"))
    path = f"{BASE}/c/ThermalSubsystem/LeakDetection/LeakDetectors"
    node.controller.documents[path]["Members@odata.nextLink"] = f"{path}?$skip=1"
    assert [(gap.metric.name, gap.detail) for gap in node.read().gaps] == [
        ("coldplate_leak_detector_state", f"{path}: only the first 1 members are read")
    ]


def test_numbers_in_texts_and_an_object_in_the_place_of_a_list_are_understood(cooled: Make) -> None:
    node = cooled()
    thermal = f"{BASE}/c/Thermal"
    node.serve("c", CoolantConnectors=node.connectors("c", In={"FlowLitersPerMinute": {"Reading": "90"}}))
    node.controller.documents[f"{BASE}/c"]["Thermal"] = {"@odata.id": thermal}
    node.controller.documents[thermal] = {
        "Fans": {"@odata.id": f"{thermal}#/Fans/0", "Name": "F", "Reading": "9000", "ReadingUnits": "RPM"},
        "Temperatures": {"Name": "T", "PhysicalContext": "Intake", "ReadingCelsius": "25.5"},
    }
    sample = node.read()
    assert not sample.gaps
    values = {reading.series.metric.name.removeprefix("coldplate_"): reading.value for reading in sample.readings}
    assert values["coolant_flow_liters_per_second"] == 1.5
    assert values["chassis_fan_rotation_hertz"] == 150.0
    assert values["chassis_intake_temperature_celsius"] == 25.5
    node.controller.documents[thermal] = {"Fans": {"@odata.id": f"{thermal}/Fans"}, "Temperatures": {}}
    assert {reading.series.metric.name for reading in node.read().readings} == {
        "coldplate_coolant_flow_liters_per_second",
        "coldplate_chassis_fan_state",
    }, "a link alone is not a fan; the one that was there is unavailable"


def test_an_endless_list_is_read_up_to_a_bound(cooled: Make) -> None:
    node = cooled()
    for chassis in range(3):
        many = {f"D{number}": "OK" for number in range(100)}
        node.serve(f"c{chassis}", LeakDetection=node.leaks(f"c{chassis}", **many))
    assert len(node.leak_states()) == 128


def test_a_folder_of_mockups_is_served_and_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    thermal = "/redfish/v1/Chassis/1U/ThermalSubsystem"
    units = "/redfish/v1/ThermalEquipment/CDUs"
    documents = {
        "": {"ThermalEquipment": {"@odata.id": "/redfish/v1/ThermalEquipment"}},
        "ThermalEquipment": {"CDUs": {"@odata.id": units}},
        "ThermalEquipment/CDUs": {"Members": [{"@odata.id": f"{units}/A"}]},
        "ThermalEquipment/CDUs/A": {"EnvironmentMetrics": {"@odata.id": f"{units}/A/Air"}},
        "ThermalEquipment/CDUs/A/Air": {"DewPointCelsius": {"Reading": 9.5}},
        "Chassis": {"Members": [{"@odata.id": "/redfish/v1/Chassis/1U"}]},
        "Chassis/1U": {"ThermalSubsystem": {"@odata.id": thermal}},
        "Chassis/1U/ThermalSubsystem": {"Fans": {"@odata.id": f"{thermal}/Fans"}},
        "Chassis/1U/ThermalSubsystem/Fans": {"Members": [{"@odata.id": f"{thermal}/Fans/F"}]},
        "Chassis/1U/ThermalSubsystem/Fans/F": {"SpeedPercent": {"Reading": 40}, "Status": {"Health": "OK"}},
    }
    for path, document in documents.items():
        place = tmp_path / "server" / path
        place.mkdir(parents=True, exist_ok=True)
        (place / "index.json").write_text(json.dumps(document))
    assert mockups.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "server",
        "  coldplate_chassis_fan_state 1U/F: ok",
        "  coldplate_chassis_fan_speed_ratio 1U/F: 0.4",
        "  coldplate_rack_dew_point_celsius A: 9.5",
    ]
    assert mockups.main([str(tmp_path / "server" / "Chassis" / "1U")]) == 1
    assert "no mockup with a Chassis below" in capsys.readouterr().err
