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
    """What one fan says: its state, and its speeds in base units, as far as it tells them."""

    state: str
    speeds: dict[Metric, float]


def fan_of(document: dict[str, Any]) -> FanReading | None:
    """A fan's own document; None if none is fitted there."""
    state = _state(document)
    speed = document.get("SpeedPercent")
    if state is None:
        return None
    told = speed if isinstance(speed, dict) else {"Reading": speed}
    return FanReading(state, dict(_speeds(state, told.get("Reading"), told.get("SpeedRPM"))))


def listed_fans(document: dict[str, Any]) -> Iterator[tuple[str, FanReading]]:
    """The fans that a Thermal document lists, by name."""
    for place, each in enumerate(list_in(document.get("Fans"))):
        if not isinstance(each, dict) or (state := _state(each)) is None:
            continue
        turns = each.get("ReadingUnits") == "RPM"
        reading = each.get("Reading")
        speeds = _speeds(state, None, reading) if turns else _speeds(state, reading, None)
        named = name_in(each, "Name", name_in(each, "FanName", str(place)))
        yield named[:LONGEST_NAME], FanReading(state, dict(speeds))


def intake_of(document: dict[str, Any]) -> float | None:
    """The temperature in degrees Celsius that a ThermalMetrics document sums up for the intake."""
    summary = document.get("TemperatureSummaryCelsius")
    return number(summary.get("Intake")) if isinstance(summary, dict) else None


def listed_intakes(document: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The sensors at the intake that a Thermal document lists, by name, in degrees Celsius."""
    for place, each in enumerate(list_in(document.get("Temperatures"))):
        if (
            isinstance(each, dict)
            and each.get("PhysicalContext") == "Intake"
            and _state(each) not in (None, UNAVAILABLE)
        ):
            value = number(each.get("ReadingCelsius"))
            if value is not None:
                yield name_in(each, "Name", str(place))[:LONGEST_NAME], value


def _state(document: dict[str, Any]) -> str | None:
    """By its Status. One that is off, or says what no schema knows, is unavailable; None if it is absent."""
    status = document.get("Status")
    if not isinstance(status, dict):
        return UNAVAILABLE
    state = status.get("State")
    if state == "Absent":
        return None
    return _HEALTH.get(str(status.get("Health")), UNAVAILABLE) if state in _WORKS else UNAVAILABLE


def _speeds(state: str, percent: Any, turns: Any) -> Iterator[tuple[Metric, float]]:
    """Those that are told. What a fan says that is not known to work counts for nothing."""
    for row, value, factor in ((FAN_SPEED, number(percent), _PERCENT), (FAN_ROTATION, number(turns), _RPM)):
        if value is not None and state != UNAVAILABLE:
            yield row, value * factor
