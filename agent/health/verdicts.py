"""Verdicts, and findings: the results of comparing a node with its expectations, each with a verdict."""

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct


class Verdict(Enum):
    """How one check ended. `skipped`: the node has no such thing, or its operator chose it so."""

    OK = "ok"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    WARNING = "warning"
    CRITICAL = "critical"


_RANKS = {verdict: number for number, verdict in enumerate(Verdict)}


def rank(verdict: Verdict) -> int:
    """Return how bad it is: a critical one more than a warning, that more than not knowing."""
    return _RANKS[verdict]


class HealthFinding(Struct, frozen=True):
    """The result of one check, as texts: what is expected, what is found, and the remedy if the two differ.

    Who makes the check gives it the check's name.
    """

    verdict: Verdict
    expected: str
    found: str
    remedy: str = ""
    name: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the node is as it should be; None where that is not known, or there is nothing to judge."""
        if self.verdict in (Verdict.UNKNOWN, Verdict.SKIPPED):
            return None
        return self.verdict is Verdict.OK


def worst(findings: Iterable[HealthFinding]) -> Verdict:
    """Return the verdict on the whole: critical before warning before unknown, and ok where none of them is found."""
    verdict = max((finding.verdict for finding in findings), key=rank, default=Verdict.OK)
    return Verdict.OK if verdict is Verdict.SKIPPED else verdict


def by_rank(findings: Iterable[HealthFinding]) -> list[HealthFinding]:
    """Return the worst first; those of one verdict in the order in which they came."""
    return sorted(findings, key=lambda finding: -rank(finding.verdict))
