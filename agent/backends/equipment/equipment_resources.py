"""What Redfish resources say of leak detectors, coolant, fans and intake air, and how a part is. No function raises.

A part is well only if its resource says so: one that is switched off, or says what no schema knows, is unavailable.

Controllers have fans and air in one of two shapes: since 2020 each fan is a resource of its own and the chassis has
ThermalMetrics; before that one resource, Thermal, lists them all.
"""

from collections.abc import Callable, Iterator
from typing import Any

from agent.backends.redfish_service import LONGEST_NAME, as_list, as_number
from agent.catalogue import equipment
from agent.catalogue.equipment import FAN_ROTATION, FAN_SPEED, FAN_STATE, INTAKE, LEAKS
from agent.model import Metric

(LEAK_STATE,) = LEAKS
UNAVAILABLE = "unavailable"
HEALTHS = {"OK": "ok", "Warning": "warning", "Critical": "critical"}
_ABSENT = "Absent"
_DETECTOR_WORKS = (None, "Enabled")

_CONNECTOR = (
    # (member, row, what one of its unit is in the row's)
    ("SupplyTemperatureCelsius", equipment.SUPPLY, 1.0),
    ("ReturnTemperatureCelsius", equipment.RETURN, 1.0),
    ("FlowLitersPerMinute", equipment.FLOW, 1 / 60),
    ("RatedFlowLitersPerMinute", equipment.RATED_FLOW, 1 / 60),
    ("HeatRemovedkW", equipment.HEAT, 1e3),
    ("DeltaPressurekPa", equipment.PRESSURE, 1e3),
)

PartValue = tuple[Metric, tuple[str, ...], str | float | None]
"""What a document says of a part: a row, the values of its labels that name the part in its unit or chassis, and a
state, None if it has none, or a value in base units."""
ReadPart = Callable[[str, dict[str, Any]], Iterator[PartValue]]
"""Yields what the document with this Id says."""


def parse_leak_state(document: dict[str, Any]) -> str | None:
    """Return what a leak detector says; None if none is fitted there.

    Its word counts only while it is enabled: one that is switched off or broken, or that says what no schema knows, is
    unavailable.
    """
    state, detector_state = _state_in(document), document.get("DetectorState")
    if _ABSENT in (state, detector_state):
        return None
    if state not in _DETECTOR_WORKS or not isinstance(detector_state, str):
        return UNAVAILABLE
    return HEALTHS.get(detector_state, UNAVAILABLE)


