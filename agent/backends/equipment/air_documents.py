"""What Redfish documents say of fans and of the air that a chassis takes in. None of these functions raises.

Controllers have it in one of two shapes: since 2020 each fan is a document of its own and the chassis has
ThermalMetrics; before that one document, Thermal, lists them all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agent.backends.equipment.cooling_documents import LONGEST_NAME, UNAVAILABLE, name_in
from agent.backends.redfish_service import list_in, number
from agent.catalogue.equipment import FAN_ROTATION, FAN_SPEED
from agent.model import Metric

_HEALTH = {"OK": "ok", "Warning": "warning", "Critical": "critical"}
_WORKS = (None, "Enabled", "StandbySpare", "InTest", "Starting", "Qualified")
_PERCENT, _RPM = 1e-2, 1 / 60


class FanReading(NamedTuple):
    """What one fan says: its state, None if it has none, and its speeds in base units, as far as it has them."""

    state: str | None
    speeds: dict[Metric, float]


BLIND_FAN = FanReading(UNAVAILABLE, {})
"""What is shown of a fan that cannot be read."""


def fan_of(document: dict[str, Any]) -> FanReading | None:
    """A fan's own document; None if none is fitted there."""
    speed = document.get("SpeedPercent")
    excerpt = speed if isinstance(speed, dict) else {"Reading": speed}
    return _fan(document, excerpt.get("Reading"), excerpt.get("SpeedRPM"))


def listed_fans(document: dict[str, Any]) -> Iterator[tuple[str, FanReading]]:
    """The fans that a Thermal document lists, by name."""
    for place, each in enumerate(list_in(document.get("Fans"))):
        if not isinstance(each, dict):
            continue
        reading = each.get("Reading")
        fan = _fan(each, None, reading) if each.get("ReadingUnits") == "RPM" else _fan(each, reading, None)
        if fan is not None:
            yield name_in(each, "Name", name_in(each, "FanName", str(place)))[:LONGEST_NAME], fan


def intake_of(document: dict[str, Any]) -> float | None:
    """The temperature in degrees Celsius that a ThermalMetrics document sums up for the intake."""
    summary = document.get("TemperatureSummaryCelsius")
    return number(summary.get("Intake")) if isinstance(summary, dict) else None


def listed_intakes(document: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The sensors at the intake that a Thermal document lists, by name, in degrees Celsius."""
    for place, each in enumerate(list_in(document.get("Temperatures"))):
        if isinstance(each, dict) and each.get("PhysicalContext") == "Intake" and _works(each):
            value = number(each.get("ReadingCelsius"))
            if value is not None:
                yield name_in(each, "Name", str(place))[:LONGEST_NAME], value


def _fan(document: dict[str, Any], percent: Any, turns: Any) -> FanReading | None:
    """What a fan says that has these speeds: nothing if it is not known to work, and unavailable if it says nothing."""
    status = document.get("Status")
    if isinstance(status, dict) and status.get("State") == "Absent":
        return None
    state = _state(document)
    found = ((FAN_SPEED, number(percent), _PERCENT), (FAN_ROTATION, number(turns), _RPM))
    speeds = {row: value * factor for row, value, factor in found if value is not None and state != UNAVAILABLE}
    return FanReading(state, speeds) if state or speeds else BLIND_FAN


def _works(document: dict[str, Any]) -> bool:
    """Whether what it reads counts: unless its State says otherwise. A reading has no need of a Health."""
    status = document.get("Status")
    return status is None or (isinstance(status, dict) and status.get("State") in _WORKS)


def _state(document: dict[str, Any]) -> str | None:
    """By its Status; None without one. One that is off, or says what no schema knows, is unavailable."""
    status = document.get("Status")
    if status is None:
        return None
    if not _works(document):
        return UNAVAILABLE
    health = status.get("Health")
    if health is None:
        return None if status.get("State") is None else "ok"
    return _HEALTH.get(str(health), UNAVAILABLE)
