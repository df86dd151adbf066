"""One round of questions to a Redfish service, with an end: so many documents, by a deadline.

What is wrong with one document, or a part of it, costs that, and is kept as a problem; what is wrong with the service
(it does not answer, it refuses the login) ends the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Any

from agent.backends.protocol import DeviceError
from agent.backends.redfish_service import MOST_MEMBERS, RedfishSource, list_in, members_of
from agent.model import Reason

MOST_PROBLEMS = 8
"""Problems of a round that are told."""
_SHOWN = 120
_LISTS = ("Members", "Temperatures", "LeakDetectorGroups", "Detectors")
_LISTS_OR_LINKS = ("Fans",)
_LINKS = (
    "ThermalEquipment", "CDUs", "RPUs", "Pumps", "Reservoirs", "Filters", "PrimaryCoolantConnectors",
    "SecondaryCoolantConnectors", "LeakDetection", "LeakDetectors", "EnvironmentMetrics", "PowerEquipment",
    "PowerShelves", "RackPDUs", "Metrics", "Mains", "Branches", "PowerSubsystem", "PowerSupplies", "ThermalSubsystem",
    "CoolantConnectors", "ThermalMetrics", "Thermal",
)  # fmt: skip
"""Members of documents that are read, by what they are."""
_DEEPEST = 2
"""Lists in lists that are looked into: detectors in groups."""

log = logging.getLogger("coldplate.backend")


class RedfishRound:
    """Reads documents of `service` until `until` (monotonic seconds, by `clock`).

    With `linked`, a document that is not there is a problem; else it is one that the service does not offer.
    """

    def __init__(
        self, service: RedfishSource, clock: Callable[[], float], until: float = inf, *, linked: bool = True
    ) -> None:
        self._service = service
        self._clock = clock
        self._until = until
        self._linked = linked
        self.calls = 0
        """Documents that were asked for."""
        self.problems: list[str] = []

    def read(self, path: str) -> dict[str, Any] | None:
        """A document; None if it is not there or is none. Raises DeviceError for the service as a whole."""
        if self._clock() >= self._until:
            text = f"the round's time is over after {self.calls} documents: the service is too slow"
            raise self._service.error(Reason.TIMEOUT, path, text)
        self.calls += 1
        try:
            document = self._service.get(path)
        except DeviceError as error:
            if error.reason not in (Reason.UNSUPPORTED, Reason.MALFORMED):
                raise
            if self._linked or error.reason is not Reason.UNSUPPORTED:
                self.note(str(error))
            return None
        if "error" in document and "@odata.id" not in document:
            self.note(str(self._service.error(Reason.MALFORMED, path, f"an error: {_told(document['error'])}")))
            return None
        return self.examined(path, document)

    def examined(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        """A document, after a note of what in it cannot be understood."""
        for oddity in _oddities(document):
            self.note(str(self._service.error(Reason.MALFORMED, path, oddity)))
        return document

    def at(self, path: str | None) -> dict[str, Any]:
        """The document at a link; an empty one where there is none."""
        return (self.read(path) if path is not None else None) or {}

    def members(self, path: str | None) -> list[str]:
        """The paths of the members of a collection, as many as are looked at."""
        return self.members_in(path, self.at(path))

    def members_in(self, path: str | None, collection: dict[str, Any]) -> list[str]:
        """The same of a collection that has been read."""
        if len(list_in(collection.get("Members"))) > MOST_MEMBERS or "Members@odata.nextLink" in collection:
            self.note(f"{path}: only the first {MOST_MEMBERS} members are read")
        return members_of(collection)

    def note(self, problem: str) -> None:
        """Keep a problem, one of the first few."""
        if len(self.problems) < MOST_PROBLEMS and problem not in self.problems:
            self.problems.append(problem)


def log_new(problems: Iterable[str], before: Iterable[str]) -> None:
    """Log each problem that was not there before, in one line."""
    for problem in dict.fromkeys(problems):
        if problem not in before:
            log.warning("%s", problem)


def _oddities(document: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """What is of another type than the schemas have it, of what is read, so that it cannot be understood."""
    if not isinstance(document.get("Status", {}), dict | None):
        yield "Status is not an object"
    for name in _LINKS:
        if not _may_be_link(document.get(name)):
            yield f"{name} is not a link"
    for name in (*_LISTS, *_LISTS_OR_LINKS):
        listed = document.get(name)
        if isinstance(listed, list):
            yield from _odd_entries(name, listed, depth)
        elif listed is not None and not (name in _LISTS_OR_LINKS and _may_be_link(listed)):
            yield f"{name} is not a list"


def _odd_entries(name: str, listed: list[Any], depth: int) -> Iterator[str]:
    for place, entry in enumerate(listed):
        if not isinstance(entry, dict):
            yield f"{name}[{place}] is not an object"
        elif name == "Members":
            if not _may_be_link(entry):
                yield f"{name}[{place}] is not a link"
        elif depth < _DEEPEST:
            yield from (f"{name}[{place}]: {oddity}" for oddity in _oddities(entry, depth + 1))


def _may_be_link(value: Any) -> bool:
    """Whether it is absent or a link, which may lead elsewhere."""
    return not value or (isinstance(value, dict) and isinstance(value.get("@odata.id", ""), str))


def _told(error: Any) -> str:
    """What an error body says, as one short line."""
    text = error.get("message") or error.get("code") if isinstance(error, dict) else error
    return "".join(each if each.isprintable() else "?" for each in str(text)[:_SHOWN])
