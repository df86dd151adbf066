"""Reads what serves a rack in one Redfish service: finds its units by links, and reads each of their documents.

Where they are is looked up again from time to time. A part that was there once stays known: one that is not listed any
more, or cannot be read, is unavailable, and never well.
"""

from __future__ import annotations

from collections.abc import Callable

from agent.backends.equipment.equipment_resources import UNAVAILABLE
from agent.backends.equipment.rack_resources import (
    COOLING_COLLECTIONS,
    COOLING_READERS,
    POWER_COLLECTIONS,
    POWER_READERS,
    POWER_SHELF,
    EquipmentPart,
    EquipmentPollResult,
    PartResource,
    chassis_documents_of,
    cooling_documents_of,
    power_documents_of,
)
from agent.backends.protocol import DeviceError
from agent.backends.redfish_service import ROOT, RedfishPoll, RedfishReader, RedfishSource, link_path, log_new
from agent.model import Labels, Metric, Reason

SEARCH_SECONDS = 600.0
"""Seconds after which the service is searched again: for what was added."""
SOON_SECONDS = 60.0
"""The same where nothing was found, or something could not be read: a service that starts lists its parts later."""
ROUND_SECONDS = 45.0
"""Most seconds that a round may take; a controller takes up to 300 ms for each document."""
MOST_DOCUMENTS = 128
"""Documents that are read each round."""
READERS = {**COOLING_READERS, **POWER_READERS}


class RackEquipmentReader(RedfishReader):
    """One service. Asked in a thread, with at most one question at a time."""

    def __init__(self, name: str, service: RedfishSource, clock: Callable[[], float]) -> None:
        """`name` is that of the configuration; `clock` gives monotonic seconds. Closes the `service` with itself."""
        self.name = name
        self._service = service
        self._clock = clock
        self._found: list[PartResource] | None = None
        self._problems: list[str] = []
        self._logged: tuple[str, ...] = ()
        self._search_at = 0.0
        self.known: dict[EquipmentPart, str] = {}
        """Every part that ever was there, with what it said last."""

    def look(self) -> EquipmentPollResult:
        """Return everything, as it is now.

        Raises DeviceError if the service does not answer, or serves nothing of a rack.
        """
        now = self._clock()
        ask = RedfishPoll(self._service, self._clock, now + ROUND_SECONDS)
        if self._found is None or now >= self._search_at:
            found = self._search(ask)
            self._found, self._problems = found, ask.problems[:]
            self._search_at = now + (SEARCH_SECONDS if found and not ask.problems else SOON_SECONDS)
        if not self._found and not self.known:
            text = "; ".join(["it lists no coolant distribution unit, power shelf or rack PDU", *self._problems])
            raise self._service.error(Reason.UNSUPPORTED, ROOT, text)
        states = dict.fromkeys(self.known, UNAVAILABLE)
        values: dict[tuple[Metric, Labels], float] = {}
        for part, path in self._found:
            resource = READERS[part.kind](part, ask.read(path))
            states.update((each, state) for each, state in resource.states if state is not None)
            own = (("unit", part.unit),)
            values.update(((row, (*own, *more)), value) for row, more, value in resource.values if value is not None)
        self.known = states
        problems = tuple(dict.fromkeys((*self._problems, *ask.problems)))
        log_new(problems, self._logged)
        self._logged = problems
        return EquipmentPollResult(dict(states), values, problems, ask.calls)

    def close(self) -> None:
        self._service.close()

    def _search(self, ask: RedfishPoll) -> list[PartResource]:
        """Return the documents of every unit that the service has, up to a bound. Raises DeviceError."""
        root = ask.read(ROOT)
        if root is None:
            raise DeviceError(Reason.MALFORMED, "; ".join(ask.problems))
        found: list[PartResource] = []
        thermal = ask.at(link_path(root.get("ThermalEquipment")))
        for collection in COOLING_COLLECTIONS:
            for path in ask.members(link_path(thermal.get(collection))):
                if len(found) < MOST_DOCUMENTS:
                    found += cooling_documents_of(path, ask)
        cooling = bool(found)
        power = ask.at(link_path(root.get("PowerEquipment")))
        for collection, kind in POWER_COLLECTIONS:
            for path in ask.members(link_path(power.get(collection))):
                if len(found) < MOST_DOCUMENTS:
                    found += power_documents_of(path, kind, ask)
        if not cooling:
            supplied = {part.unit for part, _ in found if part.kind == "power-supply"}
            bare = [part.unit for part, _ in found if part.kind == POWER_SHELF and part.unit not in supplied]
            if bare or not found:
                known = {path for _, path in found}
                found += chassis_documents_of(link_path(root.get("Chassis")), bare, known, ask)
        if len(found) > MOST_DOCUMENTS:
            ask.note(f"{self.name} has more than {MOST_DOCUMENTS} parts; the rest is not read")
        return found[:MOST_DOCUMENTS]