def listed_detectors(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the detectors that a LeakDetection resource lists within itself, in groups, by name."""
    for number_of_group, group in enumerate(as_list(document.get("LeakDetectorGroups"))):
        detectors = as_list(group.get("Detectors")) if isinstance(group, dict) else []
        title = group.get("GroupName") if isinstance(group, dict) else None
        for place, detector in enumerate(detectors):
            if isinstance(detector, dict):
                yield name_in(detector, "DeviceName", f"{title or number_of_group}-{place}"), detector


def read_detector(name: str, document: dict[str, Any]) -> Iterator[PartValue]:
    """Yield the state of a leak detector by its own document, if one is fitted there."""
    state = parse_leak_state(document)
    if state is not None:
        yield LEAK_STATE, (name,), state


def read_detector_groups(_: str, document: dict[str, Any]) -> Iterator[PartValue]:
    for name, detector in listed_detectors(document):
        yield from read_detector(name, detector)


def read_connector(name: str, document: dict[str, Any]) -> Iterator[PartValue]:
    """Yield the values of a CoolantConnector, those that it has."""
    if _state_in(document) in _DETECTOR_WORKS:
        for member, row, factor in _CONNECTOR:
            value = scaled(document.get(member), factor)
            if value is not None:
                yield row, (name,), value


def scaled(value: Any, factor: float) -> float | None:
    """Return a number of a document in another unit; None for what is no number."""
    number = as_number(value)
    return None if number is None else number * factor


def _state_in(document: dict[str, Any]) -> Any:
    status = document.get("Status")
    return status.get("State") if isinstance(status, dict) else None


def name_in(document: dict[str, Any], member: str, otherwise: str) -> str:
    """Return the name that a document gives itself, as a label's value."""
    own_name = document.get(member)
    name = own_name if isinstance(own_name, str) and own_name.isprintable() and own_name.strip() else otherwise
    return name.strip()[:LONGEST_NAME]


_SERVES = (None, "Enabled", "StandbyOffline", "StandbySpare", "Qualified", "Starting", "InTest", "Degraded")
"""States of a part that does its work, or waits to (Resource.State). A standby pump is as well as a running one."""
_OFF = "Disabled"
_WORSE = ("ok", UNAVAILABLE, "warning", "critical")


def parse_status(document: dict[str, Any] | None, *, spare: bool = False) -> str | None:
    """Return what its Status says; unavailable for a document or Status that could not be read, None if it has no such
    part or Status.

    Health counts even where the part is off: a pump that failed is often both. One that may be a `spare` is well where
    it is off and in good health.
    """
    if document is None:
        return UNAVAILABLE
    status = document.get("Status")
    if status is None:
        return None
    if not isinstance(status, dict):
        return UNAVAILABLE
    state, health = status.get("State"), status.get("Health")
    if state == _ABSENT:
        return None
    health_state = HEALTHS.get(health, UNAVAILABLE) if isinstance(health, str) else None
    if health_state in ("warning", "critical"):
        return health_state
    if state not in _SERVES and not (spare and (state, health_state) == (_OFF, "ok")):
        return UNAVAILABLE
    if health_state is None and state is None:
        return None
    return health_state or ("warning" if state == "Degraded" else "ok")


def worst_state(*states: str | None) -> str | None:
    """Return the worst of what is known of one part."""
    return max((state for state in states if state is not None), key=_WORSE.index, default=None)


def redundancies(document: dict[str, Any], member: str) -> Iterator[tuple[str, str]]:
    """Yield the redundancy groups that a document lists under `member`, one or several, with their states."""
    groups = document.get(member)
    for place, group in enumerate(as_list(groups)):
        if not isinstance(group, dict):
            continue
        state = parse_status(group)
        # One that is switched off, or not meant to be redundant, lost nothing.
        is_enabled = _state_in(group) != _OFF and group.get("RedundancyType") != "NotRedundant"
        if state is not None and is_enabled:
            yield name_in(group, "GroupName", str(place + 1)), state


_SENSOR_WORKS = (None, "Enabled", "StandbySpare", "InTest", "Starting", "Qualified")
_PERCENT, _RPM = 1e-2, 1 / 60


def read_fan(name: str, document: dict[str, Any]) -> Iterator[PartValue]:
    """Yield what a fan's own document says, if a fan is fitted there."""
    speed = document.get("SpeedPercent")
    excerpt = speed if isinstance(speed, dict) else {"Reading": speed}
    yield from _fan(name, document, excerpt.get("Reading"), excerpt.get("SpeedRPM"))


def read_thermal(_: str, document: dict[str, Any]) -> Iterator[PartValue]:
    """Yield the fans, and the sensors at the intake, that a Thermal document lists."""
    for place, fan in enumerate(as_list(document.get("Fans"))):
        if isinstance(fan, dict):
            name, reading = name_in(fan, "Name", name_in(fan, "FanName", str(place))), fan.get("Reading")
            is_rotation = fan.get("ReadingUnits") == "RPM"
            yield from _fan(name, fan, None if is_rotation else reading, reading if is_rotation else None)
    for place, sensor in enumerate(as_list(document.get("Temperatures"))):
        if isinstance(sensor, dict) and sensor.get("PhysicalContext") == "Intake" and _works(sensor):
            value = as_number(sensor.get("ReadingCelsius"))
            if value is not None:
                yield INTAKE, (name_in(sensor, "Name", str(place)),), value


def read_thermal_metrics(_: str, document: dict[str, Any]) -> Iterator[PartValue]:
    """Yield the temperature in degrees Celsius that a ThermalMetrics document sums up for the intake."""
    summary = document.get("TemperatureSummaryCelsius")
    value = as_number(summary.get("Intake")) if isinstance(summary, dict) else None
    if value is not None:
        yield INTAKE, ("intake",), value


def _fan(name: str, document: dict[str, Any], percent: Any, turns: Any) -> Iterator[PartValue]:
    """Yield the state and speeds of a fan that is fitted: unavailable if it says nothing, and then without speeds."""
    if _state_in(document) == _ABSENT:
        return
    state = parse_status(document)
    values = ((FAN_SPEED, scaled(percent, _PERCENT)), (FAN_ROTATION, scaled(turns, _RPM)))
    speeds = [(row, (name,), value) for row, value in values if value is not None and state != UNAVAILABLE]
    yield FAN_STATE, (name,), state if state or speeds else UNAVAILABLE
    yield from speeds


def _works(document: dict[str, Any]) -> bool:
    """Return whether what it reads counts: unless its State says otherwise. A reading has no need of a Health."""
    status = document.get("Status")
    return status is None or (isinstance(status, dict) and status.get("State") in _SENSOR_WORKS)
