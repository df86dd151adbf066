"""Which sources a configuration brings, what the sampler is told of it, and how often the rules need each lane."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

import pytest

from agent.config.reading import parse
from agent.config.schema import Config
from agent.daemon.hub import Hub
from agent.daemon.sampling import SamplingLoop
from agent.sampler.node_sums import Coefficients
from agent.sampler.schedule import SAMPLES, Ranges, slowest
from agent.wiring import identity
from agent.wiring.alerting import load_rules, ranges_of
from agent.wiring.command_line import CommandLineOptions
from agent.wiring.sources import load_settings, make_sampling_loop

TRACE = Path(__file__).resolve().parents[1] / "nvml/traces/standin-h100x2.jsonl"
Make = Callable[[str], SamplingLoop]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Makes the loop of a configuration, on a machine without a state directory."""
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(identity, "STATE_DIRECTORY", tmp_path / "not-there")
    made: list[SamplingLoop] = []
    options = CommandLineOptions(sysfs=tmp_path, procfs=tmp_path)

    def make(text: str) -> SamplingLoop:
        made.append(make_sampling_loop(parse(text, "c.yaml"), options, Hub(), {}))
        return made[-1]

    yield make
    for each in made:
        each.close(lambda _: None)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("backends: {devices: nvml}", {"host", "infiniband", "kmsg", "optics", "topology", "power", "jobs"}),
        ("backends: {devices: none}", {"host", "infiniband", "optics", "power"}),
        ("backends: {devices: synthetic}", {"host"}),
        (f"backends: {{devices: trace, trace: {TRACE}}}", {"host"}),
        ("backends: {devices: none, host: false, infiniband: false, optics: false, power: [estimate]}", set()),
        ("{backends: {devices: nvml, power: [rapl]}, jobs: {sources: []}}",
         {"host", "infiniband", "kmsg", "optics", "topology", "power"}),
    ],
)  # fmt: skip
def test_sources_are_those_that_the_configuration_wants_and_that_the_devices_leave_room_for(
    make: Make, text: str, names: set[str]
) -> None:
    loop = make(text)
    assert set(loop.sampler.paces) == names
    assert (loop.supervisor is None) == ("devices: none" in text)


def test_only_an_agent_with_real_gpus_remembers_them_or_says_that_it_cannot(make: Make, tmp_path: Path, caplog) -> None:
    caplog.set_level(logging.INFO)
    for text in ("backends: {devices: none}", "backends: {devices: synthetic}"):
        make(text)
    make(f"{{backends: {{devices: nvml}}, state_dir: {tmp_path}}}")
    assert not caplog.records
    make("backends: {devices: nvml}")
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["no state directory"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sampling: {fast: 2s, slow: 20s, cold: 80s, deadline: 4s, window: 30s}",
         {"fast": 2.0, "slow": 20.0, "cold": 80.0, "deadline": 4.0, "window": 30.0}),
        ("backends: {expected_gpus: 8}", {"expected_gpus": 8}),
        ("backends: {power: [estimate], estimate: {factor: 1.5, per_gpu: 20W}}", {"estimate": Coefficients(1.5, 20.0)}),
        ("backends: {power: [rapl]}", {"estimate": None}),
    ],
)  # fmt: skip
def test_the_sampler_gets_its_part_of_the_configuration(text: str, expected: dict[str, Any]) -> None:
    settings = load_settings(parse(text, "c.yaml"))
    assert {name: getattr(settings, name) for name in expected} == expected


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
