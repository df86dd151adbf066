"""Measures how closely each GPU's activity follows that of its job's other GPUs on this node.

The GPUs of a synchronous job rise and fall together within each step; replicas, prefill and decode, the trials of a
sweep and reward models do not. Activity is that of the tensor cores, else power as a share of its limit: utilization
says nothing here, since a GPU that waits for another one is fully busy. Work at the power cap hardly varies, so the
number is often absent; absence says nothing about a job.
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from operator import itemgetter

from agent.catalogue.own_series import OwnReading, OwnSeries
from agent.model import Entity, Frame, Labels

_ROW = "coldplate_gpu_lock_step_ratio"
MEMORY_SECONDS = 300.0
"""Time constant of the correlation: about ten minutes count."""
LEAST_SECONDS = 60.0
"""Seconds of common work before a number is given."""
LEAST_SPREAD, LOST_SPREAD = 0.02, 0.01
"""Standard deviations of activity from which it varies, and below which it does not any more."""


class _Moments:
    """Means, variances and the covariance of a GPU's activity and its peers' median, over the recent past."""

    __slots__ = ("_both", "_mine", "_seconds", "_theirs", "_varied_mine", "_varied_theirs", "is_known", "job")

    def __init__(self, job: Labels) -> None:
        self.job = job
        self.is_known = False
        self._seconds = self._mine = self._theirs = 0.0
        self._varied_mine = self._varied_theirs = self._both = 0.0

    def add(self, mine: float, theirs: float, seconds: float) -> None:
        """Add an interval of `seconds` with these activities."""
        self._seconds += seconds
        weight = min(max(seconds / self._seconds, seconds / MEMORY_SECONDS), 1.0)
        off_mine, off_theirs = mine - self._mine, theirs - self._theirs
        self._mine += weight * off_mine
        self._theirs += weight * off_theirs
        kept = 1.0 - weight
        self._varied_mine = kept * (self._varied_mine + weight * off_mine * off_mine)
        self._varied_theirs = kept * (self._varied_theirs + weight * off_theirs * off_theirs)
        self._both = kept * (self._both + weight * off_mine * off_theirs)
        spread = LOST_SPREAD if self.is_known else LEAST_SPREAD
        least = min(self._varied_mine, self._varied_theirs)
        self.is_known = self._seconds >= LEAST_SECONDS and least >= spread * spread

    @property
    def correlation(self) -> float:
        return min(max(self._both / sqrt(self._varied_mine * self._varied_theirs), -1.0), 1.0)


class LockStep:
    """Follows the GPUs of all jobs of the node. For the sampling thread."""

    def __init__(self) -> None:
        self._moments: dict[Entity, _Moments] = {}
        self._own = OwnSeries()

    def count(self, job: Labels, activities: Sequence[tuple[Entity, float]], seconds: float) -> None:
        """Count a moment in which these GPUs of a job were busy; others keep the number that they had."""
        if len(activities) < 2:
            return
        ranked = sorted(activities, key=itemgetter(1))
        values = [value for _, value in ranked]
        for place, (gpu, mine) in enumerate(ranked):
            moments = self._moments.get(gpu)
            if moments is None or moments.job != job:
                moments = self._moments[gpu] = _Moments(job)
            moments.add(mine, _median_without(values, place), seconds)

    def keep_only(self, held: Iterable[tuple[Entity, Labels]]) -> None:
        """Forget GPUs that their job holds no longer."""
        jobs = dict(held)
        self._moments = {gpu: moment for gpu, moment in self._moments.items() if jobs.get(gpu) == moment.job}

    def frame(self) -> Frame:
        """Return the numbers that are known."""
        moments = ((gpu, moment) for gpu, moment in self._moments.items() if moment.is_known)
        return self._own.frame(OwnReading(_ROW, gpu_moment.correlation, (), gpu) for gpu, gpu_moment in moments)


def _median_without(ranked: Sequence[float], place: int) -> float:
    """Return the median of ascending values but for one."""
    rest = len(ranked) - 1
    low, high = (rest - 1) // 2, rest // 2
    return (ranked[low + (low >= place)] + ranked[high + (high >= place)]) / 2.0
