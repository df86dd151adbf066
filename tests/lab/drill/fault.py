"""One kind of harm: how it comes about, what the page shows of it, and how it is cured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.lab.drill.drilled_daemon import GPUS, Drill, Page

Seen = Callable[[Page, Page], bool]
"""Whether a page shows something, given the page before the fault and the one now."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of harm.

    `expected` says in words what the page is to show and what is to go on. `noticed` is what the page shows of it,
    where it shows something; `back` is what it shows once all is well, beside what it showed before. Only a `device`
    has to be noticed and back in time. Without a `cure` the daemon is to help itself, and the time counts from the
    fault. `holds` is for faults that are to last for a while, noticed or not. `answers` is whether the daemon is to
    answer scrapes meanwhile, `forgets` whether it may forget since when alerts are active.
    """

    title: str
    expected: str
    provoke: Callable[[Drill], object]
    cure: Callable[[Drill], object] | None = None
    noticed: Seen | None = None
    back: Seen = lambda before, now: True
    device: bool = False
    holds: bool = True
    answers: bool = True
    forgets: bool = False
    falls: str = ""
    """The thread that is to be begun again."""


def down(*gpus: int) -> Seen:
    """These GPUs are not up, and the others are."""
    sick = {str(gpu) for gpu in gpus}

    def shows(before: Page, now: Page) -> bool:
        up = now.family("coldplate_gpu_up", "gpu")
        return all(up.get(str(gpu), 0.0) == (str(gpu) not in sick) for gpu in range(GPUS))

    return shows


def grown(name: str, **labels: str) -> Seen:
    """The sum of these series is higher than it was."""
    return lambda before, now: now.total(name, **labels) > before.total(name, **labels)


def shrunk(name: str, **labels: str) -> Seen:
    """The sum of these series is lower than it was: some series of a state that was 1 is 0, or is gone."""
    return lambda before, now: now.total(name, **labels) < before.total(name, **labels)


def either(*each: Seen) -> Seen:
    """One of them shows."""
    return lambda before, now: any(one(before, now) for one in each)
