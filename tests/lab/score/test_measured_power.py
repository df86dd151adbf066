"""The rack rules over measured power: what is read, and when a rack counts as warned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lab.score import measured_power
from tests.lab.score.play import load_pack

RULES = next(file for file in load_pack() if Path(file.path).stem == "rack")


def node(path: Path, watts: list[float]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps({"time_ms": 1000.0 * 2 * at, "key": "power_reading", "value": each}) for at, each in enumerate(watts)
    ]
    path.write_text("".join(f":::MLLOG {line}\n" for line in ['{"key": "power_measurement_start"}', *lines]))


def test_readings_are_held_until_the_next_and_short_runs_are_left_out(tmp_path: Path) -> None:
    for number in (1, 2, 10):
        node(tmp_path / f"s/power/long/node_{number}.txt", [100.0 * number] * 500)
        node(tmp_path / f"s/power/short/node_{number}.txt", [100.0] * 50)
    runs = measured_power.runs_of(tmp_path)
    assert list(runs) == ["s/power/long"]
    assert [(each[0], len(each)) for each in runs["s/power/long"]] == [(100.0, 999), (200.0, 999), (1000.0, 999)]
    assert measured_power.racks_of(runs["s/power/long"], 2) == [[300.0] * 999]


def test_a_folder_without_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(measured_power.MeasuredPowerError, match="training_results"):
        measured_power.runs_of(tmp_path)


def test_a_rack_that_grows_over_its_budget_is_warned_before_and_one_far_below_is_not() -> None:
    power = [10_000.0] * 300 + [10_000.0 + 20.0 * at for at in range(500)] + [20_000.0] * 200
    found = {each.budget: each for each in measured_power.play([power], 4, RULES)}
    assert found[1.3].alerted == {} and found[1.3].crossed is None
    over = found[0.9]
    assert over.crossed is not None and over.first is not None and 0 < over.first < over.crossed
    assert {"near", "over"} <= over.alerted.keys()
