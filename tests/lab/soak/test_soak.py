"""The soak itself: everything comes and goes, and is looked at."""

from tests.lab.bench.report import Progress
from tests.lab.soak.accelerated import LOOK_EVERY, PAGE_EVERY, RELOAD_EVERY, accelerated


def test_minutes_at_accelerated_time_look_at_everything() -> None:
    seconds = RELOAD_EVERY + LOOK_EVERY
    soaked = accelerated(Progress(), seconds, warm=0.0)
    assert soaked.told == f"1 reloads, {seconds // PAGE_EVERY} pages"
    assert all(len(trend.samples) == seconds // LOOK_EVERY for trend in soaked.trends)
