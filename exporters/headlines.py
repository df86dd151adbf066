"""The first lines of the page at `/` and of `top`: conditions that fire or are pending, and what is not known.

The rules judge: a line is coloured by the severity of its condition. What no rule can say, because nothing was read, is
a plain line that claims nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from agent.health.conditions import condition_text, counts_now, order_of, phase_text
from agent.health.seen_node import DRIVER, SeenGpu, SeenNode, numbers
from agent.model import Alert, BackendReport, Outcome, Phase, Severity
from exporters.markup import SEVERITY_TONES, Tone

WORDS = {Tone.BAD: "Critical", Tone.WARN: "Degraded", Tone.PENDING: "Pending", Tone.UNKNOWN: "Unknown", Tone.GOOD: "OK"}


class Headline(NamedTuple):
    """One line: how bad it is, that in a word, and a sentence."""

    tone: Tone
    word: str
    text: str


def condition_lines(conditions: Iterable[Alert], now: float | None) -> Iterator[Headline]:
    """Yield one line for each rule that has conditions, the worst first; `now` in wall seconds.

    Information and effects of other conditions have no line.
    """
    by_rule: dict[tuple[str, Phase, Severity], list[Alert]] = {}
    for condition in sorted(conditions, key=order_of):
        if not condition.inhibited_by and condition.severity is not Severity.INFO:
            by_rule.setdefault((condition.rule, condition.phase, condition.severity), []).append(condition)
    for (_, phase, severity), alike in by_rule.items():
        more = f" (and {len(alike) - 1} more)" if len(alike) > 1 else ""
        text = f"{condition_text(alike[0])}{more}"
        if phase is Phase.PENDING:
            yield Headline(Tone.PENDING, WORDS[Tone.PENDING], f"{phase_text(alike[0], now)}: {text}")
        else:
            tone = SEVERITY_TONES[severity]
            yield Headline(tone, WORDS[tone], text)


def unread_lines(node: SeenNode, reports: Sequence[BackendReport]) -> Iterator[Headline]:
    """Yield what was not read: of it nothing is known, so the node is not well either."""
    gpus = list(node.by_gpu.values())
    yield from (unknown_line(f"{names}: {text}") for names, text in _silent(gpus))
    if not gpus and not node.expected_gpus:
        details = (report.detail for report in reports if report.backend == DRIVER and report.outcome is Outcome.ABSENT)
        detail = next(details, "")
        yield unknown_line(f"no GPU here: {detail}" if detail else "no GPU here")
    if unknown := [gpu.gpu for gpu in gpus if gpu.up and not gpu.is_known]:
        yield unknown_line(f"neither utilization nor power can be read: {numbers(unknown)}")
    for report in reports:
        if report.outcome is Outcome.FAILED:
            yield unknown_line(f"{report.backend} cannot be read: {report.detail or 'no reason given'}")


def _silent(gpus: Sequence[SeenGpu]) -> Iterator[tuple[str, str]]:
    """Yield the GPUs that do not answer, those with one reason together."""
    by_text: dict[str, list[SeenGpu]] = {}
    for gpu in gpus:
        if not gpu.up:
            by_text.setdefault(gpu.silence_text, []).append(gpu)
    for text, alike in by_text.items():
        yield numbers(gpu.gpu for gpu in alike), text


def unknown_line(text: str) -> Headline:
    """Return the line of what is not known."""
    return Headline(Tone.UNKNOWN, WORDS[Tone.UNKNOWN], text)


def unjudged_line(reason: str) -> Headline:
    """Return the line of a node whose rules were not all evaluated, for the `reason`: what fires is not known."""
    return unknown_line(f"{reason}: what would fire is not known")


def well_line(count: int, conditions: Iterable[Alert]) -> Headline:
    """Return the line of a node of which nothing else is to be said, with `count` GPUs; its rules were evaluated."""
    gpus = f"all {count} GPUs answer" if count > 1 else "the GPU answers"
    fires = any(counts_now(condition) for condition in conditions)
    return Headline(Tone.GOOD, WORDS[Tone.GOOD], gpus if fires else f"{gpus}, and nothing fires")


def tone_of(condition: Alert) -> Tone:
    """Return how bad a condition is; an effect of another one is a note."""
    if condition.inhibited_by:
        return Tone.CALM
    return SEVERITY_TONES[condition.severity] if counts_now(condition) else Tone.PENDING
