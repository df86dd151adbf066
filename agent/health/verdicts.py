"""What comparing a node with what it should be comes to: findings, each with a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """How one check ended. `skipped`: this node has no such thing, so there is nothing to judge."""

    OK = "ok"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    WARNING = "warning"
    CRITICAL = "critical"


_RANKS = {verdict: number for number, verdict in enumerate(Verdict)}


def rank(verdict: Verdict) -> int:
    """How bad it is: a critical one more than a warning, that more than not knowing."""
    return _RANKS[verdict]


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """The outcome of one check, in words: what should be, what is, and what to do where the two differ."""

    name: str
    verdict: Verdict
    expected: str
    found: str
    remedy: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the node is as it should be; None where that is not known, or there is nothing to judge."""
        if self.verdict in (Verdict.UNKNOWN, Verdict.SKIPPED):
            return None
        return self.verdict is Verdict.OK


def worst(findings: Iterable[HealthFinding]) -> Verdict:
    """The verdict on the whole: critical before warning before unknown, and ok where none of them is found."""
    found = max((each.verdict for each in findings), key=rank, default=Verdict.OK)
    return Verdict.OK if found is Verdict.SKIPPED else found


def by_rank(findings: Iterable[HealthFinding]) -> list[HealthFinding]:
    """The worst first; those of one verdict in the order in which they came."""
    return sorted(findings, key=lambda each: -rank(each.verdict))
