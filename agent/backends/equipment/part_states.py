"""How a part of a rack's equipment is, by its Redfish document. None of these functions raises.

A part is well only if its document says so: one that is switched off, or says what no schema knows, is unavailable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agent.backends.equipment.cooling_documents import UNAVAILABLE, leak_state, name_in
from agent.backends.redfish_service import list_in

_HEALTHS = {"OK": "ok", "Warning": "warning", "Critical": "critical"}
_SERVES = (None, "Enabled", "StandbyOffline", "StandbySpare", "Qualified", "Starting", "InTest", "Degraded")
"""States of a part that does its work, or waits to (Resource.State). A standby pump is as well as a running one."""
_OFF = "Disabled"
_WORSE = ("ok", UNAVAILABLE, "warning", "critical")


def part_state(document: dict[str, Any] | None, *, spare: bool = False) -> str | None:
    """What its Status says; unavailable for a document or Status that could not be read, None if it has no such part or
    Status.

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
    if state == "Absent":
        return None
    said = _HEALTHS.get(health, UNAVAILABLE) if isinstance(health, str) else None
    if said in ("warning", "critical"):
        return said
    if state not in _SERVES and not (spare and (state, said) == (_OFF, "ok")):
        return UNAVAILABLE
    if said is None and state is None:
        return None
    return said or ("warning" if state == "Degraded" else "ok")


def worst(*states: str | None) -> str | None:
    """The worst of what is known of one part."""
    return max((state for state in states if state is not None), key=_WORSE.index, default=None)


def detector_state(document: dict[str, Any] | None) -> str | None:
    """What a leak detector says; one that cannot be read is never dry."""
    return UNAVAILABLE if document is None else leak_state(document)


def level_state(document: dict[str, Any] | None) -> str | None:
    """How a reservoir is: by its level as the unit judges it, and by its Status."""
    level = None if document is None else document.get("FluidLevelStatus")
    return worst(part_state(document), None if level is None else _HEALTHS.get(str(level), UNAVAILABLE))


def redundancies(document: dict[str, Any], member: str) -> Iterator[tuple[str, str]]:
    """The redundancy groups that a document lists under `member`, one or several, with their states."""
    found = document.get(member)
    for place, group in enumerate(list_in(found) if isinstance(found, list) else [found]):
        if not isinstance(group, dict):
            continue
        state = part_state(group)
        if state is not None and group_is_in_use(group):
            yield name_in(group, "GroupName", str(place + 1)), state


def group_is_in_use(group: dict[str, Any]) -> bool:
    """Whether the group is meant to be redundant: one that is switched off lost nothing."""
    status = group.get("Status")
    state = status.get("State") if isinstance(status, dict) else None
    return state != _OFF and group.get("RedundancyType") != "NotRedundant"
