"""Compares the configurations of a rack's agents, as they report them to each other.

A report is flat: a name and a number. Parts of one setting share the name before the first dot, such as the limits
of feeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

SETTINGS = ("power_budget", "nodes_expected", "node_nameplate", "feeds")
NODES = "nodes_expected"
BUDGET = "power_budget"
FEEDS = "feeds."


def differing(own: Mapping[str, float], others: Iterable[Mapping[str, float]]) -> dict[str, bool]:
    """For each setting, whether any agent reports another value than ours, or none although we have one.

    The number of nodes is compared only if both report one: an agent that has just started has not counted them yet.
    """
    found = dict.fromkeys(SETTINGS, False)
    for told in others:
        for name in own.keys() | told.keys():
            setting = name.partition(".")[0]
            if setting in found and own.get(name) != told.get(name):
                found[setting] |= name != NODES or (name in own and name in told)
    return found


def most_nodes(own: int, others: Iterable[Mapping[str, float]]) -> int:
    """How many nodes the rack has: the largest number that any agent reports."""
    return max([own, *(int(told[NODES]) for told in others if NODES in told)])
