"""Do power, energy, clocks and activity move together when a GPU is loaded?

The judgement is a function of what was sampled, so that it can be tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from agent.model import Lane
from tests.lab.hardware.findings import Section, Table
from tests.lab.hardware.node import Key, Node, values_of

PERIOD = 0.2
"""Seconds between samples: GPM needs more than 0.1, and power changes about ten times a second."""
WARM = 3.0
"""Seconds of load left out: `power_watts` is a mean of the last second, and the clocks settle."""
AGREE = 0.10
"""How far the two ways to mean power may lie apart."""

ENERGY: Key = ("coldplate_gpu_energy_joules_total", ())
POWER: Key = ("coldplate_gpu_power_watts", ())
INSTANT: Key = ("coldplate_gpu_power_instant_watts", ())
UTILIZATION: Key = ("coldplate_gpu_utilization_ratio", ())
SM: Key = ("coldplate_gpu_sm_active_ratio", ())
TENSOR: Key = ("coldplate_gpu_tensor_active_ratio", ())
CLOCK: Key = ("coldplate_gpu_clock_hertz", (("domain", "sm"),))
TEMPERATURE: Key = ("coldplate_gpu_temperature_celsius", ())
SHOWN = (("power, mean of 1 s", POWER, 1.0, "W"), ("power, instant", INSTANT, 1.0, "W"),
         ("SM clock", CLOCK, 1e-6, "MHz"), ("utilization", UTILIZATION, 100.0, "%"), ("SM active", SM, 100.0, "%"),
         ("tensor active", TENSOR, 100.0, "%"), ("temperature", TEMPERATURE, 1.0, "C"))  # fmt: skip


class Moment(NamedTuple):
    """One fast sample."""

    at: float
    values: dict[Key, float]


def watch(
    node: Node, gpu: int, seconds: float, clock: Callable[[], float], pause: Callable[[float], object]
) -> list[Moment]:
    """Fast samples of one GPU for a while."""
    moments: list[Moment] = []
    until = clock() + seconds
    while clock() < until:
        at = clock()
        moments.append(Moment(at, values_of(node.read(gpu, Lane.FAST))))
        pause(max(0.0, PERIOD - (clock() - at)))
    return moments


def series(moments: Sequence[Moment], key: Key) -> list[tuple[float, float]]:
    return [(each.at, each.values[key]) for each in moments if key in each.values]


def mean(moments: Sequence[Moment], key: Key) -> float | None:
    """The time-weighted mean (trapezoids), or None without two values."""
    points = series(moments, key)
    if len(points) < 2:
        return None
    pairs = list(pairwise(points))
    return sum((b[0] - a[0]) * (a[1] + b[1]) / 2 for a, b in pairs) / (points[-1][0] - points[0][0])


def rate(moments: Sequence[Moment], key: Key) -> float | None:
    """A counter's growth per second."""
    points = series(moments, key)
    if len(points) < 2:
        return None
    return (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])


def judge(section: Section, idle: Sequence[Moment], loaded: Sequence[Moment], *, tensor: bool) -> None:
    """Write the verdicts; `loaded` is without the warm-up, `tensor` whether the load used the tensor cores."""
    _energy(section, [*idle, *loaded], loaded)
    for title, key, least in (
        ("utilization", UTILIZATION, 0.5),
        ("SM active", SM, 0.2),
        ("tensor active", TENSOR, 0.05),
    ):
        before, under = mean(idle, key), mean(loaded, key)
        if under is None:
            section.skipped(f"{title} goes up", "this GPU or driver gives no such value")
        elif key is TENSOR and not tensor:
            section.skipped(f"{title} goes up", "this load does not use the tensor cores")
        else:
            good = under >= least and (before is None or under > before)
            section.judge(f"{title} goes up", good, f"{_percent(before)} idle, {_percent(under)} loaded")
    for title, key in (("power", POWER), ("instant power", INSTANT)):
        before, under = mean(idle, key), mean(loaded, key)
        if before is None or under is None:
            section.skipped(f"{title} goes up", "this GPU or driver gives no such value")
        else:
            section.judge(f"{title} goes up", under > before * 1.1, f"{before:.1f} W idle, {under:.1f} W loaded")
    _throttled(section, loaded)
    rows = []
    for title, key, factor, unit in SHOWN:
        cells = [mean(moments, key) for moments in (idle, loaded)]
        rows.append([title, unit, *("-" if cell is None else f"{cell * factor:.1f}" for cell in cells)])
    section.tables.append(Table("Means over time", ("value", "unit", "idle", "loaded"), rows))


def _percent(value: float | None) -> str:
    return "no value" if value is None else f"{value * 100:.0f} %"


def _energy(section: Section, everything: Sequence[Moment], loaded: Sequence[Moment]) -> None:
    points = [value for _, value in series(everything, ENERGY)]
    if len(points) < 2:
        section.skipped("energy", "this GPU or driver has no energy counter")
        return
    falls = sum(b < a for a, b in pairwise(points))
    section.judge("energy only grows", falls == 0 and points[-1] > points[0],
                  f"{len(points)} samples, {falls} falls, {points[-1] - points[0]:.0f} J")  # fmt: skip
    counted = rate(loaded, ENERGY)
    for title, key in (("the sampled mean power", POWER), ("the sampled instant power", INSTANT)):
        sampled = mean(loaded, key)
        if counted is None or not sampled:
            section.skipped(f"energy agrees with {title}", "there is no such power")
            continue
        off = counted / sampled - 1
        text = f"{counted:.1f} W by the counter, {sampled:.1f} W sampled: {off:+.1%} (within {AGREE:.0%})"
        section.judge(f"energy agrees with {title}", abs(off) <= AGREE, text)


def _throttled(section: Section, loaded: Sequence[Moment]) -> None:
    """A reason that was active in every sample must have been counted for nearly all of the time."""
    keys = {key for moment in loaded for key in moment.values if key[0] == "coldplate_gpu_throttle_seconds_total"}
    told = False
    for name, labels in sorted(keys):
        active = [value for _, value in series(loaded, ("coldplate_gpu_throttle_active", labels))]
        counted = rate(loaded, (name, labels))
        if not active or counted is None:
            continue
        reason = labels[0][1]
        share = sum(active) / len(active)
        if counted > 1.1:
            told = True
            section.failed(f"throttled time: {reason}", f"{counted:.3g} s counted in a second: a wrong unit?")
        elif share > 0.95:
            told = True
            section.judge(f"throttled time: {reason}", counted > 0.5,
                          f"active in {share:.0%} of the samples, {counted:.3g} s counted in a second")  # fmt: skip
    if not told:
        section.skipped(
            "throttled time", "no reason with a counter was active all the time: its unit is not put to the test"
        )
