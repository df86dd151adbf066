"""What the agents of a rack agree on: their settings, their time, who is absent, and which of them asks each service.

Settings are reported as a name and a number. Parts of one share the name before the first dot, such as the limits of
feeds.

A node whose clock is minutes off still draws power. Its seconds are shifted to ours by the lead of its clock, in whole
seconds, once that has been steady: a response that does not advance, such as a stale copy from a proxy, is rejected.

During a rolling restart of a rack's agents some node is always missing, but never the same one for long. So each node's
absence is timed separately.

For a service, each agent ranks the agents that it hears by a hash of their name and the service's (rendezvous hashing):
agents that hear the same peers choose the same one without a message, and when one leaves, only its services move.
Polling twice for a moment is harmless, not polling is not: who begins to hear a better one goes on for a while.
"""

from collections.abc import Collection, Iterable, Mapping
from math import inf

from msgspec import Struct

LIMIT_SECONDS = 2.0
"""Seconds by which a clock may differ before its seconds are shifted."""
STEADY_SECONDS = 0.5
"""Seconds by which two readings of one offset may differ: an answer may take up to 0.8 s, most take almost none."""


class PeerClock(Struct):
    """`offset`: seconds that the peer's clock is ahead of this node's. `shift`: whole seconds to subtract from its."""

    offset: float | None = None
    shift: int = 0

    def add_offset(self, offset: float) -> bool:
        """Record a reading of the offset; return True if the peer's seconds can be converted to this node's."""
        before, self.offset = self.offset, offset
        if abs(offset) <= LIMIT_SECONDS:
            self.shift = 0
            return True
        if self.shift and abs(offset - self.shift) <= 1:
            return True
        if before is None or abs(offset - before) > STEADY_SECONDS:
            return False
        self.shift = round(offset)
        return True


GRACE_SECONDS = 30.0
"""Seconds that a node may be missing: a restarted agent is back within them."""


class Absences:
    """Since when each node has been missing, by a name that survives restarts. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._nameless: list[float] = []
        self._began: float | None = None

    def observe(self, missing: Collection[str], nameless: int, now: float) -> None:
        """Record who is missing now: these, and `nameless` others of which only their number is known."""
        if self._began is None:
            self._began = now
        self._since = {name: self._since.get(name, now) for name in missing}
        self._nameless = self._nameless[: max(nameless, 0)]
        self._nameless += [now] * (nameless - len(self._nameless))

    def silent(self, now: float) -> int | None:
        """Return how many have been missing for long; None until this agent has watched for long enough to know."""
        if self._began is None or now - self._began < GRACE_SECONDS:
            return None
        return sum(1 for since in (*self._since.values(), *self._nameless) if now - since >= GRACE_SECONDS)


SETTINGS = ("power_budget", "nodes_expected", "node_nameplate", "feeds")
NODES = "nodes_expected"
BUDGET = "power_budget"
FEEDS = "feeds."


def differing(own: Mapping[str, float], peer_settings: Iterable[Mapping[str, float]]) -> dict[str, bool]:
    """Return for each setting whether any agent reports another value than ours, or none although we have one.

    The number of nodes is compared only if both report one: an agent that has just started has not counted them yet.
    """
    differs = dict.fromkeys(SETTINGS, False)
    for limits in peer_settings:
        for name in own.keys() | limits.keys():
            setting = name.partition(".")[0]
            if setting in differs and own.get(name) != limits.get(name):
                differs[setting] |= name != NODES or (name in own and name in limits)
    return differs


def most_nodes(own: int, peer_settings: Iterable[Mapping[str, float]]) -> int:
    """Return how many nodes the rack has: the largest number that any agent reports."""
    return max([own, *(int(limits[NODES]) for limits in peer_settings if NODES in limits)])


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

    def is_mine(self, service: str, instances: Iterable[str], now: float) -> bool:
        """Return whether to ask `service` now, where these others that could ask it are heard."""
        heard = self._heard.setdefault(service, {})
        heard.update((name, now) for name in instances if name != self._own)
        heard = {name: at for name, at in heard.items() if now - at < SILENCE_SECONDS}
        self._heard[service] = heard
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
