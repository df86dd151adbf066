"""What a daemon holds, whether that grows, and the table of it in docs/dev/reliability.md."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import median

from tests.lab.bench.processes import MIB, kilobytes, proportional_memory
from tests.lab.bench.report import columns, markdown, put_between
from tests.lab.drill.reliability import DOCUMENT

MOST = 400
"""Samples through which a line is laid; of more, as many at equal distances."""


def slope(samples: Sequence[tuple[float, float]]) -> float:
    """What a figure grows by in a second: the median of the slopes between any two samples (Theil and Sen's line).

    Up to 29 % of the samples may be far off without turning it; a mean would follow a single peak. 0 of fewer than two.
    """
    chosen = samples[:: -(-len(samples) // MOST)] if samples else samples
    slopes = [(b - a) / (then - at) for (at, a), (then, b) in combinations(chosen, 2) if then > at]
    return median(slopes) if slopes else 0.0


@dataclass(slots=True)
class Trend:
    """Samples of one figure by seconds. It may grow by `limit` in all; None where it is only told."""

    what: str
    limit: float | None
    show: Callable[[float], str]
    samples: list[tuple[float, float]] = field(default_factory=list)

    def note(self, at: float, value: float) -> None:
        self.samples.append((at, value))

    def after(self, warm: float) -> Sequence[tuple[float, float]]:
        return [sample for sample in self.samples if sample[0] >= warm]

    def growth(self, warm: float) -> float:
        """By how much it grew from this second to the last sample, along its line."""
        samples = self.after(warm)
        return slope(samples) * (samples[-1][0] - samples[0][0]) if samples else 0.0

    def missed(self, warm: float) -> bool:
        """Whether it grew beyond its limit, or nobody knows because there are no two samples."""
        return self.limit is not None and (len(self.after(warm)) < 2 or self.growth(warm) >= self.limit)


MEMORY_LIMIT = float(MIB)
FLAT = 1.0
"""A count that grows by less has not grown."""


def mebibytes(value: float) -> str:
    return f"{value / MIB:+.2f} MiB"


def number(value: float) -> str:
    return f"{value:+.1f}"


KINDS = (
    ("memory", MEMORY_LIMIT, mebibytes),
    ("  PSS", None, mebibytes),
    ("descriptors", FLAT, number),
    ("threads", FLAT, number),
)
"""Figures of a process, with how much each may grow."""


class Footprint:
    """The figures of processes by their names, and of a folder in which they keep their state.

    Memory is what is the process's own and no file's (`Anonymous` of smaps_rollup, proc(5)): everything that a program
    allocates. PSS is told beside it. It counts the pages of libraries as well, each with its share, and changes with
    every program of the same libraries that somebody else starts or ends.
    """

    def __init__(self, pids: Mapping[str, int], state: Path) -> None:
        self._pids = dict(pids)
        self._state = state
        made = [Trend(f"{kind} of {name}", limit, show) for kind, limit, show in KINDS for name in pids]
        made += [Trend("state files", FLAT, number), Trend("bytes of the state files", MEMORY_LIMIT, mebibytes)]
        self._trends = {each.what: each for each in made}

    @property
    def trends(self) -> list[Trend]:
        return list(self._trends.values())

    def follow(self, name: str, pid: int) -> None:
        """From now on the figures of that name are another process's."""
        self._pids[name] = pid

    def look(self, at: float) -> None:
        """Note all figures; those of a process that has ended are as they were."""
        for name, pid in self._pids.items():
            process = Path(f"/proc/{pid}")
            with suppress(OSError):
                figures = (
                    kilobytes(process / "smaps_rollup", "Anonymous:") * 1024.0,
                    proportional_memory(pid),
                    len(os.listdir(process / "fd")),
                    len(os.listdir(process / "task")),
                )
                for (kind, _, _), figure in zip(KINDS, figures, strict=True):
                    self._trends[f"{kind} of {name}"].note(at, figure)
        sizes = []
        for path in self._state.rglob("*"):
            with suppress(OSError):  # it was renamed in between
                sizes += [path.stat().st_size] if path.is_file() else []
        self._trends["state files"].note(at, len(sizes))
        self._trends["bytes of the state files"].note(at, sum(sizes))


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak gave: how long it took, from which second on it counts, and what went on meanwhile."""

    seconds: float
    warm: float
    trends: Sequence[Trend]
    told: str
    troubles: Sequence[str] = ()

    def missed(self) -> list[str]:
        """What grew beyond its limit, and what else went wrong."""
        return [trend.what.strip() for trend in self.trends if trend.missed(self.warm)] + list(self.troubles)


BEGINS, ENDS = "<!-- the soak {name} writes from here -->", "<!-- the soak {name} writes to here -->"
HEAD = ("figure", "when it began to count", "growth", "limit", "")


def rows(soaked: Soaked) -> Iterator[tuple[str, ...]]:
    """One figure after the other, in the order of HEAD; then what else went wrong."""
    for trend in soaked.trends:
        samples = trend.after(soaked.warm)
        first = trend.show(samples[0][1]).lstrip("+") if samples else "-"
        limit = verdict = ""
        if trend.limit is not None:
            limit = f"< {trend.show(trend.limit).lstrip('+')}"
            verdict = "**missed**" if trend.missed(soaked.warm) else "met"
        yield trend.what, first, trend.show(trend.growth(soaked.warm)), limit, verdict
    for trouble in soaked.troubles:
        yield trouble, "", "", "", "**missed**"


def title(name: str, soaked: Soaked) -> str:
    return f"{soaked.seconds:,.0f} s {name}; counted from {soaked.warm:,.0f} s on; {soaked.told}"


def plain(name: str, soaked: Soaked) -> str:
    return f"{title(name, soaked)}\n{columns([HEAD, *rows(soaked)])}".replace("**", "")


def write(name: str, soaked: Soaked, machine: str) -> None:
    """Put the table in the place of the one of the same name. Raises ValueError where its marks are missing."""
    begins, ends = (mark.format(name=name) for mark in (BEGINS, ENDS))
    table = markdown(HEAD, ((row[0].strip(), *row[1:]) for row in rows(soaked)))
    put_between(DOCUMENT, begins, ends, f"{machine}\n\n{title(name, soaked)}:\n\n{table}")
