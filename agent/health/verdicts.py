"""What comparing a node with what it should be comes to: findings, each with a verdict, about one part or all GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.health.seen_node import SeenNode, numbers
from agent.model import Gpu


class Verdict(Enum):
    """How one check ended. `skipped`: this node has no such thing, so there is nothing to judge."""

    OK = "ok"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"
    WARNING = "warning"
    CRITICAL = "critical"


_RANKS = {verdict: number for number, verdict in enumerate(Verdict)}


def rank(verdict: Verdict) -> int:
    """Return how bad it is: a critical one more than a warning, that more than not knowing."""
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
    """Return the verdict on the whole: critical before warning before unknown, and ok where none of them is found."""
    found = max((each.verdict for each in findings), key=rank, default=Verdict.OK)
    return Verdict.OK if found is Verdict.SKIPPED else found


def by_rank(findings: Iterable[HealthFinding]) -> list[HealthFinding]:
    """Return the worst first; those of one verdict in the order in which they came."""
    return sorted(findings, key=lambda each: -rank(each.verdict))


NOBODY = "no GPU answers"
Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class GpuFact:
    """What each GPU should show: the metric, with these labels, for which `is_met` holds.

    `expected` and `remedy` are for people, `show` writes a value for them, `verdict` is that on a GPU which differs.
    """

    name: str
    metric: str
    expected: str
    is_met: Callable[[float], bool]
    show: Show
    verdict: Verdict
    remedy: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def judged(self, view: SeenNode) -> HealthFinding:
        """Return the finding. A GPU that does not answer is not judged: that it is silent is a finding of its own."""
        if not view.answering:
            return HealthFinding(self.name, Verdict.SKIPPED, self.expected, NOBODY)
        values = view.of_gpus(self.metric, **self.labels)
        differing = {gpu: self.show(value) for gpu, value in values.items() if not self.is_met(value)}
        if differing:
            return HealthFinding(self.name, self.verdict, self.expected, grouped(differing), self.remedy)
        silent = {
            gpu: view.why_absent(gpu, self.metric)
            for gpu in view.answering
            if gpu not in values and view.offers(gpu, self.metric)
        }
        if silent:
            return HealthFinding(self.name, Verdict.UNKNOWN, self.expected, grouped(silent), UNREAD)
        if not values:
            return HealthFinding(self.name, Verdict.SKIPPED, self.expected, "these GPUs do not tell it")
        return HealthFinding(
            self.name, Verdict.OK, self.expected, grouped({gpu: self.show(v) for gpu, v in values.items()})
        )


UNREAD = "see why it was not read (coldplate once --format json); a longer --timeout may help"


def grouped(told: Mapping[Gpu, str]) -> str:
    """Return what is told of each GPU, once for all GPUs of which it is the same."""
    groups: dict[str, list[Gpu]] = defaultdict(list)
    for gpu, text in told.items():
        groups[text].append(gpu)
    return "; ".join(f"{numbers(gpus)}: {text}" for text, gpus in groups.items())


def gibibytes(value: float) -> str:
    """Return bytes for people."""
    return f"{value / 2**30:.1f} GiB"


def switched(value: float) -> str:
    """Return a state for people."""
    return "on" if value else "off"


def plain(value: float) -> str:
    """Return a count for people."""
    return f"{value:g}"
