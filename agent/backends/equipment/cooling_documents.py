"""What Redfish documents say of leak detectors and coolant, in base units. None of these functions raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from agent.backends.redfish_service import list_in, number
from agent.catalogue import equipment
from agent.model import Metric

UNAVAILABLE = "unavailable"
_STATES = {"OK": "ok", "Warning": "warning", "Critical": "critical"}
_ABSENT = "Absent"
_WORKS = (None, "Enabled")

_CONNECTOR = (
    # (member, row, what one of its unit is in the row's)
    ("SupplyTemperatureCelsius", equipment.SUPPLY, 1.0),
    ("ReturnTemperatureCelsius", equipment.RETURN, 1.0),
    ("FlowLitersPerMinute", equipment.FLOW, 1 / 60),
    ("RatedFlowLitersPerMinute", equipment.RATED_FLOW, 1 / 60),
    ("HeatRemovedkW", equipment.HEAT, 1e3),
    ("DeltaPressurekPa", equipment.PRESSURE, 1e3),
)
LONGEST_NAME = 64


class CoolingPart(NamedTuple):
    """A part of the equipment: the chassis that it is in, and its own name."""

    chassis: str
    name: str


def leak_state(document: dict[str, Any]) -> str | None:
    """What a leak detector says; None if none is fitted there.

    Its word counts only while it is enabled: one that is switched off or broken, or that says what no schema knows, is
    unavailable.
    """
    status = document.get("Status")
    state = status.get("State") if isinstance(status, dict) else None
    said = document.get("DetectorState")
    if _ABSENT in (state, said):
        return None
    if state not in _WORKS or not isinstance(said, str):
        return UNAVAILABLE
    return _STATES.get(said, UNAVAILABLE)


def listed_detectors(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The detectors that a LeakDetection resource lists within itself, in groups, by name."""
    for number_of_group, group in enumerate(list_in(document.get("LeakDetectorGroups"))):
        detectors = list_in(group.get("Detectors")) if isinstance(group, dict) else []
        title = group.get("GroupName") if isinstance(group, dict) else None
        for place, each in enumerate(detectors):
            if isinstance(each, dict):
                yield name_in(each, "DeviceName", f"{title or number_of_group}-{place}"), each


def connector_values(document: dict[str, Any]) -> dict[Metric, float]:
    """The values of a CoolantConnector, those that it has."""
    status = document.get("Status")
    if isinstance(status, dict) and status.get("State") not in _WORKS:
        return {}
    found = ((row, number(document.get(member)), factor) for member, row, factor in _CONNECTOR)
    return {row: value * factor for row, value, factor in found if value is not None}


def name_in(document: dict[str, Any], member: str, otherwise: str) -> str:
    """The name that a document gives itself, as a label's value."""
    said = document.get(member)
    name = said if isinstance(said, str) and said.isprintable() and said.strip() else otherwise
    return name.strip()[:LONGEST_NAME]


def last_of(path: str) -> str:
    """The last part of a resource's path, which is its Id by the specification."""
    return path.rstrip("/").rpartition("/")[2]
