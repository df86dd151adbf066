"""Verdicts, and findings: the results of comparing a node with its expectations, each with a verdict."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple, TypeVar

from msgspec import Struct

from agent.model import Alert, Phase


class Verdict(Enum):
    """How one check ended. `skipped`: the node has no such thing, or its operator chose it so."""

    OK = "ok"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    WARNING = "warning"
    CRITICAL = "critical"


_RANKS = {verdict: number for number, verdict in enumerate(Verdict)}
_SEVERITIES = {"critical": Verdict.CRITICAL, "warning": Verdict.WARNING, "info": Verdict.SKIPPED}
NEAR_BUDGET = 0.95
"""Share of a rack's power budget above which little is left."""


def rank(verdict: Verdict) -> int:
    """Return how bad it is: a critical one more than a warning, that more than not knowing."""
    return _RANKS[verdict]


def is_bad(verdict: Verdict) -> bool:
    """Return whether it is worth attention."""
    return verdict in (Verdict.WARNING, Verdict.CRITICAL)


def verdict_of(alert: Alert) -> Verdict:
    """Return how bad an alert is; an inhibited one is not counted again, an unknown severity may mean anything."""
    if alert.inhibited_by:
        return Verdict.SKIPPED
    return _SEVERITIES.get(dict(alert.labels).get("severity", ""), Verdict.WARNING)


class AlertCounts(Struct):
    """How many alerts fire and are pending; those that are inhibited are counted apart."""

    firing: int = 0
    pending: int = 0
    inhibited: int = 0

    def add(self, alert: Alert) -> None:
        if alert.inhibited_by:
            self.inhibited += 1
        elif alert.phase is Phase.FIRING:
            self.firing += 1
        elif alert.phase is Phase.PENDING:
            self.pending += 1

    @property
    def total(self) -> int:
        return self.firing + self.pending + self.inhibited

    @property
    def text(self) -> str:
        """Those that are not 0, such as `1 firing, 3 inhibited`; `none` if all are."""
        counts = ((self.firing, "firing"), (self.pending, "pending"), (self.inhibited, "inhibited"))
        return ", ".join(f"{count} {word}" for count, word in counts if count) or "none"


def power_verdict(watts: float, budget: float) -> Verdict:
    """Return how bad the power of a rack with this budget is."""
    if watts > budget:
        return Verdict.CRITICAL
    return Verdict.WARNING if watts > NEAR_BUDGET * budget else Verdict.SKIPPED


class GpuFinding(NamedTuple):
    """Something that holds a GPU back or makes it suspect, in one word and in a sentence."""

    verdict: Verdict
    word: str
    text: str


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


_Finding = TypeVar("_Finding", GpuFinding, HealthFinding)


def worst(findings: Iterable[HealthFinding]) -> Verdict:
    """Return the verdict on the whole: critical before warning before unknown, and ok where none of them is found."""
    found = max((each.verdict for each in findings), key=rank, default=Verdict.OK)
    return Verdict.OK if found is Verdict.SKIPPED else found


def by_rank(findings: Iterable[_Finding]) -> list[_Finding]:
    """Return the worst first; those of one verdict in the order in which they came."""
    return sorted(findings, key=lambda each: -rank(each.verdict))
