"""Follows the state of a port's link."""

from __future__ import annotations

from agent.catalogue.infiniband import ACTIVE, LINK_DOWN_EVENTS, PORT_UP
from agent.model import Gap, IbPort, Reading, Series


class LinkWatch:
    """Follows one port's state: whether it is up, and how often it has left the active state."""

    __slots__ = ("_active", "_count", "_events", "_up")

    def __init__(self, entity: IbPort) -> None:
        self._up = Series(PORT_UP, entity)
        self._events = Series(LINK_DOWN_EVENTS, entity)
        self._active = False
        self._count = 0

    def saw(self, state: float) -> tuple[Reading, Reading]:
        """Record a state. One that could not be read changes nothing: it may be the same as before."""
        active = state == ACTIVE
        if self._active and not active:
            self._count += 1
        self._active = active
        return Reading(self._up, 1 if active else 0), Reading(self._events, self._count)

    def missed(self, gap: Gap) -> tuple[Gap, Reading]:
        """Record that the state could not be read: whether the link is up is unknown, and the count stays."""
        return Gap(PORT_UP, gap.entity, gap.reason, gap.detail), Reading(self._events, self._count)
