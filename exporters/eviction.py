"""Which client to evict when slots, descriptors or memory run out: the one that costs most and loses least."""

from __future__ import annotations

from collections.abc import Iterable

from exporters.connection import Connection, ConnectionState

SLOW_SECONDS = 0.5
"""Seconds with one answer after which a client may lose its place to another."""

STALLED_SECONDS = 0.1
"""The same for one that takes nothing of its response at all: a scraper takes some every few milliseconds."""

_IDLE = frozenset({ConnectionState.SHAKING, ConnectionState.READING, ConnectionState.DRAINING})


def victim(connections: Iterable[Connection], now: float) -> Connection | None:
    """The client that makes room for a new one; None if every client is about to complete its first answer.

    First the one longest without a complete request; then the one that has been longest with one answer, waiting for it
    or taking it too slowly; then the one that got the most answers and still wants more. Where most have never asked
    for anything, one of these goes: a scraper is idle for many seconds, in which a flood would push it out.
    """
    connections = tuple(connections)
    idle, slow, greedy = [], [], []
    for each in connections:
        if each.phase in _IDLE:
            idle.append(each)
        elif now - each.since > SLOW_SECONDS or (
            each.phase is ConnectionState.WRITING and now - each.moved > STALLED_SECONDS
        ):
            slow.append(each)
        elif each.answers > 1:
            greedy.append(each)
    newcomers = [each for each in idle if not each.answers]
    if len(newcomers) * 2 > len(connections):
        idle = newcomers
    if idle or slow:
        return min(idle or slow, key=lambda each: each.since)
    return max(greedy, key=lambda each: each.answers, default=None)


def hoarders(connections: Iterable[Connection], limit: int) -> list[Connection]:
    """The clients to disconnect so that the bodies not taken yet stay within `limit` bytes.

    Clients share a body, so many that read one page cost no more. The newest pages stay, at least one.
    """
    kept: dict[int, int] = {}
    gone = []
    for each in sorted(connections, key=lambda each: each.answered, reverse=True):
        body = each.holds
        if not body or id(body) in kept:
            continue
        if kept and sum(kept.values()) + len(body) > limit:
            gone.append(each)
        else:
            kept[id(body)] = len(body)
    return gone
