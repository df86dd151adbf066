"""The soak itself: everything comes and goes, and is looked at."""

from pathlib import Path

from tests.lab.bench.report import Progress
from tests.lab.soak.accelerated import LOOK_EVERY, PAGE_EVERY, RELOAD_EVERY, accelerated, busy_hours


def test_minutes_at_accelerated_time_look_at_everything() -> None:
    seconds = RELOAD_EVERY + LOOK_EVERY
    soaked = accelerated(Progress(), seconds, warm=0.0)
    assert soaked.told == f"1 reloads, {seconds // PAGE_EVERY} pages"
    assert all(len(trend.samples) == seconds // LOOK_EVERY for trend in soaked.trends)


def test_five_days_are_a_scenario_that_loads(tmp_path: Path) -> None:
    assert busy_hours(tmp_path, 120 * 3600).jobs[-1].window.at > 119 * 3600
