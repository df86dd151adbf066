"""The soak itself: that growth is seen and noise is not, and that everything comes and goes."""

from __future__ import annotations

import random

from tests.lab.bench.processes import MIB
from tests.lab.bench.report import Progress
from tests.lab.soak import growth
from tests.lab.soak.accelerated import LOOK_EVERY, PAGE_EVERY, RELOAD_EVERY, accelerated
from tests.lab.soak.growth import MEMORY_LIMIT, Soaked, Trend, mebibytes

HOUR = 3600


def _trend(per_hour: float, peak: float = 0.0) -> Trend:
    """Samples of an hour with noise of half a MiB; every tenth is as much higher as `peak` says."""
    chance, trend = random.Random(1), Trend("memory", MEMORY_LIMIT, mebibytes)
    for at in range(0, HOUR, 10):
        noise = chance.uniform(-0.25, 0.25) * MIB
        trend.note(at, 40 * MIB + per_hour * at / HOUR + noise + (peak if at % 100 == 0 else 0.0))
    return trend


def test_what_grows_by_the_limit_is_missed_and_noise_and_peaks_are_not() -> None:
    assert not _trend(0.7 * MIB, peak=20 * MIB).missed(0.0)
    assert _trend(1.3 * MIB, peak=20 * MIB).missed(0.0)
    assert Trend("memory", MEMORY_LIMIT, mebibytes, [(0.0, 1.0)]).missed(0.0)  # one sample shows nothing
    soaked = Soaked(3600.0, 900.0, [_trend(8 * MIB), _trend(0.0)], "9 rounds", ["thread x fell"])
    assert soaked.missed() == ["memory", "thread x fell"]
    assert [row[-1] for row in growth.rows(soaked)].count("**missed**") == 2


def test_minutes_at_accelerated_time_look_at_everything() -> None:
    seconds = RELOAD_EVERY + LOOK_EVERY
    soaked = accelerated(Progress(), seconds, warm=0.0)
    assert soaked.told == f"1 reloads, {seconds // PAGE_EVERY} pages"
    assert all(len(trend.samples) == seconds // LOOK_EVERY for trend in soaked.trends)
