"""Fans and the intake of a node, in both shapes in which controllers tell of them; what is blind is never well."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.equipment.conftest import BASE, Cooled

Make = Callable[..., Cooled]
WELL = {"State": "Enabled", "Health": "OK"}


def fan(percent: Any = 55, rpm: Any = 12_000, **status: Any) -> dict[str, Any]:
    """A Fan resource."""
    return {"Id": "x", "SpeedPercent": {"Reading": percent, "SpeedRPM": rpm}, "Status": {**WELL, **status}}


def newer(node: Cooled, chassis: str = "c", intake: Any = 27.5, **fans: Any) -> None:
    """A chassis whose fans are documents of their own."""
    below = f"{BASE}/{chassis}/ThermalSubsystem"
    node.controller.documents[f"{below}/ThermalMetrics"] = {
        "TemperatureSummaryCelsius": {"Intake": {"Reading": intake}}
    }
    node.serve(
        chassis, Fans=node.collection(f"{below}/Fans", fans), ThermalMetrics={"@odata.id": f"{below}/ThermalMetrics"}
    )


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


def test_fans_of_their_own_and_the_summed_up_intake(cooled: Make) -> None:
    node = cooled()
    newer(node, Fan1=fan(), Fan2=fan(100, 18_000, Health="Warning"))
    assert shown(node) == {
        "Fan1 ok": 1, "Fan2 warning": 1, "fan_speed_ratio Fan1": 0.55, "fan_speed_ratio Fan2": 1.0,
        "fan_rotation_hertz Fan1": 200.0, "fan_rotation_hertz Fan2": 300.0,
        "intake_temperature_celsius intake": 27.5,
    }  # fmt: skip


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
        "FAN A ok": 1, "FAN B critical": 1, "fan_rotation_hertz FAN A": 150.0, "fan_speed_ratio FAN B": 0.4,
        "intake_temperature_celsius Inlet Temp": 24,
    }  # fmt: skip


def test_a_controller_with_both_is_read_once(cooled: Make) -> None:
    node = cooled()
    newer(node, Fan1=fan())
    node.controller.documents[f"{BASE}/c"]["Thermal"] = {"@odata.id": f"{BASE}/c/Thermal"}
    node.controller.documents[f"{BASE}/c/Thermal"] = {"Fans": [{"Name": "Fan1", "Status": WELL}]}
    assert {key for key in shown(node) if key.startswith("Fan")} == {"Fan1 ok"}
    assert f"{BASE}/c/Thermal" not in node.controller.asked


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
        "A ok": 1, "C unavailable": 1, "D unavailable": 1, "fan_rotation_hertz A": 150, "fan_rotation_hertz B": 100,
        "intake_temperature_celsius Inlet": 27, "intake_temperature_celsius Bare": 28,
        "intake_temperature_celsius Bad": 29,
    }  # fmt: skip
    ((gap, text),) = [(gap.metric.name, gap.detail) for gap in node.read().gaps]
    assert gap == "coldplate_chassis_fan_state"
    assert text.endswith("/Thermal: Fans[2]: Status is not an object")


def test_a_fan_that_stands_still_is_shown_as_such(cooled: Make) -> None:
    node = cooled()
    newer(node, intake=None, Fan1=fan(0, 0, Health="Critical"))
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
