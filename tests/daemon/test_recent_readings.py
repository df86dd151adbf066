"""The minutes that a viewer did not see: kept once a second, and no more than ten of them."""

from __future__ import annotations

from agent.catalogue import BY_NAME
from agent.daemon.hub import MOMENTS, RecentReadings
from agent.model import Gpu, Instant, Reading, Series, Snapshot
from tests.frames import snapshot_of

GPU = Gpu("0", "GPU-0")
POWER = Series(BY_NAME["coldplate_gpu_power_watts"], GPU)
HEAT = Series(BY_NAME["coldplate_gpu_temperature_celsius"], GPU)


def at(second: float, watts: float, epoch: float = 1_000.0) -> Snapshot:
    return snapshot_of(1, Instant(second, epoch + second), (Reading(HEAT, 40.0), Reading(POWER, watts)))


def test_what_is_drawn_is_kept_and_nothing_else() -> None:
    kept = RecentReadings()
    kept.observe(at(5.0, 7.0))
    ((wall, ((layout, values),)),) = kept.moments()
    assert (wall, layout.series, list(values)) == (1_005.0, (POWER,), [7.0])


def test_a_faster_lane_does_not_shorten_what_is_remembered() -> None:
    kept = RecentReadings()
    for tenth in range(100):
        kept.observe(at(tenth / 10, tenth))
    assert [moment.wall - 1_000.0 for moment in kept.moments()] == [float(second) for second in range(10)]


def test_the_oldest_are_forgotten() -> None:
    kept = RecentReadings()
    for second in range(MOMENTS + 5):
        kept.observe(at(float(second), 1.0))
    walls = [moment.wall for moment in kept.moments()]
    assert (len(walls), walls[0], walls[-1]) == (MOMENTS, 1_005.0, 1_000.0 + MOMENTS + 4)
