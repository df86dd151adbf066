"""How often each lane must be read, by the rules: what they read over a range, and nothing else."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from agent.config.reading import parse
from agent.config.schema import Config
from agent.sampler.schedule import SAMPLES, Ranges, slowest
from agent.wiring.alerting import load_rules, ranges_of
from agent.wiring.sources import load_settings


@pytest.mark.parametrize(
    ("expr", "ranges"),
    [
        ("rate(coldplate_gpu_energy_joules_total[30s])", (30.0, inf, inf)),
        ("avg_over_time(coldplate_node_load1[40s]) > rate(coldplate_ticks_total[90s])", (90.0, 40.0, inf)),
        ("coldplate_node_load1 > 5", (inf, inf, inf)),
        ("rate(somebody_elses_total[1s])", (inf, inf, inf)),
        ('max_over_time({__name__=~"coldplate_node_load.*"}[20s])', (inf, 20.0, inf)),
        ('count_over_time({instance="x"}[10s])', (10.0, 10.0, 10.0)),
    ],
)
def test_ranges_are_those_of_the_metrics_that_are_read(tmp_path: Path, expr: str, ranges: tuple[float, ...]) -> None:
    (tmp_path / "r.yml").write_text(f"groups: [{{name: g, rules: [{{record: 'a:b', expr: '{expr}'}}]}}]")
    loaded = load_rules(parse("rules: {files: [r.yml]}", "c.yaml"), tmp_path)
    assert ranges_of(loaded.groups) == Ranges(*ranges)


def test_with_the_shipped_rules_there_is_room_and_every_range_holds_enough_reads(tmp_path: Path) -> None:
    config = Config()
    ranges = ranges_of(load_rules(config, tmp_path).groups)
    settings = load_settings(config, ranges)
    last = slowest(settings)
    assert (last.fast, last.slow > settings.slow, last.cold > settings.cold) == (1.0, True, True)
    assert all(
        period <= max(shortest / SAMPLES, configured)
        for period, shortest, configured in (
            (last.slow, ranges.slow, settings.slow), (last.cold, ranges.cold, settings.cold)
        )
    )  # fmt: skip
