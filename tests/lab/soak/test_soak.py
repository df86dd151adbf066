"""The soak itself: that growth is seen and noise is not, that everything comes and goes, and that the table says so."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from alerts.promql.matchers import wanted_name
from alerts.windows.needs import selectors_of
from tests.lab.bench.processes import MIB
from tests.lab.bench.report import CannotRunError, Progress
from tests.lab.bench.rig import QUICK, Rig
from tests.lab.score.play import load_pack
from tests.lab.soak import soak_report
from tests.lab.soak.accelerated import LOOK_EVERY, PAGE_EVERY, RELOAD_EVERY, WARM, accelerated
from tests.lab.soak.footprint import MEMORY_LIMIT, Footprint, mebibytes
from tests.lab.soak.real_time import Soaked, in_real_time
from tests.lab.soak.trend import Trend

HOUR = 3600
OF_EQUIPMENT = "rack:filter_delta_pressure_pascals:max"
"""What rules remember for a day, of equipment that the soaked rack does not have."""


def _trend(per_hour: float, peak: float = 0.0) -> Trend:
    """Samples of an hour with noise of half a MiB; every tenth is as much higher as `peak` says."""
    chance, trend = random.Random(1), Trend("memory", MEMORY_LIMIT, mebibytes)
    for at in range(0, HOUR, 10):
        noise = chance.uniform(-0.25, 0.25) * MIB
        trend.note(at, 40 * MIB + per_hour * at / HOUR + noise + (peak if at % 100 == 0 else 0.0))
    return trend


def test_what_grows_by_the_limit_is_missed_and_noise_and_peaks_are_not() -> None:
    assert not _trend(0.0).missed(0.0)
    assert not _trend(0.0, peak=20 * MIB).missed(0.0)
    assert not _trend(0.7 * MIB).missed(0.0)
    assert _trend(1.3 * MIB).missed(0.0)
    assert _trend(1.3 * MIB, peak=20 * MIB).missed(0.0)


def test_growth_counts_from_the_end_of_the_warm_up() -> None:
    trend = Trend("memory", MEMORY_LIMIT, mebibytes)
    for at in range(100):
        trend.note(at, min(at, 50) * MIB)
    assert trend.missed(0.0)
    assert not trend.missed(50.0)


def test_a_figure_of_which_nobody_knows_whether_it_grows_is_missed() -> None:
    trend = Trend("memory", MEMORY_LIMIT, mebibytes, [(0.0, 1.0)])
    assert trend.missed(0.0)
    assert not Trend("PSS", None, mebibytes).missed(0.0)


def test_descriptors_and_files_are_counted_as_they_come(tmp_path: Path) -> None:
    footprint = Footprint({"this": os.getpid()}, tmp_path)
    footprint.look(0.0)
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "one").write_bytes(bytes(3 * MIB))
    with (tmp_path / "two").open("wb"), (tmp_path / "below" / "one").open("rb"):
        footprint.look(1.0)
    grown = {trend.what: trend.samples[1][1] - trend.samples[0][1] for trend in footprint.trends}
    assert grown["descriptors of this"] == 2
    assert grown["state files"] == 2
    assert grown["bytes of the state files"] == 3 * MIB
    assert grown["threads of this"] == 0


def test_the_table_names_what_was_missed_and_takes_the_place_of_its_own_kind(tmp_path: Path) -> None:
    document = tmp_path / "reliability.md"
    marks = [mark.format(name="a") for mark in (soak_report.BEGINS, soak_report.ENDS)]
    document.write_text(f"Before\n{marks[0]}\nold\n{marks[1]}\nAfter\n")
    soaked = Soaked(3600.0, 900.0, [_trend(8 * MIB), _trend(0.0)], "9 rounds", ["thread x fell"])
    assert soaked.missed() == ["memory", "thread x fell"]
    soak_report.write("a", soaked, "A machine.", document)
    text = document.read_text()
    assert "old" not in text
    assert "| **missed** |\n| memory | 40." in text
    assert "| thread x fell |  |  |  | **missed** |" in text
    assert text.endswith(f"{marks[1]}\nAfter\n")
    assert "missed" in soak_report.plain("a", soaked)
    with pytest.raises(ValueError, match="put them back"):
        soak_report.write("b", soaked, "", document)


def test_minutes_at_accelerated_time_look_at_everything() -> None:
    seconds = RELOAD_EVERY + LOOK_EVERY
    soaked = accelerated(Progress(), seconds, warm=0.0)
    assert soaked.told == f"1 reloads, {seconds // PAGE_EVERY} pages"
    assert all(len(trend.samples) == seconds // LOOK_EVERY for trend in soaked.trends)


def test_growth_counts_when_the_longest_range_of_the_rules_is_full() -> None:
    rules = [rule for file in load_pack() for group in file.groups for rule in group.rules]
    selectors = [selector for rule in rules for selector in selectors_of(rule)]
    kept = [each for each in selectors if wanted_name(each.matchers) != OF_EQUIPMENT]
    assert len(kept) < len(selectors)
    assert max(each.history for each in kept) < WARM


def test_seconds_in_real_time_change_everything_once() -> None:
    try:
        with Rig(QUICK, Progress()) as rig:
            soaked = in_real_time(rig, 6.0, looks=20)
    except CannotRunError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{error}, and CI=true")
        pytest.skip(str(error))
    assert soaked.told.startswith("1 rounds of changes, ")
    assert not soaked.troubles
    assert all(trend.samples for trend in soaked.trends)
