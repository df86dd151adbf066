"""How evenly the GPUs of a job work, and which of them lags.

Utilization is compared as means over five minutes: an instant says nothing about work that comes in steps. On traces of
real 8-GPU nodes a difference of 50 points between such means, with the busiest GPU above 70 %, separated all
stalled jobs from all healthy ones, whose difference was 15 points at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from statistics import fmean, median

from agent.model import Labels
from agent.recording.report import chosen_series as chosen
from agent.recording.report.run_facts import GpuFacts

WINDOW_SECONDS = 300.0
SHORTEST_WINDOW_SECONDS = 60.0
"""Seconds of a window where the recording is shorter than five minutes; of less nothing is said."""
SHARP, BUSY = 0.5, 0.7
"""Difference of utilization, and utilization of the busiest GPU, from which on the work is uneven."""
_WHOLE = 0.8
"""Share of a window's parts of the grid in which a GPU must have been seen."""

Means = Sequence["float | None"]
Columns = dict[str, Means]


@dataclass
class Imbalance:
    """The difference of utilization between GPUs of a job, in windows of `window` seconds, over `seconds` in all.

    `sharp` are the seconds with uneven work, `lags` those of them in which each GPU was the least busy one,
    `busy_power` the median power of the busy GPUs then, as a share of their limits; None where it is not known.
    """

    window: float
    seconds: float = 0.0
    mean: float = 0.0
    most: float = 0.0
    sharp: float = 0.0
    lags: dict[str, float] = field(default_factory=dict)
    least: float = 1.0
    busy_power: float | None = None

    @property
    def laggard(self) -> tuple[str, float] | None:
        """The GPU that was the least busy one for the longest time, and for how many seconds."""
        return max(self.lags.items(), key=lambda one: one[1]) if self.lags else None


def imbalance_of(gpus: Sequence[GpuFacts]) -> Imbalance | None:
    """How uneven the work of these GPUs was; None of fewer than two, or of less than a minute."""
    columns: Columns = {gpu.title: means for gpu in gpus if (means := gpu.means(chosen.UTILIZATION)) is not None}
    grid = gpus[0].node.grid
    wanted = min(WINDOW_SECONDS, grid.width * grid.count)
    if len(columns) < 2 or wanted < SHORTEST_WINDOW_SECONDS:
        return None
    parts = ceil(wanted / grid.width - 1e-9)
    found = Imbalance(parts * grid.width)
    powers: Columns = {gpu.title: _shares_of_limit(gpu) for gpu in gpus}
    spreads: list[float] = []
    drawn: list[float] = []
    for first in range(0, grid.count, parts):
        told = _told(columns, first, parts)
        if len(told) < 2:
            continue
        low, high = min(told.values()), max(told.values())
        spreads.append(high - low)
        if high >= BUSY and high - low >= SHARP:
            drawn += _time(found, columns, powers, range(first, min(first + parts, grid.count)), grid.width)
            found.least = min(found.least, low)
    if not spreads:
        return None
    found.seconds, found.mean, found.most = len(spreads) * found.window, fmean(spreads), max(spreads)
    found.seconds = min(found.seconds, grid.count * grid.width)
    found.busy_power = median(drawn) if drawn else None
    return found


def _told(columns: Columns, first: int, parts: int) -> dict[str, float]:
    window = {title: _mean(means, first, parts) for title, means in columns.items()}
    return {title: value for title, value in window.items() if value is not None}


def _time(found: Imbalance, columns: Columns, powers: Columns, window: range, width: float) -> Iterator[float]:
    """Add up how long it was uneven in a window that was, minute by minute; gives what busy GPUs drew then."""
    parts = max(1, min(len(window), ceil(SHORTEST_WINDOW_SECONDS / width - 1e-9)))
    for start in window[::parts]:
        count = min(parts, window.stop - start)
        told = _told(columns, start, count)
        if len(told) > 1 and max(told.values()) >= BUSY and max(told.values()) - min(told.values()) >= SHARP:
            low = min(told, key=lambda title: told[title])
            found.sharp += count * width
            found.lags[low] = found.lags.get(low, 0.0) + count * width
            yield from _busy_power(told, powers, start, count, max(told.values()))


def _shares_of_limit(gpu: GpuFacts) -> Means:
    limit, power = gpu.power_limit, gpu.means(chosen.POWER)
    return [value / limit if value is not None else None for value in power] if limit and power else ()


def _busy_power(told: dict[str, float], powers: Columns, first: int, parts: int, high: float) -> Iterator[float]:
    """The power of the GPUs that are busy in a window, as shares of their limits."""
    for title, value in told.items():
        if value >= high - 0.2 and (share := _mean(powers[title], first, parts)) is not None:
            yield share


def _mean(values: Means, first: int, parts: int) -> float | None:
    some = [value for value in values[first : first + parts] if value is not None]
    return fmean(some) if some and len(some) >= _WHOLE * parts else None


def busy_parts(gpus: Sequence[GpuFacts]) -> list[int]:
    """The parts of the grid in which all of these GPUs were at least half busy: where they can be compared."""
    busy = [means for gpu in gpus if (means := gpu.means(chosen.UTILIZATION)) is not None]
    return [part for part, some in enumerate(zip(*busy)) if all(used is not None and used >= 0.5 for used in some)]  # noqa: B905 one grid


def mean_in(gpu: GpuFacts, parts: Sequence[int], name: str, labels: Labels = ()) -> float | None:
    """The mean of a gauge in parts of the grid; None if it was seen in none of them."""
    values = gpu.means(name, labels)
    some = [value for part in parts if (value := values[part]) is not None] if values is not None else []
    return fmean(some) if some else None
