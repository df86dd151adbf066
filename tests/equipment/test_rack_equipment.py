"""Equipment that serves a rack, as its Redfish services tell it: found by links, and never taken for well."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from agent.backends.equipment.rack_equipment_backend import RackEquipmentBackend, over_http, services_of
from agent.backends.protocol import BackendSample
from agent.config.reading import parse
from agent.config.schema import ConfigError
from agent.lib.http_target import HttpTarget
from agent.model import Instant, Lane, Reason
from tests.equipment.conftest import OK, UNITS, Plant, detector
from tests.power.conftest import Controller

CONNECTOR = {
    **OK, "SupplyTemperatureCelsius": {"Reading": 32.5}, "ReturnTemperatureCelsius": {"Reading": 44},
    "FlowLitersPerMinute": {"Reading": 300}, "RatedFlowLitersPerMinute": 360, "HeatRemovedkW": {"Reading": 118.5},
    "SupplyPressurekPa": {"Reading": 240}, "ReturnPressurekPa": {"Reading": 180}, "DeltaPressurekPa": {"Reading": 60},
}  # fmt: skip


@pytest.fixture
def plant(controller: Controller) -> Iterator[Plant]:
    made = Plant(controller)
    yield made
    made.backend.close()


def test_a_unit_is_found_by_links_and_shown_in_base_units(plant: Plant) -> None:
    plant.unit(
        "1",
        Pumps={"members": {"A": {**OK, "PumpSpeedPercent": {"Reading": 62.5}}}},
        Reservoirs={"members": {"R": {**OK, "FluidLevelStatus": "OK", "FluidLevelPercent": {"Reading": 80}}}},
        Filters={"members": {"F": {
            **OK, "DeltaLiquidPressurekPa": {"Reading": 12}, "ServiceHours": 5000, "RatedServiceHours": 10000,
        }}},
        SecondaryCoolantConnectors={"members": {"1": CONNECTOR}},
        PrimaryCoolantConnectors={"members": {"1": {**OK, "SupplyTemperatureCelsius": {"Reading": 18}}}},
        EnvironmentMetrics={"TemperatureCelsius": {"Reading": 25}, "HumidityPercent": {"Reading": 50}},
    )  # fmt: skip
    plant.put("1/LeakDetection", {"LeakDetectors": {"@odata.id": f"{UNITS}/1/LeakDetectors"}})
    plant.put("1/LeakDetectors", {"members": {"Tray": detector("OK")}})
    plant.controller.documents[f"{UNITS}/1"]["LeakDetection"] = {"@odata.id": f"{UNITS}/1/LeakDetection"}
    plant.controller.documents[f"{UNITS}/1"]["PumpRedundancy"] = [{"GroupName": "Pumps", **OK}]
    assert plant.states() == {
        "1 unit 1": "ok", "1 pump-redundancy Pumps": "ok", "1 pump A": "ok", "1 reservoir R": "ok", "1 filter F": "ok",
        "1 primary-connector 1": "ok", "1 secondary-connector 1": "ok", "1 leak-detector Tray": "ok",
    }  # fmt: skip
    values = plant.values()
    assert values.pop("dew_point_celsius 1") == pytest.approx(13.9, abs=0.1)  # a psychrometric chart: 25 °C, 50%
    assert values == {
        "equipment_up": 1, "pump_speed_ratio 1 A": 0.625, "reservoir_level_ratio 1 R": 0.8,
        "filter_delta_pressure_pascals 1 F": 12_000, "filter_service_ratio 1 F": 0.5,
        "coolant_supply_temperature_celsius 1 primary 1": 18,
        "coolant_supply_temperature_celsius 1 secondary 1": 32.5,
        "coolant_return_temperature_celsius 1 secondary 1": 44,
        "coolant_flow_liters_per_second 1 secondary 1": 5, "coolant_rated_flow_liters_per_second 1 secondary 1": 6,
        "coolant_heat_removed_watts 1 secondary 1": 118_500, "coolant_supply_pressure_pascals 1 secondary 1": 240_000,
        "coolant_return_pressure_pascals 1 secondary 1": 180_000,
        "coolant_delta_pressure_pascals 1 secondary 1": 60_000,
        "air_temperature_celsius 1": 25, "air_humidity_ratio 1": 0.5,
    }  # fmt: skip
    asked, connections = len(plant.controller.asked), plant.controller.connections
    plant.read()
    assert len(plant.controller.asked) - asked == 8, "a round reads each part once, and does not search again"
    assert plant.controller.connections == connections == 1


def test_the_labels_name_the_equipment_and_not_the_node(plant: Plant) -> None:
    plant.unit("1")
    reading = plant.read().readings[-1]
    assert dict(reading.series.all_labels) == {
        "rack": "r1", "equipment": "cdu", "unit": "1", "kind": "unit", "part": "1", "state": "unavailable",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"Status": {"State": "UnavailableOffline", "Health": "Critical"}}, "critical"),
        ({"Status": {"State": "StandbySpare", "Health": "OK"}}, "ok"),
        ({"Status": {"State": "Enabled"}}, "ok"),
        ({"Status": {"State": "Degraded"}}, "warning"),
        ({"Status": {"State": "Disabled", "Health": "OK"}}, "ok"),
        ({"Status": {"State": "Disabled", "Health": "Warning"}}, "warning"),
        ({"Status": {"State": "Disabled"}}, "unavailable"),
        ({"Status": {"State": "UnavailableOffline", "Health": "OK"}}, "unavailable"),
        ({"Status": {"State": "Enabled", "Health": "Fine"}}, "unavailable"),
        ({"Status": {"State": ["Enabled"], "Health": "OK"}}, "unavailable"),
        ({"Status": {"State": "Absent", "Health": "OK"}}, None),
        ({"Status": {}}, None),
        ({"Status": []}, "unavailable"),
        ({"Status": None}, None),
        ({"PumpSpeedPercent": {"Reading": "fast"}}, None),
        ({"error": {"code": "Base.1.0.GeneralError", "message": "no"}}, "unavailable"),
        (b"<html>", "unavailable"),
    ],
)
def test_a_pump_is_well_only_if_it_says_so(plant: Plant, document: Any, said: str | None) -> None:
    plant.unit("1", Pumps={"members": {"A": document, "B": OK}})
    states = plant.states()
    assert states.get("1 pump A") == said
    assert states["1 pump B"] == "ok"


def test_a_reservoir_has_the_worse_of_level_and_status_and_a_connector_is_no_spare(plant: Plant) -> None:
    members = {"A": {**OK, "FluidLevelStatus": "Critical"}, "B": {**OK, "FluidLevelStatus": 1}, "C": OK}
    off = {"members": {"1": {"Status": {"State": "Disabled", "Health": "OK"}}}}
    plant.unit("1", Reservoirs={"members": members}, SecondaryCoolantConnectors=off)
    states = plant.states()
    assert [states[f"1 reservoir {each}"] for each in "ABC"] == ["critical", "unavailable", "ok"]
    assert states["1 secondary-connector 1"] == "unavailable"


def test_a_redundancy_that_is_switched_off_lost_nothing(plant: Plant) -> None:
    plant.unit("1")
    document = plant.controller.documents[f"{UNITS}/1"]
    document["PumpRedundancy"] = [
        {"Status": {"State": "Enabled", "Health": "Critical"}}, {"Status": {"State": "Disabled", "Health": "OK"}},
        {"RedundancyType": "NotRedundant", **OK}, None,
    ]  # fmt: skip
    document["FilterRedundancy"] = {"GroupName": "F", "Status": {"State": "Enabled", "Health": "OK"}}
    assert plant.states() == {"1 unit 1": "ok", "1 pump-redundancy 1": "critical", "1 filter-redundancy F": "ok"}


def test_leak_detectors_in_groups_are_shown_and_stay_known(plant: Plant) -> None:
    groups = {"LeakDetectorGroups": [{"Detectors": [{"DeviceName": "Rope", "DetectorState": "OK"}]}]}
    plant.unit("1", LeakDetection=groups)
    assert plant.states()["1 leak-detector Rope"] == "ok"
    plant.put("1/LeakDetection", {"LeakDetectorGroups": []})
    assert plant.states()["1 leak-detector Rope"] == "unavailable"


def test_a_connector_that_is_off_has_no_values_and_a_vanished_part_is_unavailable(plant: Plant) -> None:
    connectors = {"members": {"1": CONNECTOR, "2": {**CONNECTOR, "Status": {"State": "Disabled"}}}}
    plant.unit("1", SecondaryCoolantConnectors=connectors, Pumps={"members": {"A": OK, "B": OK}})
    assert {each.rpartition(" ")[2] for each in plant.values() if each.startswith("coolant")} == {"1"}
    plant.put("1/Pumps", {"members": {"A": OK}})
    assert plant.states()["1 pump B"] == "ok", "it is still there, only not listed"
    assert plant.states(700.0)["1 pump B"] == "unavailable", "after another search"


def test_while_the_service_is_away_it_is_down_and_all_its_parts_are_unavailable(plant: Plant) -> None:
    plant.unit("1", Pumps={"members": {"A": OK}})
    assert plant.states() == {"1 unit 1": "ok", "1 pump A": "ok"}
    plant.controller.broken_for_good = True
    sample = plant.read()
    assert plant.values(0.0) == {"equipment_up": 0}
    assert plant.states(0.0) == {"1 unit 1": "unavailable", "1 pump A": "unavailable"}
    (gap,) = sample.gaps
    assert (gap.metric.name, gap.reason) == ("coldplate_rack_part_state", Reason.LOST)
    assert gap.detail.startswith("cdu: http://127.0.0.1:")
    plant.controller.broken_for_good = False
    assert plant.states() == {"1 unit 1": "ok", "1 pump A": "ok"}


def test_a_service_that_refuses_the_login_is_left_alone_for_a_while(plant: Plant) -> None:
    plant.controller.expect_login("monitor", "secret")
    (gap,) = plant.read().gaps
    assert gap.reason is Reason.DENIED
    assert "user name or password refused" in gap.detail
    asked = len(plant.controller.asked)
    plant.read(200.0)
    assert len(plant.controller.asked) == asked, "an account is locked after a few wrong passwords"
    plant.read(200.0)
    assert len(plant.controller.asked) > asked


def test_a_service_without_a_root_is_named_and_one_without_the_slash_is_read(plant: Plant) -> None:
    plant.unit("1", Pumps={"members": {"A": OK}})
    root = plant.controller.documents.pop("/redfish/v1/")
    (gap,) = plant.read().gaps
    assert "/redfish/v1/: not found (HTTP status 404)" in gap.detail
    assert plant.controller.asked == ["/redfish/v1/", "/redfish/v1"]
    plant.controller.documents["/redfish/v1"] = root
    assert plant.states(70.0) == {"1 unit 1": "ok", "1 pump A": "ok"}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("location", ["{url}{path}/", "{path}/", "HTTP://127.0.0.1:{port}{path}/", "A/"])
def test_a_redirect_that_adds_the_slash_is_followed(plant: Plant, status: int, location: str) -> None:
    plant.unit("1", Pumps={"members": {"A": OK, "B": OK}})
    path, url = f"{UNITS}/1/Pumps/A", plant.controller.url
    plant.controller.documents[f"{path}/"] = plant.controller.documents.pop(path)
    plant.controller.status[path] = status
    plant.controller.headers["Location"] = location.format(url=url, path=path, port=url.rpartition(":")[2])
    assert plant.states() == {"1 unit 1": "ok", "1 pump A": "ok", "1 pump B": "ok"}
    assert plant.controller.connections == 1


@pytest.mark.parametrize(
    "location",
    ["http://elsewhere.example{path}/", "//elsewhere.example{path}/", "https://127.0.0.1{path}/", "{path}",
     "http://127.0.0.1:1{path}/", "{path}/?next=1", "{path}/x/", "http://[{path}/", "http://127.0.0.1:x{path}/", ""],
)  # fmt: skip
def test_a_redirect_to_anything_else_is_not_followed_and_says_so(plant: Plant, location: str) -> None:
    plant.unit("1", Pumps={"members": {"A": OK, "B": OK}})
    path = f"{UNITS}/1/Pumps/A"
    plant.controller.documents[f"{path}/"] = OK
    plant.controller.status[path] = 302
    plant.controller.headers["Location"] = location.format(path=path)
    (gap,) = plant.read().gaps
    assert f"{path}: redirects to " in gap.detail
    assert ("elsewhere.example" in gap.detail) == ("elsewhere" in location)
    assert gap.detail.endswith("(HTTP status 302)")
    assert plant.states(0.0)["1 pump A"] == "unavailable"
    assert f"{path}/" not in plant.controller.asked


def test_an_error_in_a_good_answer_says_why(plant: Plant) -> None:
    plant.unit("1", Pumps={"members": {"A": {"error": {"message": "sensor bus\nlost"}}}})
    (gap,) = plant.read().gaps
    assert gap.detail.endswith("/Pumps/A: an error: sensor bus?lost")
    assert gap.reason is Reason.MALFORMED


@pytest.mark.parametrize("odd", [None, [], "x", {"@odata.id": "http://elsewhere/redfish/v1/x"}, {"@odata.id": 1}])
def test_odd_links_cost_only_themselves(plant: Plant, odd: Any) -> None:
    plant.unit("1", Pumps={"members": {"A": OK}})
    document = plant.controller.documents[f"{UNITS}/1"]
    document.update({"Filters": odd, "LeakDetection": odd, "EnvironmentMetrics": odd, "PumpRedundancy": odd})
    plant.controller.documents[UNITS]["Members"].append(odd)
    plant.controller.documents["/redfish/v1/ThermalEquipment"]["RPUs"] = odd
    assert plant.states() == {"1 unit 1": "ok", "1 pump A": "ok"}


@pytest.mark.parametrize(
    ("path", "document", "words"),
    [
        ("/1/Pumps/A", {"Status": []}, "/1/Pumps/A: Status is not an object"),
        ("/1/Pumps", b"[]", "/1/Pumps: not a JSON object"),
        ("/1/Pumps", {"Members": "none"}, "/1/Pumps: Members is not a list"),
        ("/1/Pumps", {"Members": [7]}, "/1/Pumps: Members[0] is not an object"),
        ("/1/Pumps", {"Members": [{"@odata.id": 7}]}, "/1/Pumps: Members[0] is not a link"),
        ("/1", {**OK, "Pumps": "none"}, "/1: Pumps is not a link"),
    ],
)
def test_what_cannot_be_understood_is_a_gap_and_is_logged_once(
    plant: Plant, caplog: pytest.LogCaptureFixture, path: str, document: Any, words: str
) -> None:
    plant.unit("1", Pumps={"members": {"A": OK}})
    plant.controller.documents[f"{UNITS}{path}"] = document
    for _ in range(2):
        (gap,) = plant.read().gaps
        assert gap.reason is Reason.MALFORMED
        assert gap.detail.endswith(words)
    assert len([each for each in caplog.records if words in each.getMessage()]) == 1
    plant.put("1/Pumps", {"members": {"A": OK}})
    plant.controller.documents[f"{UNITS}/1"] = {**OK, "Pumps": {"@odata.id": f"{UNITS}/1/Pumps"}}
    assert plant.states(70.0) == {"1 unit 1": "ok", "1 pump A": "ok"}
    assert not plant.read().gaps


def test_endless_collections_are_read_up_to_a_bound(plant: Plant) -> None:
    for unit in range(4):
        plant.unit(str(unit), Pumps={"members": {f"P{number}": OK for number in range(100)}})
    sample = plant.read()
    assert len(plant.states(0.0)) == 128
    assert any("only the first 64 members are read" in gap.detail for gap in sample.gaps)
    assert any("more than 128 parts" in gap.detail for gap in sample.gaps)


def test_a_service_that_trickles_ends_its_round_and_costs_only_itself(plant: Plant, controller: Controller) -> None:
    plant.unit("1", Pumps={"members": {f"P{number}": OK for number in range(10)}})
    clock = iter(range(1000, 2000, 2))  # each look at the clock is 2 s later
    tell = partial(next, map(float, clock))
    services = over_http({"slow": HttpTarget(controller.url)}, tell)
    slow = RackEquipmentBackend("r1", services, lambda _: True, tell, spawn=lambda job: job())
    sample = slow.read(Lane.FAST, Instant(1000.0, 1e9))
    slow.close()
    (gap,) = sample.gaps
    assert gap.reason is Reason.TIMEOUT
    assert "documents: the service is too slow" in gap.detail
    assert len(controller.asked) < 13, "it was not read to its end"
    assert [reading.value for reading in sample.readings] == [0]
    assert plant.states() != {}


def test_a_service_is_polled_every_15_seconds_and_without_equipment_is_down(plant: Plant) -> None:
    sample = plant.read()
    assert "it lists no coolant distribution unit" in sample.gaps[0].detail
    assert plant.values(0.0) == {"equipment_up": 0}
    plant.unit("1")
    assert plant.states(70.0) == {"1 unit 1": "ok"}
    asked = len(plant.controller.asked)
    first = plant.read(1.0)
    assert plant.read(1.0).readings == first.readings != []
    assert len(plant.controller.asked) == asked
    plant.read(13.0)
    assert len(plant.controller.asked) > asked


def test_an_agent_without_its_turn_asks_and_shows_nothing_and_forgets_at_its_end(plant: Plant) -> None:
    plant.mine = False
    plant.unit("1", Pumps={"members": {"A": OK}})
    assert plant.read() == BackendSample([], [], calls=0)
    assert plant.controller.asked == []
    plant.mine = True
    assert plant.states() == {"1 unit 1": "ok", "1 pump A": "ok"}
    plant.mine = False
    assert plant.read() == BackendSample([], [], calls=0)
    plant.mine = True
    plant.put("1/Pumps", {"members": {}})
    assert plant.states(0.0) == {"1 unit 1": "ok"}, "what it saw in its last turn is old"


def test_one_service_that_is_down_does_not_touch_another(controller: Controller) -> None:
    plant = Plant(controller, gone="http://127.0.0.1:9")
    plant.unit("1")
    readings = [each for each in plant.read().readings if each.metric.name == "coldplate_rack_equipment_up"]
    up = {dict(each.labels)["equipment"]: each.value for each in readings}
    plant.backend.close()
    assert up == {"cdu": 1, "gone": 0}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("url: 'https://cdu.example/redfish'", "give only host and port"),
        ("url: 'https://user:secret@cdu.example'", "use username and password_file"),
        ("url: 'http://cdu.example', username: a, password_file: /x", "would send the credentials in clear text"),
    ],
)
def test_a_service_that_cannot_work_or_would_leak_is_refused(keys: str, text: str) -> None:
    config = parse(f"rack: {{name: r1, equipment: {{cdu: {{{keys}}}}}}}", "c.yaml")
    with pytest.raises(ConfigError, match=f"rack.equipment.cdu: .*{text}") as told:
        services_of(config.rack)
    assert "secret" not in str(told.value)
