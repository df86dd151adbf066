"""How far the lanes may be slowed down: the periods of each step, from those configured to the longest that do no harm.

The slow and the cold lane go first, and the fast one last. Staleness follows the periods (`Settings.patience`), so that
no series ends because its lane is slower. What else depends on them sets their limits.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from agent.sampler.settings import Settings

LONGEST_FAST_SECONDS = 1.0
"""The longest that a fast lane is stretched to: a rack adds up whole seconds, and a hung GPU is to show within five."""
MOST_TIMES = 4.0
"""How many times as long the slow and the cold period become at most: what they show may be that much later."""
SAMPLES = 4.0
"""Reads that the shortest range of a rule must hold: Prometheus's advice for `rate`, which tolerates a lost one."""


def steps_of(settings: Settings) -> tuple[Settings, ...]:
    """The settings of each step: the first are those given, and each next one has longer periods in some lane."""
    if settings.cpu_budget == inf:
        return (settings,)
    ranges = settings.ranges
    fast = _limit(settings.fast, LONGEST_FAST_SECONDS, ranges.fast)
    slow = _limit(settings.slow, MOST_TIMES * settings.slow, ranges.slow)
    cold = _limit(settings.cold, MOST_TIMES * settings.cold, ranges.cold)
    steps = [settings]
    while (last := steps[-1]).slow < slow or last.cold < cold:
        wanted = min(2 * last.slow, slow)
        steps.append(replace(last, slow=wanted, cold=max(min(2 * last.cold, cold), wanted)))
    while (last := steps[-1]).fast < fast:
        wanted = min(2 * last.fast, fast)
        steps.append(replace(last, fast=wanted, slow=max(last.slow, wanted), cold=max(last.cold, wanted)))
    return tuple(steps)


def slowest(settings: Settings) -> Settings:
    """The settings of the last step."""
    return steps_of(settings)[-1]


def _limit(period: float, longest: float, shortest_range: float) -> float:
    """The longest period of a lane; never a shorter one than is configured."""
    return max(period, min(longest, shortest_range / SAMPLES))
