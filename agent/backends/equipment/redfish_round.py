"""One round of questions to a Redfish service, with an end: so many documents, by a deadline.

What is wrong with one document costs that document, and is kept as a problem; what is wrong with the service (it does
not answer, it refuses the login) ends the round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agent.backends.protocol import DeviceError
from agent.backends.redfish_service import MOST_MEMBERS, RedfishSource, list_in, members_of
from agent.model import Reason

MOST_PROBLEMS = 8
"""Problems of a round that are told."""
_SHOWN = 120


class RedfishRound:
    """Reads documents of `service` until `until` (monotonic seconds, by `clock`)."""

    def __init__(self, service: RedfishSource, clock: Callable[[], float], until: float) -> None:
        self._service = service
        self._clock = clock
        self._until = until
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
            self.note(str(error))
            return None
        if "error" in document and "@odata.id" not in document:
            self.note(str(self._service.error(Reason.MALFORMED, path, f"an error: {_told(document['error'])}")))
            return None
        return document

    def at(self, path: str | None) -> dict[str, Any]:
        """The document at a link; an empty one where there is none."""
        return (self.read(path) if path is not None else None) or {}

    def members(self, path: str | None) -> list[str]:
        """The paths of the members of a collection, as many as are looked at."""
        collection = self.at(path)
        if len(list_in(collection.get("Members"))) > MOST_MEMBERS or "Members@odata.nextLink" in collection:
            self.note(f"{path}: only the first {MOST_MEMBERS} members are read")
        return members_of(collection)

    def note(self, problem: str) -> None:
        """Keep a problem, one of the first few."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)


def _told(error: Any) -> str:
    """What an error body says, as one short line."""
    text = error.get("message") or error.get("code") if isinstance(error, dict) else error
    return "".join(each if each.isprintable() else "?" for each in str(text)[:_SHOWN])
