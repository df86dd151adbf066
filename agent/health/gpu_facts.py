"""What each GPU of a node should show: one comparison for all of them, and several GPUs in one text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.health.seen_node import SeenNode, numbers
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu

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
