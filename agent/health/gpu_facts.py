"""Compares one metric of all GPUs with its expectation, and names several GPUs in one text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from agent.health.expectations import Expected
from agent.health.seen_node import SeenNode, numbers
from agent.health.verdicts import HealthFinding, Verdict
from agent.model import Gpu

NOBODY = "no GPU answers"
Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class GpuFact:
    """What each GPU should show: a metric for which `is_met` holds, of the value and what is expected.

    `key` is that of the expectation; without one nothing else than 0 is expected. `expected` and `show` write what is
    expected and a value for people, `remedy` may have the first in braces, `verdict` is that on a GPU which differs.
    """

    name: str
    key: str
    metric: str
    expected: Show
    is_met: Callable[[float, float], bool]
    show: Show
    verdict: Verdict
    remedy: str

    def __call__(self, view: SeenNode, expected: Expected) -> HealthFinding | None:
        """Return the finding. It leaves out a silent GPU, which has a finding of its own."""
        limit = getattr(expected.node, self.key) if self.key else 0.0
        if limit is None:
            return None
        text = self.expected(limit)
        if not view.answering:
            return HealthFinding(self.name, Verdict.SKIPPED, text, NOBODY)
        values = view.of_gpus(self.metric)
        differing = {gpu: self.show(value) for gpu, value in values.items() if not self.is_met(value, limit)}
        if differing:
            return HealthFinding(self.name, self.verdict, text, grouped(differing), self.remedy.format(limit))
        if silent := unread(view, self.metric, values):
            return HealthFinding(self.name, Verdict.UNKNOWN, text, grouped(silent), UNREAD)
        if not values:
            return HealthFinding(self.name, Verdict.SKIPPED, text, "not reported by these GPUs")
        return HealthFinding(self.name, Verdict.OK, text, grouped({gpu: self.show(v) for gpu, v in values.items()}))


UNREAD = "see why it was not read (coldplate once --format json); a longer --timeout may help"


def unread(view: SeenNode, metric: str, seen: Container[Gpu]) -> dict[Gpu, str]:
    """Return why the others of the GPUs that answer have no reading of a metric, where they should have one."""
    return {gpu: view.why_absent(gpu, metric) for gpu in view.answering if gpu not in seen and view.offers(gpu, metric)}


def grouped(texts: Mapping[Gpu, str]) -> str:
    """Return the texts of the GPUs, each text once with all GPUs that have it."""
    groups: dict[str, list[Gpu]] = defaultdict(list)
    for gpu, text in texts.items():
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
