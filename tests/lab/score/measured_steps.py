"""Plays the step times of other people's training jobs through the rules about jobs."""

import json
import statistics
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from alerts.rulefile import RuleFile
from tests.lab.bench.report import markdown
from tests.lab.score.work import GPUS, IDLE, SPIN, Second, blend, noisy, training
from tests.lab.score.work_play import play_work

ABOUT, RULES = "steps", "imbalance"
"""The page and the rule file."""
LOGS = "*/results/*/*/result_0.txt"
"""The log of the first run of each submission and benchmark."""
LEAST_STEPS = 100
LEAST_SECONDS = 600.0
"""A shorter run says little about rules that look back for minutes."""


class Outcome(NamedTuple):
    """What the rules said of one run. `steps` in seconds, without the first; `alerts` with their severities."""

    run: str
    steps: Sequence[float]
    alerts: Sequence[str]


def steps_of(path: Path) -> list[float]:
    """Return the seconds of each step of a run but the first, which compiles. Raises ValueError and KeyError."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    found = [json.loads(line[line.index("{") :])["value"] for line in lines if '"train_step_time"' in line]
    return [float(each["train_step_time"]) for each in found][1:]


class SteppedWork:
    """The seconds of eight GPUs of a job with these steps.

    A step works for as long as the job's median step takes. The rest of a longer one is taken for the worst: GPU 0
    stands still, and all others wait for it.
    """

    def __init__(self, steps: Sequence[float]) -> None:
        usual = statistics.median(steps)
        worked = [min(each, usual) for each in steps]
        self._steps = list(zip(steps, accumulate(steps), worked, strict=True))
        self._at = 0

    def __call__(self, t: float, random: Random) -> Second:
        share = self._share(t)
        return Second(
            tuple(blend(training(t, random), noisy(IDLE if gpu == 0 else SPIN, random), share) for gpu in range(GPUS))
        )

    def _share(self, t: float) -> float:
        """Return the share of the second from `t` on in which the job works; seconds come in their order."""
        worked, start = 0.0, t
        while self._at < len(self._steps):
            step, end, works = self._steps[self._at]
            until = min(end, t + 1.0)
            worked += max(min(until, end - step + works) - start, 0.0)
            if end > t + 1.0:
                break
            start, self._at = until, self._at + 1
        return worked


def play(path: Path, name: str, rules: RuleFile) -> Outcome | None:
    """Return what the rules say of a run; None for one that is too short."""
    steps = steps_of(path)
    if len(steps) < LEAST_STEPS or sum(steps) < LEAST_SECONDS:
        return None
    firings = play_work(SteppedWork(steps), sum(steps), (rules,))
    return Outcome(name, steps, list(dict.fromkeys(f"{each.alert} ({each.severity})" for each in firings)))


def row(outcome: Outcome) -> tuple[str, ...]:
    """Return the row of the page about a run."""
    steps = sorted(outcome.steps)
    usual = statistics.median(steps)
    of_usual = (statistics.quantiles(steps, n=100)[98] / usual, steps[-1] / usual)
    beyond = sum(max(each - usual, 0.0) for each in steps) / sum(steps)
    return (
        outcome.run, str(len(steps)), f"{usual:.2f}", *(f"{each:.3f}" for each in of_usual), f"{beyond:.2%}",
        ", ".join(outcome.alerts) or "none",
    )  # fmt: skip


_HEADS = ("run", "steps", "median, s", "99th percentile, of the median", "longest, of the median",
          "time beyond the median", "alerts")  # fmt: skip


def report(folder: Path, rules: RuleFile, say: Callable[[str], object]) -> str:
    """Return the page's table, "" where no log has step times; `say` is called with what is played."""
    outcomes = []
    for path in sorted(folder.glob(LOGS)):
        name = "/".join((path.parts[-5], *path.parts[-3:-1]))
        outcome = play(path, name, rules)
        if outcome is not None:
            say(f"{name}: {len(outcome.steps)} steps")
            outcomes.append(outcome)
    return markdown(_HEADS, map(row, outcomes)) if outcomes else ""
