"""What of the rules a server of many nodes evaluates, and how often.

A node judges its own GPUs each second, from series that a server sees every 15 seconds. A shard of a fleet need not do
that again for thousands of nodes: it evaluates what compares agents with each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from alerts import packs
from alerts.rulefile import RuleFile

COMPARING = frozenset({"breakers", "rack", "rack-faults", "rack-state"})
"""Files of the pack about what several agents see together."""


def of_a_shard(files: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """The files without those of the pack about one node. A site's own files are all kept."""
    alone = {path.resolve() for path in packs.shipped_files() if path.stem not in COMPARING}
    return tuple(file for file in files if Path(file.path).resolve() not in alone)


def at_most_every(seconds: float, files: Sequence[RuleFile]) -> tuple[RuleFile, ...]:
    """The files with longer intervals for groups that have a shorter one; one without keeps the server's own."""
    return tuple(
        replace(
            file,
            groups=tuple(
                group if group.interval is None or group.interval >= seconds else replace(group, interval=seconds)
                for group in file.groups
            ),
        )
        for file in files
    )
