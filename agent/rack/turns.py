"""Assigns each service of a rack to one agent of the rack; the agents need no messages for it.

Each agent ranks the agents that it hears by a hash of their name and the service's (rendezvous hashing): agents that
hear the same peers choose the same one, services are spread over the agents, and when an agent leaves, only its
services move. Polling twice for a moment is harmless, not polling is not: an agent that hears no higher-ranked one
polls, and one that begins to hear a higher-ranked one polls until that one has had the time to begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

SILENCE_SECONDS = 5.0
"""Seconds after which an agent that is not heard any more has lost its turn: a restart often takes less."""
HANDOVER_SECONDS = 8.0
"""Seconds for which an agent goes on after a better one was heard: that one may still be looking for its peers."""


class Turns:
    """The turns of one agent, by the name that it has among those of the rack. Times are monotonic seconds."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._heard: dict[str, dict[str, float]] = {}
        self._until: dict[str, float] = {}

    def is_mine(self, service: str, others: Iterable[str], now: float) -> bool:
        """Return whether to ask `service` now, where these others that could ask it are heard."""
        heard = self._heard.setdefault(service, {})
        heard.update((name, now) for name in others if name != self._own)
        self._heard[service] = heard = _fresh(heard, now)
        if chosen(service, (self._own, *heard)) == self._own:
            self._until[service] = now + HANDOVER_SECONDS
            return True
        return now < self._until.get(service, -inf)


def chosen(service: str, agents: Iterable[str]) -> str:
    """Return the agent that asks a service, of these by name."""
    return max(agents, key=lambda name: (_rank(service, name), name))


def _rank(service: str, agent: str) -> bytes:
    from hashlib import blake2b  # it brings OpenSSL, a mebibyte that an agent without such equipment need not have

    return blake2b(f"{service}\0{agent}".encode(), digest_size=8).digest()


def _fresh(heard: Mapping[str, float], now: float) -> dict[str, float]:
    return {name: at for name, at in heard.items() if now - at < SILENCE_SECONDS}
