"""Plays the measured power of other people's nodes through the rack rules, against budgets that shrink."""

import json
import statistics
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, product
from pathlib import Path
from typing import NamedTuple

from agent.catalogue import BY_NAME
from agent.model import Rack, Reading, Series
from alerts.rulefile import RuleFile
from tests.lab.bench.report import markdown
from tests.lab.score.expected import WALL
from tests.lab.score.play import played

ABOUT, RULES = "power", "rack"
"""The page and the rule file."""
BUDGETS = (1.3, 1.1, 1.0, 0.95, 0.9)
"""Budgets of a rack, as shares of the most that its nodes drew together in the run."""
SIZES = (4, 8)
MINUTE = 60
"""Seconds of the mean that must not be above the budget."""
RACKS = 4
"""Racks of a run that are played: its nodes do the same work, and every rack more takes a minute."""
LEAST_SECONDS = 900
"""A run that is shorter says little about rules that read a quarter of an hour."""
ALERT = "RackPowerHigh"


class Outcome(NamedTuple):
    """What one rack of one run did with one budget. Times in seconds since the run began; None: never."""

    nodes: int
    budget: float
    alerted: Mapping[str, int]
    crossed: int | None

    @property
    def first(self) -> int | None:
        """When any level first fired."""
        return min(self.alerted.values(), default=None)


def runs_of(folder: Path) -> dict[str, list[list[float]]]:
    """Return the watts of each node in each second of each long run, by the run's path."""
    found: dict[str, list[list[float]]] = {}
    for first in sorted(folder.glob("**/power/*/node_1.txt")):
        nodes = [power for path in sorted(first.parent.glob("node_*.txt"), key=_number) if (power := _seconds(path))]
        if nodes and min(map(len, nodes)) >= LEAST_SECONDS:
            found[first.parent.relative_to(folder).as_posix()] = nodes
    return found


def _number(path: Path) -> int:
    return int(path.stem.removeprefix("node_"))


def _seconds(path: Path) -> list[float]:
    """Return the last reading up to each second of a run."""
    times, watts = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        if '"power_reading"' in line:
            reading = json.loads(line.removeprefix(":::MLLOG "))
            times.append(reading["time_ms"] / 1000)
            watts.append(float(reading["value"]))
    if not times:
        return []
    return [watts[bisect_right(times, times[0] + second) - 1] for second in range(int(times[-1] - times[0]) + 1)]


def racks_of(nodes: Sequence[Sequence[float]], size: int) -> list[list[float]]:
    """Return the power of racks of so many consecutive nodes, in each second that all of them have."""
    groups = [nodes[start : start + size] for start in range(0, len(nodes) - size + 1, size)]
    return [[sum(each) for each in zip(*group, strict=False)] for group in groups]


def crossing(power: Sequence[float], budget: float) -> int | None:
    """Return the first second at which the mean of the minute before it is above the budget."""
    sums = [0.0, *accumulate(power)]
    means = ((at, (sums[at] - sums[at - MINUTE]) / MINUTE) for at in range(MINUTE, len(sums)))
    return next((at - 1 for at, mean in means if mean > budget), None)


def play(racks: Sequence[Sequence[float]], size: int, rules: RuleFile) -> Iterator[Outcome]:
    """Yield what each rack did with each budget; all are racks of one server."""
    powers = {Rack(f"r{number}-{share}"): (power, share) for number, power in enumerate(racks) for share in BUDGETS}
    series = {
        name: {rack: Series(BY_NAME[f"coldplate_rack_{name}"], rack) for rack in powers}
        for name in ("power_watts", "power_budget_watts", "nodes_reporting", "nodes_expected")
    }
    budgets = {rack: share * max(power) for rack, (power, share) in powers.items()}
    fixed = [Reading(series["power_budget_watts"][rack], budget) for rack, budget in budgets.items()]
    fixed += [Reading(each, size) for name in ("nodes_reporting", "nodes_expected") for each in series[name].values()]

    def drawn(second: int) -> list[Reading]:
        return [
            Reading(series["power_watts"][rack], power[second])
            for rack, (power, _) in powers.items()
            if second < len(power)
        ]

    alerted: dict[str, dict[str, int]] = {rack.name: {} for rack in powers}
    shown = ([*drawn(second), *fixed] for second in range(max(map(len, racks))))
    for second, alert in played(rules, shown, WALL):
        if alert.rule == ALERT:
            labels = dict(alert.labels)
            alerted[labels["rack"]].setdefault(labels["level"], second)
    for rack, (power, share) in powers.items():
        yield Outcome(size, share, alerted[rack.name], crossing(power, budgets[rack]))


def table(outcomes: Sequence[Outcome]) -> str:
    """A row for each size of rack and budget."""
    heads = (
        "nodes",
        "budget, of the rack's peak",
        "racks",
        "warned (near)",
        "critical (over, trip)",
        "a minute above the budget",
        "of these warned before",
        "seconds of warning: minimum, median",
    )
    rows = []
    for size, share in product(SIZES, BUDGETS):
        some = [each for each in outcomes if (each.nodes, each.budget) == (size, share)]
        if some:
            rows.append((str(size), f"{share:.0%}", *_counts(some)))
    return markdown(heads, rows)


def _counts(some: Sequence[Outcome]) -> tuple[str, ...]:
    over = [each for each in some if each.crossed is not None]
    lead = sorted(each.crossed - each.first for each in over if each.crossed is not None and each.first is not None)
    before = [seconds for seconds in lead if seconds > 0]
    spread = f"{before[0]}, {statistics.median(before):.0f}" if before else "-"
    critical = sum(bool({"over", "trip"} & each.alerted.keys()) for each in some)
    near = sum("near" in each.alerted for each in some)
    return *map(str, (len(some), near, critical, len(over), len(before))), spread


def report(folder: Path, rules: RuleFile, say: Callable[[str], object]) -> str:
    """Return the page's table and list, "" where the folder has no long run; `say` is called with what is played."""
    runs = runs_of(folder)
    if not runs:
        return ""
    outcomes: list[Outcome] = []
    for size in SIZES:
        racks = [rack for nodes in runs.values() for rack in racks_of(nodes, size)[:RACKS]]
        say(f"{len(racks)} racks of {size} nodes, {len(BUDGETS)} budgets, {max(map(len, racks))} s ...")
        outcomes += play(racks, size, rules)
    lines = [f"* `{name}`: {len(nodes)} nodes, {min(map(len, nodes))} s\n" for name, nodes in runs.items()]
    return f"{table(outcomes)}\nRuns of {LEAST_SECONDS} s or longer:\n\n{''.join(lines)}"
