"""The first line of the page at `/`: whether the node is healthy, and if not, why, the worst first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agent.model import BackendReport, Outcome
from exporters.landing_alerts import Overview
from exporters.landing_gpus import GpuRow
from exporters.markup import Tone, cut, escape

_WORDS = {Tone.BAD: "Bad", Tone.WARN: "Degraded", Tone.CALM: "OK", Tone.GOOD: "OK"}
_MOST_NAMES = 12


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the node's state is derived from. `expected` is the number of GPUs that there should be."""

    sampled: bool
    ready: bool
    readiness: str
    devices: Sequence[GpuRow]
    expected: float | None
    overview: Overview | None
    reports: Sequence[BackendReport]


def banner(grounds: Grounds) -> str:
    """The state in a word, and what is wrong; problems with the page's own data come first."""
    if not grounds.sampled:
        return _markup(Tone.WARN, "Starting", [(Tone.WARN, grounds.readiness)])
    troubles = sorted(_troubles(grounds), key=lambda each: each[0])
    tone = min((each for each, _ in troubles), default=Tone.GOOD)
    return _markup(tone, _WORDS[tone], troubles or [(Tone.GOOD, _peace(grounds))])


def _markup(tone: Tone, word: str, lines: Sequence[tuple[Tone, str]]) -> str:
    items = "".join(f"<li>{cut(text)}</li>" for _, text in lines)
    return (
        f'<section class="state {tone.css}" role="status"><h2>{tone.sign} {escape(word)}</h2>'
        f"<ul>{items}</ul></section>\n"
    )


def word(grounds: Grounds) -> str:
    """The state in a word, for the title of the tab."""
    if not grounds.sampled:
        return "Starting"
    return _WORDS[min((tone for tone, _ in _troubles(grounds)), default=Tone.GOOD)]


def _troubles(grounds: Grounds) -> Iterator[tuple[Tone, str]]:
    if not grounds.ready:
        yield from ((Tone.BAD, f"not ready: {line}") for line in grounds.readiness.splitlines())
    yield from _silent(grounds)
    if grounds.overview is not None:
        for tone, severity in ((Tone.BAD, "critical"), (Tone.WARN, "warning")):
            if names := sorted(grounds.overview.names[tone]):
                some = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
                yield tone, f"{severity}: {some}"
    by_word: dict[tuple[Tone, str], list[str]] = {}
    for device in grounds.devices:
        if device.up:
            for key in dict.fromkeys((each.tone, each.word) for each in device.findings if each.tone <= Tone.WARN):
                by_word.setdefault(key, []).append(device.gpu.index)
    for (tone, what), indexes in by_word.items():
        yield tone, f"{what}: GPU {', '.join(indexes)}"
    for report in grounds.reports:
        if report.outcome is Outcome.FAILED:
            yield Tone.WARN, f"{report.backend} cannot be read: {report.detail or 'no reason given'}"
    if grounds.overview is not None and grounds.overview.failed:
        yield Tone.WARN, f"rules that failed at their last evaluation: {grounds.overview.failed}"


def _silent(grounds: Grounds) -> Iterator[tuple[Tone, str]]:
    known = len(grounds.devices)
    silent = [device for device in grounds.devices if not device.up and not device.is_paused]
    if paused := [device for device in grounds.devices if device.is_paused and not device.up]:
        yield Tone.WARN, f"GPU {', '.join(each.gpu.index for each in paused)} {paused[0].findings[0].text}"
    expected = known if grounds.expected is None else int(grounds.expected)
    if silent:
        names = ", ".join(f"GPU {each.gpu.index} ({each.word})" for each in silent)
        yield Tone.BAD, f"{known - len(silent)} of {max(known, expected)} GPUs answer, missing: {names}"
    if known < expected:
        yield Tone.BAD, f"{known} of {expected} GPUs are present"


def _peace(grounds: Grounds) -> str:
    count = len(grounds.devices)
    gpus = f"all {count} GPUs answer" if count > 1 else "the GPU answers" if count else "no GPU is expected here"
    return f"{gpus}, and nothing fires" if grounds.overview is not None and not grounds.overview.firing else gpus
